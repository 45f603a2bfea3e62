"""How far replication is behind: nothing left to send, or so little that it is sent as soon as writers are held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.cursors import cursors_in_stats
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.system_cursors import replicator_cursor
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.migration.preflight.survey import survey_partitions
from pulsar_fleet.migration.stats.read import required_internal_stats

NEAR_SECONDS = 2.0
_PACE_SECONDS = 1.0
_ASKED_FIRST = 8


@dataclass(frozen=True, slots=True)
class Lag:
    """How far replication is behind.

    :param entries: unsent entries over all partitions.
    :param unlinked: partitions without a link: absence is not success.
    """

    entries: int
    unlinked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pace:
    """The replication of one partition between two looks.

    :param left: unsent entries at the second look.
    :param sent: entries that green confirmed in between, a second.
    """

    left: int
    sent: float

    @property
    def is_near(self) -> bool:
        """What is left takes no longer than `NEAR_SECONDS`: so old it is now, and so long writers will wait for it.

        A number of entries says nothing: 20 are a tenth of a second of one topic and an hour of another.
        """
        return self.left <= self.sent * NEAR_SECONDS

    @classmethod
    def between(cls, before: JsonObject, now: JsonObject, cluster: str, seconds: float) -> Pace:
        """Read two `internalStats` of a partition; without a replicator nothing of it was sent."""
        held = Ledgers.of(now)
        confirmed = replicated_up_to(held, now, cluster)
        if confirmed is None:
            return cls(len(held), 0.0)
        sent = _confirmed(now, cluster) - _confirmed(before, cluster)
        return cls(len(held) - confirmed, sent / seconds)


@dataclass(frozen=True, slots=True)
class Approach:
    """How near green has come.

    :param far: partitions that are not near, with their pace; those of the last look.
    :param unasked: how many partitions need not be asked, because others are far.
    """

    lag: Lag
    far: Mapping[TopicName, Pace] = field(default_factory=dict)
    unasked: int = 0

    @property
    def is_near(self) -> bool:
        """Every partition has a link that carries what is left at once."""
        return not (self.lag.unlinked or self.far or self.unasked)

    def text(self) -> str:
        """Why it is not near, empty if it is."""
        if self.lag.unlinked:
            return f"; no link yet for {self.lag.unlinked[0]}"
        if not self.far:
            return ""
        topic = max(self.far, key=lambda one: self.far[one].left)
        pace = self.far[topic]
        return f"; {topic} has {pace.left:,} of them, of which {pace.sent:,.0f} a second are sent"


def lag_of(partitions: Sequence[TopicStats], cluster: str) -> Lag:
    """The lag that these statistics show."""
    return Lag(
        entries=sum(facts.replication_backlog.get(cluster, 0) for facts in partitions),
        unlinked=tuple(str(facts.topic) for facts in partitions if not facts.replication_connected.get(cluster)),
    )


async def approach(blue: AdminClient, cluster: str, partitions: Sequence[TopicName]) -> Approach:
    """Look at these partitions, the first ones first, and at the others only when the first are near.

    Calls: one for each topic that is looked at, two more where something is left to send.
    """
    waiting, asked, lag = list(partitions), 0, Lag(0, ())
    while waiting:
        # Each time as many as before: all of them take few turns.
        some = waiting[: max(asked, _ASKED_FIRST)]
        waiting, asked = waiting[len(some) :], asked + len(some)
        found = await survey_partitions(blue, some)
        more = lag_of(found, cluster)
        lag = Lag(lag.entries + more.entries, more.unlinked)
        late = [facts.topic for facts in found if facts.replication_backlog.get(cluster)]
        far = {} if lag.unlinked else await _far(blue, cluster, late)
        if lag.unlinked or far:
            return Approach(lag, far, len(waiting))
    return Approach(lag)


async def _far(blue: AdminClient, cluster: str, partitions: Sequence[TopicName]) -> dict[TopicName, Pace]:
    if not partitions:
        return {}
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await required_internal_stats(blue, partitions)
    await asyncio.sleep(_PACE_SECONDS)
    seconds = loop.time() - began
    now = await required_internal_stats(blue, partitions)
    paces = {topic: Pace.between(before[topic], now[topic], cluster, seconds) for topic in partitions}
    return {topic: pace for topic, pace in paces.items() if not pace.is_near}


def _confirmed(internal_stats: JsonObject, cluster: str) -> int:
    cursor = cursors_in_stats(internal_stats).get(replicator_cursor(cluster))
    return cursor.consumed if cursor else 0
