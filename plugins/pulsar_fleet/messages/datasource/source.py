"""The Spark data source `pulsar`: messages or digests of the topics of one cluster, with bounds frozen at planning.

    spark.dataSource.register(PulsarSource)
    spark.read.format("pulsar").option("topics", "persistent://acme/orders/events")…

Options: see `options` and docs/data_source.md. Credentials come only from the environment, because Spark shows options
in plans and logs. No subscription remains on the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.messages.credentials import connection_from_environment
from pulsar_fleet.messages.datasource.columns import MESSAGE_COLUMNS, message_row, spark_schema
from pulsar_fleet.messages.datasource.options import Output, TopicOptions
from pulsar_fleet.messages.datasource.ranges_source import RangeGroup
from pulsar_fleet.messages.digest_table import DIGEST_COLUMNS as RANGE_COLUMNS
from pulsar_fleet.messages.digest_table import flat_row
from pulsar_fleet.messages.engines.base import Limits
from pulsar_fleet.messages.ranges import Range

if TYPE_CHECKING:  # planning does not need protobuf and numpy
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.messages.engines.base import Engine

DIGEST_COLUMNS = pa.schema(
    [("topic", pa.string()), *(column for column in RANGE_COLUMNS if column.name not in ("pair", "problem", "side"))]
)
_ROWS_PER_BATCH = 1024


class PulsarSource(DataSource):
    """`spark.read.format("pulsar")`; invalid options are refused before anything is read."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pulsar"

    def schema(self) -> str:
        """The columns, by the option `out`."""
        return spark_schema(
            DIGEST_COLUMNS if TopicOptions.parse(self.options).out is Output.DIGESTS else MESSAGE_COLUMNS
        )

    def reader(self, schema: StructType) -> PulsarReader:
        """The reader; Spark passes `schema` by keyword, which is ignored because the option `out` decides the
        columns.
        """
        del schema
        return PulsarReader(dict(self.options))


class PulsarReader(DataSourceReader):
    """Plans the tasks on the driver, and reads one of them in a Python worker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = TopicOptions.parse(options)

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for the ranges of each task; asks the admin API for the bounds, and freezes them."""
        from pulsar_fleet.messages.datasource.partitions import plan

        groups = asyncio.run(plan(self._connection(), self._options))
        # Spark cannot plan a scan without a partition.
        return [RangeGroup("", [entry_range.to_json() for entry_range in group]) for group in groups or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches; digests of a range come only after all of it was read, so a retry never counts twice.

        :raises FleetError: by the broker's answer; Spark runs the task up to four times.
        """
        from pulsar_fleet.messages.engines.engines import worker_engines  # planning does not need protobuf and numpy

        assert isinstance(partition, RangeGroup)
        limits = Limits(window=self._options.window, bytes_per_second=self._options.max_bytes_per_second)
        engine = limits.on(worker_engines(self._connection()))
        ranges = [Range.from_json(document) for document in partition.ranges]
        digests = self._options.out is Output.DIGESTS
        rows = self._digests(engine, ranges) if digests else self._messages(engine, ranges)
        while chunk := list(islice(rows, _ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(chunk, schema=DIGEST_COLUMNS if digests else MESSAGE_COLUMNS)

    def _connection(self) -> ClusterConnection:
        options = self._options
        return connection_from_environment(
            options.credentials, name="pulsar", admin_url=options.admin_url, service_url=options.service_url
        )

    def _messages(self, engine: Engine, ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
        for entry_range in ranges:
            # Read from the lookback on: rows that were returned cannot be taken back if a chunked message turns out to
            # begin before the range.
            for messages in engine.read(entry_range.from_lookback() if entry_range.lookback else entry_range):
                for message in messages:
                    yield message_row(message, entry_range.topic)

    def _digests(self, engine: Engine, ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
        from pulsar_fleet.messages.scan import sum_up

        for entry_range in ranges:
            for row in sum_up(engine, entry_range, self._options.buckets):
                if row.problem:
                    raise Unavailable(
                        f"{entry_range.topic} cannot be read from {entry_range.first} to {entry_range.last}: "
                        f"{row.problem}"
                    )
                columns = flat_row(row, "")
                yield {
                    "topic": entry_range.topic,
                    **{name: columns[name] for name in DIGEST_COLUMNS.names if name != "topic"},
                }
