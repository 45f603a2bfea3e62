"""The Spark data source `pulsar`: digests or messages of frozen ranges of two clusters, one Spark task per group.

Options: `clusters` (JSON: side to name, admin_url and service_url), `groups` (JSON: list of [side, list of ranges]),
`out` (`buckets` or `rows`), `buckets` (their number), `only` (JSON, with `rows`: pair number to bucket numbers).
Credentials come from the environment alone: Spark shows options in plans and logs. Both clusters are read by one scan,
because Spark starts three interpreters to plan each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_fleet.reading.environment import Side, connection_from_environment
from pulsar_fleet.reading.ranges import Range

if TYPE_CHECKING:  # planning needs neither the pulsar client nor numpy
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.reading.digests import DigestRow
    from pulsar_fleet.reading.engines import Engines

BUCKET_COLUMNS = pa.schema(
    [
        *((name, pa.int32()) for name in ("pair", "range", "bucket")),
        *((name, pa.int64()) for name in ("messages", "lane0", "lane1", "lane2", "lane3", "ordered")),
        ("problem", pa.string()),
        ("side", pa.string()),
    ]
)
ROW_COLUMNS = pa.schema(
    [
        *((name, pa.int32()) for name in ("pair", "batch", "size")),
        *((name, pa.int64()) for name in ("ledger", "entry", "publish_time", "event_time")),
        *((name, pa.string()) for name in ("digest", "key", "ordering_key", "properties", "payload", "producer")),
        ("null", pa.bool_()),
        ("side", pa.string()),
    ]
)
_ROWS_PER_BATCH = 4096
_SQL = {pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean"}


class RangeGroup(InputPartition):
    """What one task reads on one side; plain values, because Spark pickles it for another process."""

    def __init__(self, side: str, ranges: list[Any]) -> None:
        super().__init__(side)
        self.side = side
        self.ranges = ranges


class PulsarSource(DataSource):
    """`spark.read.format("pulsar")`; register it with `spark.dataSource.register(PulsarSource)`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pulsar"

    def schema(self) -> str:
        """Columns by the option `out`."""
        columns = ROW_COLUMNS if self.options.get("out") == "rows" else BUCKET_COLUMNS
        return ", ".join(f"`{column.name}` {_SQL[column.type]}" for column in columns)

    def reader(self, schema: StructType) -> PulsarReader:
        """Spark calls it by the keyword `schema`; the columns are ours alone to choose."""
        del schema
        return PulsarReader(dict(self.options))


class PulsarReader(DataSourceReader):
    """Plans the groups, and reads one of them in a Python worker."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = {key.lower(): value for key, value in options.items()}

    def partitions(self) -> Sequence[InputPartition]:
        """One per group of ranges; Spark insists on a list."""
        return [RangeGroup(side, ranges) for side, ranges in json.loads(self.options["groups"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches; digests of a range come only when all of it was read, so a retry never counts twice."""
        assert isinstance(partition, RangeGroup)
        address = json.loads(self.options["clusters"])[partition.side]
        engine = _engine(connection_from_environment(Side(partition.side), **address))
        ranges = [Range.from_json(found) for found in partition.ranges]
        rows, columns = (
            (self._messages(engine, ranges), ROW_COLUMNS)
            if self.options.get("out") == "rows"
            else (self._sums(engine, ranges), BUCKET_COLUMNS)
        )
        while chunk := [{**row, "side": partition.side} for row in islice(rows, _ROWS_PER_BATCH)]:
            yield pa.RecordBatch.from_pylist(chunk, schema=columns)

    def _sums(self, engine: Engines, ranges: Iterable[Range]) -> Iterator[dict[str, Any]]:
        from pulsar_fleet.reading.passes import sum_up

        for wanted in ranges:
            for row in sum_up(engine, wanted, int(self.options["buckets"])):
                yield _flat(row)

    def _messages(self, engine: Engines, ranges: Iterable[Range]) -> Iterator[dict[str, Any]]:
        from pulsar_fleet.reading.passes import list_messages

        only = {int(pair): frozenset(numbers) for pair, numbers in json.loads(self.options["only"]).items()}
        for wanted in ranges:
            for message in list_messages(engine, wanted, only[wanted.pair], int(self.options["buckets"])):
                yield asdict(message)


def digest_row(row: Any) -> DigestRow:
    """Read one collected row of `out=buckets`."""
    from pulsar_fleet.reading.digests import DigestRow, Sums

    sums = Sums(row["messages"], (row["lane0"], row["lane1"], row["lane2"], row["lane3"]))
    return DigestRow(row["pair"], row["range"], row["bucket"], sums, row["ordered"] % (1 << 64), row["problem"])


_engines: dict[tuple[int, ClusterConnection], Engines] = {}


def _engine(connection: ClusterConnection) -> Engines:
    """One of each kind per worker process; Spark forks its workers, and a client's threads do not survive a fork."""
    from pulsar_fleet.reading.engines import Engines

    key = (os.getpid(), connection)
    if key not in _engines:
        _engines[key] = Engines(connection)
    return _engines[key]


def _flat(row: DigestRow) -> dict[str, Any]:
    lanes = {f"lane{number}": lane for number, lane in enumerate(row.sums.lanes)}
    signed = row.order - (1 << 64) if row.order >> 63 else row.order
    numbers = {"pair": row.pair, "range": row.index, "bucket": row.bucket, "messages": row.sums.count}
    return {**numbers, **lanes, "ordered": signed, "problem": row.problem}
