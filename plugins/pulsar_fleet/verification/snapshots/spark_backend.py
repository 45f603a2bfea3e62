"""The comparison of snapshots in Spark: each task reads its namespaces from the files of both snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.comparison import Comparison
from pulsar_fleet.verification.snapshots.compare import Batches, CompareRequest, Spread, compare_namespaces

if TYPE_CHECKING:
    import pyarrow as pa


def in_tasks(session: SparkSession, batches: Sequence[Sequence[str]], work: Callable[[Sequence[str]], Json]) -> Json:
    """The results of `work` for each batch, in order. Every worker must be able to read the snapshots' files."""
    if not batches:
        return []

    def work_on(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for part in parts:
            numbers = part.column("id").to_pylist()
            results = [json.dumps(work(batches[number])) for number in numbers]
            yield pa.RecordBatch.from_pydict({"id": numbers, "result": results})

    tasks = session.range(0, len(batches), 1, len(batches))
    rows = tasks.mapInArrow(work_on, "id long, result string").collect()
    results = {int(row["id"]): json.loads(row["result"]) for row in rows}
    if len(rows) != len(batches) or results.keys() != set(range(len(batches))):
        raise Unavailable(f"Spark returned {len(rows):,} results of {len(batches):,} tasks; run this task again.")
    return [results[number] for number in range(len(batches))]


def spread_over(session: SparkSession) -> Spread:
    """A task for each batch of namespaces. Every worker must be able to read the files of both snapshots."""

    def spread(request: CompareRequest, batches: Batches) -> Iterable[Comparison]:
        def compare(names: Sequence[str]) -> Json:
            return compare_namespaces(request, names).to_json()

        return map(Comparison.from_json, in_tasks(session, batches, compare))

    return spread
