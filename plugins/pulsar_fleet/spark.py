"""Spark: the data source `pulsar`, and the package as a zip for executors.

    spark.dataSource.register(PulsarSource)
    spark.sparkContext.addPyFile(str(build_package_zip(folder)))

Each name is imported at its first use: only `PulsarSource` needs pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsar_fleet.messages.datasource.source import PulsarSource
    from pulsar_fleet.verification.job import build_package_zip

__all__ = ["PulsarSource", "build_package_zip"]

_MODULES = {
    "PulsarSource": "pulsar_fleet.messages.datasource.source",
    "build_package_zip": "pulsar_fleet.verification.job",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
