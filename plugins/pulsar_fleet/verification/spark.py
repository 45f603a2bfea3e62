"""The comparison in Spark: digests come as a few rows per range, messages only from buckets that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pulsar_fleet.reading.digests import DigestRow
from pulsar_fleet.reading.environment import Side, present_credentials
from pulsar_fleet.reading.passes import Sighting
from pulsar_fleet.reading.source import PulsarSource, digest_row
from pulsar_fleet.verification.differences import Mismatch
from pulsar_fleet.verification.judge import NAMED_PER_KIND, Mismatches, Only
from pulsar_fleet.verification.request import VerifyRequest


def open_session(application: str) -> SparkSession:
    """A session with our data source; executors elsewhere get this process' credentials in their environment."""
    builder = SparkSession.builder.appName(application)
    for name, value in present_credentials().items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = builder.getOrCreate()
    session.dataSource.register(PulsarSource)
    return session


class InSpark:
    """Reads with the tasks of a Spark session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int] | None = None) -> Mapping[Side, Sequence[DigestRow]]:
        """Digest rows of all pairs, or of those with the numbers `pairs`, per side."""
        found: dict[Side, list[DigestRow]] = {side: [] for side in Side}
        for row in self._load(request, pairs, out="buckets").collect():
            found[Side(row["side"])].append(digest_row(row))
        return found

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Signed multiset of the messages in the differing buckets, by content."""
        unequal = self._unequal(request, only).persist()
        missing = F.sum(F.greatest(F.lit(0), F.col("in_source") - F.col("in_target")))
        extra = F.sum(F.greatest(F.lit(0), F.col("in_target") - F.col("in_source")))
        totals = unequal.groupBy("pair").agg(missing.alias("missing"), extra.alias("extra")).collect()
        places = [F.coalesce(f"at_source.{part}", f"at_target.{part}") for part in ("ledger", "entry", "batch")]
        by_place = Window.partitionBy("pair", F.col("in_source") > F.col("in_target")).orderBy(*places)
        first = unequal.withColumn("rank", F.row_number().over(by_place)).where(F.col("rank") <= NAMED_PER_KIND)
        named: dict[int, list[Mismatch]] = {row["pair"]: [] for row in totals}
        for row in first.collect():
            named[row["pair"]].append(_mismatch(row))
        unequal.unpersist()
        return {row["pair"]: Mismatches(row["missing"], row["extra"], named[row["pair"]]) for row in totals}

    def _unequal(self, request: VerifyRequest, only: Only) -> DataFrame:
        listed = {str(pair): sorted(buckets) for pair, buckets in only.items()}
        lies = F.struct("ledger", "entry", "batch", *_OTHER_FIELDS)
        in_source, in_target = (F.col("side") == side.value for side in Side)
        return (
            self._load(request, sorted(only), out="rows", only=json.dumps(listed))
            .groupBy("pair", "digest")
            .agg(
                F.count_if(in_source).alias("in_source"),
                F.count_if(in_target).alias("in_target"),
                F.max(F.when(in_source, lies)).alias("at_source"),
                F.max(F.when(in_target, lies)).alias("at_target"),
            )
            .where(F.col("in_source") != F.col("in_target"))
        )

    def _load(self, request: VerifyRequest, pairs: Sequence[int] | None, **options: str) -> DataFrame:
        groups = [
            [side.value, [each.to_json() for each in group]] for side in Side for group in request.groups(side, pairs)
        ]
        clusters = {side.value: asdict(request.address(side)) for side in Side}
        return (
            self._session.read.format(PulsarSource.name())
            .options(clusters=json.dumps(clusters), groups=json.dumps(groups), buckets=request.buckets, **options)
            .load()
        )


_OTHER_FIELDS = [name for name in Sighting.__slots__ if name not in ("pair", "digest", "ledger", "entry", "batch")]


def _mismatch(row: Any) -> Mismatch:
    return Mismatch(
        row["pair"], row["in_source"], row["in_target"], _sighting(row, "at_source"), _sighting(row, "at_target")
    )


def _sighting(row: Any, side: str) -> Sighting | None:
    found = row[side]
    return Sighting(pair=row["pair"], digest=row["digest"], **found.asDict()) if found else None
