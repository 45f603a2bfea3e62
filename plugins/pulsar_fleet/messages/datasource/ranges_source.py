"""The Spark data source `pulsar-ranges`: digests or messages of frozen ranges of two clusters, a task for each group.

Options: `clusters` (JSON: side to name, admin_url and service_url), `groups` (JSON: array of [side, array of ranges]),
`out` (`buckets` or `rows`), `buckets` (number of buckets), `only` (JSON, for `rows`: pair number to bucket numbers),
`limits` (JSON: the fields of `Limits`), `checkpoints` (URI of the folder for finished ranges).
Credentials come only from the environment, because Spark shows options in plans and logs. One scan reads both
clusters, because Spark starts three interpreters to plan a scan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_fleet.messages.credentials import Side, connection_from_environment
from pulsar_fleet.messages.datasource.columns import spark_schema
from pulsar_fleet.messages.digest_table import DIGEST_COLUMNS, flat_row
from pulsar_fleet.messages.engines.base import Limits
from pulsar_fleet.messages.ranges import Range

if TYPE_CHECKING:  # planning does not need protobuf and numpy
    from pulsar_fleet.messages.engines.base import Engine

ROW_COLUMNS = pa.schema(
    [
        *((name, pa.int32()) for name in ("pair", "batch", "size")),
        *((name, pa.int64()) for name in ("ledger", "entry", "publish_time", "event_time", "deliver_at")),
        *(
            (name, pa.string())
            for name in ("digest", "key", "ordering_key", "flags", "encryption", "properties", "payload", "producer")
        ),
        ("side", pa.string()),
    ]
)
_ROWS_PER_BATCH = 4096


class RangeGroup(InputPartition):
    """The ranges that one task reads on one cluster; plain values, because Spark pickles it for another process."""

    def __init__(self, side: str, ranges: list[Any]) -> None:
        super().__init__(side)
        self.side = side
        self.ranges = ranges


class RangesSource(DataSource):
    """The data source of a verification; `datasource.source` is the public one."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pulsar-ranges"

    def schema(self) -> str:
        """The columns, by the option `out`."""
        return spark_schema(ROW_COLUMNS if self.options.get("out") == "rows" else DIGEST_COLUMNS)

    def reader(self, schema: StructType) -> RangesReader:
        """The reader; Spark passes `schema` by keyword, which is ignored because the option `out` decides the
        columns.
        """
        del schema
        return RangesReader(dict(self.options))


class RangesReader(DataSourceReader):
    """Plans the groups, and reads one of them in a Python worker."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = {key.lower(): value for key, value in options.items()}

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each group of ranges; Spark requires a list."""
        return [RangeGroup(side, ranges) for side, ranges in json.loads(self.options["groups"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches; digests of a range come only after all of it was read, so a retry never counts twice."""
        from pulsar_fleet.messages.engines.engines import worker_engines  # planning does not need protobuf and numpy

        assert isinstance(partition, RangeGroup)
        side = Side(partition.side)
        address = json.loads(self.options["clusters"])[side]
        limits = Limits(**json.loads(self.options.get("limits", "{}")))
        engine = limits.on(worker_engines(connection_from_environment(side, **address)))
        ranges = [Range.from_json(document) for document in partition.ranges]
        rows, columns = (
            (self._messages(engine, side, ranges), ROW_COLUMNS)
            if self.options.get("out") == "rows"
            else (self._sums(engine, side, ranges), DIGEST_COLUMNS)
        )
        while chunk := list(islice(rows, _ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(chunk, schema=columns)

    def _sums(self, engine: Engine, side: Side, ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
        from pulsar_fleet.messages.checkpoints import Checkpoints, sum_up_ranges

        uri = self.options.get("checkpoints")
        checkpoints = Checkpoints.at(uri) if uri else None
        for row in sum_up_ranges(engine, side, ranges, int(self.options["buckets"]), checkpoints):
            yield flat_row(row, side)

    def _messages(self, engine: Engine, side: Side, ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
        from pulsar_fleet.messages.scan import list_messages

        only = {int(pair): frozenset(numbers) for pair, numbers in json.loads(self.options["only"]).items()}
        for entry_range in ranges:
            for message in list_messages(engine, entry_range, only[entry_range.pair], int(self.options["buckets"])):
                yield {**asdict(message), "side": side}
