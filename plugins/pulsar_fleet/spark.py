"""Spark: the data source `pulsar`, and the package as a zip for executors.

    spark.dataSource.register(PulsarSource)
    spark.sparkContext.addPyFile(str(build_package_zip(folder)))

Each name is imported at its first use: only `PulsarSource` needs pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_fleet import import_at_first_use

if TYPE_CHECKING:
    from pulsar_fleet.messages.datasource.source import PulsarSource
    from pulsar_fleet.verification.job import build_package_zip

__all__ = ["PulsarSource", "build_package_zip"]

__getattr__ = import_at_first_use(
    __name__,
    {
        "PulsarSource": "pulsar_fleet.messages.datasource.source",
        "build_package_zip": "pulsar_fleet.verification.job",
    },
)
