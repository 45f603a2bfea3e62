"""The Spark backend: digests come as a few rows for each range, messages only from buckets that differ."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pulsar_fleet.messages.checkpoints import Checkpoints
from pulsar_fleet.messages.credentials import Side, credentials_in_environment
from pulsar_fleet.messages.datasource.ranges_source import RangesSource
from pulsar_fleet.messages.digest_table import digest_row
from pulsar_fleet.messages.digests import DigestRow
from pulsar_fleet.messages.ranges import Range
from pulsar_fleet.messages.scan import MessageRecord
from pulsar_fleet.verification.messages.compare import NAMED_PER_KIND, Mismatches, Only
from pulsar_fleet.verification.messages.differences import Mismatch
from pulsar_fleet.verification.messages.order import MOST_DISPLACED, PlacedMessage
from pulsar_fleet.verification.request import VerifyRequest

log = logging.getLogger(__name__)

_Group = tuple[Side, list[Range]]


def open_session(application: str) -> SparkSession:
    """A session with the data source; executors on other hosts get this process' credentials in their environment."""
    builder = SparkSession.builder.appName(application)
    for name, value in credentials_in_environment().items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = builder.getOrCreate()
    session.dataSource.register(RangesSource)
    return session


class SparkBackend:
    """Reads with the tasks of a Spark session.

    :param checkpoints: where executors write finished ranges; None writes none.
    """

    def __init__(self, session: SparkSession, checkpoints: Checkpoints | None = None) -> None:
        self._session = session
        self._checkpoints = checkpoints

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Sequence[DigestRow]]:
        """The digest rows of these pairs, by side; ranges that an earlier attempt finished are not read again."""
        rows: dict[Side, list[DigestRow]] = {}
        unfinished: list[_Group] = []
        for side in Side:
            kept = self._checkpoints.load(side) if self._checkpoints else {}
            rows[side] = []
            finished = 0
            for group in request.groups(side, pairs):
                unread = [entry_range for entry_range in group if (entry_range.pair, entry_range.index) not in kept]
                rows[side] += [
                    row for entry_range in group for row in kept.get((entry_range.pair, entry_range.index), ())
                ]
                unfinished += [(side, unread)] if unread else []
                finished += len(group) - len(unread)
            if finished:
                log.info("%s: %d ranges were read by an earlier attempt, they are not read again", side, finished)
        options = {"checkpoints": self._checkpoints.uri} if self._checkpoints else {}
        for row in self._load(request, unfinished, out="buckets", **options).collect() if unfinished else ():
            rows[Side(row["side"])].append(digest_row(row))
        return rows

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """The contents in the differing buckets whose numbers differ."""
        unequal = self._unequal(request, only).persist()
        missing = F.sum(F.greatest(F.lit(0), F.col("in_source") - F.col("in_target")))
        extra = F.sum(F.greatest(F.lit(0), F.col("in_target") - F.col("in_source")))
        foreign = F.sum(F.when(F.col("in_source") == 0, F.col("in_target")).otherwise(F.lit(0)))
        counts = (missing.alias("missing"), extra.alias("extra"), foreign.alias("foreign"))
        totals = unequal.groupBy("pair").agg(*counts).collect()
        places = [F.coalesce(f"at_source.{part}", f"at_target.{part}") for part in ("ledger", "entry", "batch")]
        by_place = Window.partitionBy("pair", F.col("in_source") > F.col("in_target")).orderBy(*places)
        first = unequal.withColumn("rank", F.row_number().over(by_place)).where(F.col("rank") <= NAMED_PER_KIND)
        named: dict[int, list[Mismatch]] = {row["pair"]: [] for row in totals}
        for row in first.collect():
            named[row["pair"]].append(_mismatch(row))
        unequal.unpersist()
        return {
            row["pair"]: Mismatches(row["missing"], row["extra"], row["foreign"], named[row["pair"]]) for row in totals
        }

    def displaced(self, request: VerifyRequest, pair: int) -> Sequence[PlacedMessage]:
        """Sorts all messages of the pair, without their payloads; only displaced ones come to the driver."""
        rows = self._rows(request, {pair: frozenset(range(request.buckets))})
        fields = F.struct("ledger", "entry", "batch", *_OTHER_FIELDS)
        turn = F.row_number().over(Window.partitionBy("side", "digest").orderBy("ledger", "entry", "batch"))
        placed = rows.select("side", "pair", "digest", fields.alias("at"), turn.alias("turn"))
        source, target = (
            placed.where(F.col("side") == side.value).select("pair", "digest", "turn", F.col("at").alias(f"at_{side}"))
            for side in Side
        )
        places = {
            side.value: F.row_number().over(Window.partitionBy("pair").orderBy(f"at_{side}")) - 1 for side in Side
        }
        turned = {
            name: _turn(owner, Side.SOURCE) != _turn(owner, Side.TARGET)
            for name, owner in (("in_producer", "producer"), ("in_key", "key"))
        }
        keyed = F.col("at_source.key").isNotNull()
        both = source.join(target, ["pair", "digest", "turn"]).withColumns(places).withColumns(turned)
        both = both.withColumn("in_key", F.col("in_key") & keyed)
        moved = both.where((F.col("source") != F.col("target")) | F.col("in_producer") | F.col("in_key"))
        breaks_order = F.col("in_producer") | F.col("in_key")
        first = moved.orderBy(F.when(breaks_order, 0).otherwise(1), "source").limit(MOST_DISPLACED)
        return [_placed(row, pair) for row in first.collect()]

    def _unequal(self, request: VerifyRequest, only: Only) -> DataFrame:
        fields = F.struct("ledger", "entry", "batch", *_OTHER_FIELDS)
        in_source, in_target = (F.col("side") == side.value for side in Side)
        return (
            self._rows(request, only)
            .groupBy("pair", "digest")
            .agg(
                F.count_if(in_source).alias("in_source"),
                F.count_if(in_target).alias("in_target"),
                F.max(F.when(in_source, fields)).alias("at_source"),
                F.max(F.when(in_target, fields)).alias("at_target"),
            )
            .where(F.col("in_source") != F.col("in_target"))
        )

    def _rows(self, request: VerifyRequest, only: Only) -> DataFrame:
        listed = {str(pair): sorted(buckets) for pair, buckets in only.items()}
        groups = [(side, group) for side in Side for group in request.groups(side, sorted(only))]
        return self._load(request, groups, out="rows", only=json.dumps(listed))

    def _load(self, request: VerifyRequest, groups: Sequence[_Group], **options: str) -> DataFrame:
        clusters = {side.value: asdict(request.address(side)) for side in Side}
        readers = min(self._session.sparkContext.defaultParallelism, len(groups))
        settings = {
            "clusters": clusters,
            "groups": [[side.value, [entry_range.to_json() for entry_range in group]] for side, group in groups],
            "buckets": request.buckets,
            "limits": request.limits(readers),
        }
        as_text = {name: json.dumps(value) for name, value in settings.items()}
        return self._session.read.format(RangesSource.name()).options(**as_text, **options).load()


_OTHER_FIELDS = [name for name in MessageRecord.__slots__ if name not in ("pair", "digest", "ledger", "entry", "batch")]


def _turn(owner: str, side: Side) -> Column:
    """The ordinal of a message among the messages of its owner on one cluster."""
    return F.row_number().over(Window.partitionBy(f"at_source.{owner}").orderBy(side.value))


def _placed(row: Any, pair: int) -> PlacedMessage:
    source, target = (MessageRecord(pair=pair, digest=row["digest"], **row[f"at_{side}"].asDict()) for side in Side)
    return PlacedMessage(source, target, row["source"], row["target"], row["in_producer"], row["in_key"])


def _mismatch(row: Any) -> Mismatch:
    return Mismatch(
        row["pair"], row["in_source"], row["in_target"], _sighting(row, "at_source"), _sighting(row, "at_target")
    )


def _sighting(row: Any, side: str) -> MessageRecord | None:
    fields = row[side]
    return MessageRecord(pair=row["pair"], digest=row["digest"], **fields.asDict()) if fields else None
