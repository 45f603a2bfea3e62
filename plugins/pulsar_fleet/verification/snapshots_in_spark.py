"""The comparison of snapshots in Spark: each task reads its namespaces from both sides' files, few rows come back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pulsar_fleet.change.comparison import Comparison
from pulsar_fleet.verification.snapshots import Batches, CompareRequest, Spread, compare_namespaces

if TYPE_CHECKING:
    import pyarrow as pa


def spread_over(session: SparkSession) -> Spread:
    """A task for each batch of namespaces. Both sides' files must be in reach of every worker."""

    def spread(request: CompareRequest, batches: Batches) -> Iterable[Comparison]:
        if not batches:
            return ()

        def compare_all(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for part in parts:
                numbers = part.column("id").to_pylist()
                found = [json.dumps(compare_namespaces(request, batches[number]).to_json()) for number in numbers]
                yield pa.RecordBatch.from_pydict({"id": numbers, "found": found})

        tasks = session.range(0, len(batches), 1, len(batches))
        rows = tasks.mapInArrow(compare_all, "id long, found string").collect()
        return [Comparison.from_json(json.loads(row["found"])) for row in sorted(rows, key=lambda row: int(row["id"]))]

    return spread
