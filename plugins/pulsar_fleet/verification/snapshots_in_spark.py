"""The comparison of snapshots in Spark: each task reads its namespaces from both sides' files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from pulsar_fleet.change.comparison import Comparison
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.records.batches_in_spark import in_tasks
from pulsar_fleet.verification.snapshots import Batches, CompareRequest, Spread, compare_namespaces


def spread_over(session: SparkSession) -> Spread:
    """A task for each batch of namespaces. Both sides' files must be in reach of every worker."""

    def spread(request: CompareRequest, batches: Batches) -> Iterable[Comparison]:
        def compare(names: Sequence[str]) -> Json:
            return compare_namespaces(request, names).to_json()

        return map(Comparison.from_json, in_tasks(session, batches, compare))

    return spread
