"""The Spark data source `pulsar`: messages or digests of the topics of one cluster, with bounds frozen at planning.

    spark.dataSource.register(PulsarSource)
    spark.read.format("pulsar").option("topics", "persistent://acme/orders/events")…

Options: see `topic_options` and docs/data_source.md. Credentials come from the environment alone: Spark shows options
in plans and logs. No subscription is left behind.
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
from pulsar_fleet.messages.datasource.options import Out, TopicOptions
from pulsar_fleet.messages.ranges import Range

if TYPE_CHECKING:  # planning does not need the pulsar client
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.messages.scan import Engine

DIGEST_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("range", pa.int32()),
        ("bucket", pa.int32()),
        *((name, pa.int64()) for name in ("messages", "lane0", "lane1", "lane2", "lane3", "ordered")),
    ]
)
_ROWS_PER_BATCH = 1024


class TopicRanges(InputPartition):
    """What one task reads; plain values, because Spark pickles it for another process."""

    def __init__(self, ranges: list[Any]) -> None:
        super().__init__(None)
        self.ranges = ranges


class PulsarSource(DataSource):
    """`spark.read.format("pulsar")`; options that cannot be meant are refused before anything is read."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pulsar"

    def schema(self) -> str:
        """Columns by the option `out`."""
        return spark_schema(DIGEST_COLUMNS if TopicOptions.parse(self.options).out is Out.DIGESTS else MESSAGE_COLUMNS)

    def reader(self, schema: StructType) -> PulsarReader:
        """Spark calls it by the keyword `schema`; the columns are ours alone to choose."""
        del schema
        return PulsarReader(dict(self.options))


class PulsarReader(DataSourceReader):
    """Plans the tasks on the driver, and reads one of them in a Python worker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = TopicOptions.parse(options)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task's ranges; asks the admin API, and freezes the ends."""
        from pulsar_fleet.messages.datasource.partitions import plan

        groups = asyncio.run(plan(self._connection(), self._options))
        # Spark plans no scan without a partition.
        return [TopicRanges([each.to_json() for each in group]) for group in groups] or [TopicRanges([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches; digests of a range come only when all of it was read, so a retry never counts twice.

        :raises FleetError: by what the broker said; then Spark tries the task again, and gives up after four times.
        """
        from pulsar_fleet.messages.engines.engines import worker_engines  # planning does not need the pulsar client

        assert isinstance(partition, TopicRanges)
        engine = self._limited(worker_engines(self._connection()))
        ranges = [Range.from_json(found) for found in partition.ranges]
        digests = self._options.out is Out.DIGESTS
        rows = self._digests(engine, ranges) if digests else self._messages(engine, ranges)
        while chunk := list(islice(rows, _ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(chunk, schema=DIGEST_COLUMNS if digests else MESSAGE_COLUMNS)

    def _connection(self) -> ClusterConnection:
        chosen = self._options
        return connection_from_environment(
            chosen.credentials, name="pulsar", admin_url=chosen.admin_url, service_url=chosen.service_url
        )

    def _limited(self, engine: Engine) -> Engine:
        from pulsar_fleet.messages.engines.throttle import Limits

        return Limits(window=self._options.window, bytes_per_second=self._options.max_bytes_per_second).on(engine)

    def _messages(self, engine: Engine, ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
        for wanted in ranges:
            # From where its first message may have begun: what was handed on cannot be taken back for a message in
            # chunks that turns out to have begun before.
            for messages in engine.read(wanted.reaching_back() if wanted.lookback else wanted):
                for message in messages:
                    yield message_row(message, wanted.topic)

    def _digests(self, engine: Engine, ranges: Sequence[Range]) -> Iterator[dict[str, Any]]:
        from pulsar_fleet.messages.digest_table import flat_row
        from pulsar_fleet.messages.scan import sum_up

        for wanted in ranges:
            for row in sum_up(engine, wanted, self._options.buckets):
                if row.problem:
                    raise Unavailable(
                        f"{wanted.topic} cannot be read from {wanted.first} to {wanted.last}: {row.problem}"
                    )
                found = flat_row(row, "")
                yield {"topic": wanted.topic, **{name: found[name] for name in DIGEST_COLUMNS.names if name != "topic"}}
