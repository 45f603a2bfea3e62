"""The lag of replication to green: nothing to send, or so little that it is sent while producers are throttled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.links.partition_stats import required_internal_stats, required_stats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import replicated_up_to

NEAR_SECONDS = 2.0
_RATE_SECONDS = 1.0
_FIRST_BATCH = 8


@dataclass(frozen=True, slots=True)
class Lag:
    """What replication has not sent yet.

    :param entries: unsent entries over all partitions.
    :param unlinked: partitions without a connected replicator: no backlog is reported for them.
    """

    entries: int
    unlinked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicationRate:
    """The replication of one partition between two readings.

    :param unsent: entries without a copy at the second reading.
    :param per_second: entries that green confirmed in between, per second.
    """

    unsent: int
    per_second: float

    @property
    def is_near(self) -> bool:
        """Whether the unsent entries take at most `NEAR_SECONDS`, for which producers will wait.

        A limit in entries would not do: 20 entries are a tenth of a second of one topic and an hour of another.
        """
        return self.unsent <= self.per_second * NEAR_SECONDS

    @classmethod
    def between(cls, before: JsonObject, now: JsonObject, cluster: str, seconds: float) -> ReplicationRate:
        """Read two `internalStats` of a partition; without a replicator all its entries are unsent."""
        ledgers = Ledgers.of(now)
        confirmed = replicated_up_to(ledgers, now, cluster)
        if confirmed is None:
            return cls(len(ledgers), 0.0)
        sent = _confirmed(now, cluster) - _confirmed(before, cluster)
        return cls(len(ledgers) - confirmed, sent / seconds)


@dataclass(frozen=True, slots=True)
class ReplicationProgress:
    """How far replication to green has come.

    :param lagging: partitions of the last batch that need more than `NEAR_SECONDS`.
    :param unread_partitions: number of partitions that were not read, because others lag.
    """

    lag: Lag
    lagging: Mapping[TopicName, ReplicationRate] = field(default_factory=dict)
    unread_partitions: int = 0

    @property
    def is_near(self) -> bool:
        """Whether every partition has a replicator that sends its unsent entries within `NEAR_SECONDS`."""
        return not (self.lag.unlinked or self.lagging or self.unread_partitions)

    def text(self) -> str:
        """Why it is not near; empty if it is."""
        if self.lag.unlinked:
            return f"; no link yet for {self.lag.unlinked[0]}"
        if not self.lagging:
            return ""
        topic = max(self.lagging, key=lambda partition: self.lagging[partition].unsent)
        rate = self.lagging[topic]
        return f"; {topic} has {rate.unsent:,} of them and sends {rate.per_second:,.0f} per second"


def lag_of(partitions: Sequence[TopicStats], cluster: str) -> Lag:
    """The lag of replication to a cluster, by these statistics."""
    return Lag(
        entries=sum(stats.replication_backlog.get(cluster, 0) for stats in partitions),
        unlinked=tuple(str(stats.topic) for stats in partitions if not stats.replication_connected.get(cluster)),
    )


async def read_replication_progress(
    blue: AdminClient, cluster: str, partitions: Sequence[TopicName]
) -> ReplicationProgress:
    """Read these partitions in batches, in their order; a batch only when all before it are near.

    Calls: one for each topic that is read, two more where something is unsent.
    """
    waiting, number_read, lag = list(partitions), 0, Lag(0, ())
    while waiting:
        # Each batch doubles what was read: all partitions take few batches.
        batch = waiting[: max(number_read, _FIRST_BATCH)]
        waiting, number_read = waiting[len(batch) :], number_read + len(batch)
        statistics = list((await required_stats(blue, batch)).values())
        batch_lag = lag_of(statistics, cluster)
        lag = Lag(lag.entries + batch_lag.entries, batch_lag.unlinked)
        behind = [stats.topic for stats in statistics if stats.replication_backlog.get(cluster)]
        lagging = {} if lag.unlinked else await _lagging(blue, cluster, behind)
        if lag.unlinked or lagging:
            return ReplicationProgress(lag, lagging, len(waiting))
    return ReplicationProgress(lag)


async def _lagging(
    blue: AdminClient, cluster: str, partitions: Sequence[TopicName]
) -> dict[TopicName, ReplicationRate]:
    if not partitions:
        return {}
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await required_internal_stats(blue, partitions)
    await asyncio.sleep(_RATE_SECONDS)
    seconds = loop.time() - began
    now = await required_internal_stats(blue, partitions)
    rates = {topic: ReplicationRate.between(before[topic], now[topic], cluster, seconds) for topic in partitions}
    return {topic: rate for topic, rate in rates.items() if not rate.is_near}


def _confirmed(internal_stats: JsonObject, cluster: str) -> int:
    cursor = cursors_in_stats(internal_stats).get(replicator_cursor(cluster))
    return cursor.consumed if cursor else 0
