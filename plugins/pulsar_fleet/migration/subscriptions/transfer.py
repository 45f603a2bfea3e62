"""Put each subscription on green where it is on blue, so that nothing is skipped and redeliveries are known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, replicated_up_to, subscription_cursors
from pulsar_fleet.migration.model import Clients
from pulsar_fleet.migration.subscriptions.checkpoint import Placed, PlacedTopic
from pulsar_fleet.migration.subscriptions.cursors import Singles, carries
from pulsar_fleet.migration.subscriptions.position_map import Copies
from pulsar_fleet.migration.subscriptions.set_cursors import Place, Seats, Wanted, seat

COPIED_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Look:
    """One partition on both sides at a time, blue's copies up to `replicated` being on green.

    :param linked: its replicator is connected. Without one nothing is missing from an empty partition, and yet nothing
        that is written now would come.
    """

    blue: Ledgers
    green: Seats
    subscriptions: Mapping[str, SubscriptionCursor]
    replicated: int
    linked: bool

    @property
    def is_copied(self) -> bool:
        """Green has everything, and gets what comes."""
        return self.linked and self.replicated >= len(self.blue)


class Placement:
    """Places the subscriptions of replicated partitions; what is in place already is left as it is.

    A subscription with consumers starts at the end: what it has not read yet stays on blue, whose broker lets its
    consumers finish before it redirects them. One without consumers starts behind its last acknowledged entry; it does
    not move, so most of the work can be done `early`, while writers write.
    """

    def __init__(self, blue: AdminClient, green: AdminClient, *, singles: Singles = Singles.CARRY) -> None:
        self._blue = blue
        self._green = green
        self._singles = singles
        self._known: dict[tuple[TopicName, str], tuple[SubscriptionCursor, Place]] = {}

    async def early(self, topic: TopicName, clients: Clients) -> None:
        """Place the subscriptions without consumers whose entries are on green already; the rest is `place`'s."""
        look = await self._look(topic)
        wanted = {
            name: await self._idle(topic, name, cursor, look)
            for name, cursor in look.subscriptions.items()
            if not _is_consumed(name, cursor, clients) and _needs(cursor) <= look.replicated
        }
        await seat(self._green, topic, wanted, look.green)

    async def place(self, topic: TopicName, clients: Clients) -> PlacedTopic:
        """Place every subscription of one partition. Writes must be quiet, and nobody may consume on green.

        :param clients: who was connected to blue when that was counted.
        :raises Conflict: green lacks entries, somebody consumes on green, or a consumer has come to blue. The switch
            was not made; run again.
        """
        look = await self._copied(topic)
        idle = {name: one for name, one in look.subscriptions.items() if not _is_consumed(name, one, clients)}
        wanted = {name: await self._idle(topic, name, cursor, look) for name, cursor in idle.items()}
        if consumed := look.subscriptions.keys() - idle.keys():
            end = Place(await self._copies(topic, look).before(len(look.blue)), Intervals())
            for name in sorted(consumed):
                self._refuse_newcomers(topic, name, look.subscriptions[name], clients)
                wanted[name] = Wanted(look.subscriptions[name], end)
        await seat(self._green, topic, wanted, look.green)
        placed = tuple(self._placed(topic, name, cursor) for name, cursor in idle.items())
        return PlacedTopic(placed, look.blue.at(len(look.blue) - 1) if len(look.blue) else None)

    async def _idle(self, topic: TopicName, name: str, cursor: SubscriptionCursor, look: _Look) -> Wanted:
        known = self._known.get((topic, name))
        if known is None or known[0].cursor != cursor.cursor:
            known = self._known[topic, name] = (cursor, await self._find(topic, name, cursor, look))
        return Wanted(cursor, known[1])

    def _placed(self, topic: TopicName, name: str, cursor: SubscriptionCursor) -> Placed:
        carried = carries(self._singles, cursor)
        return Placed(
            topic=str(topic),
            subscription=name,
            unread=len(cursor.unread) + (0 if carried else len(cursor.alone)),
            carried=len(cursor.alone) if carried else 0,
            redelivered=0 if carried else len(cursor.alone),
        )

    async def _find(self, topic: TopicName, name: str, cursor: SubscriptionCursor, look: _Look) -> Place:
        copies = self._copies(topic, look)
        before = await copies.before(cursor.behind)
        copied = await copies.before(look.replicated) - before
        wanted = look.replicated - cursor.behind
        # Snapshots of replicated subscriptions are entries of one side only: their copies cannot be counted.
        if copied != wanted and not any(each.replicated for each in look.subscriptions.values()):
            raise Conflict(
                f"Subscription {name!r} of {topic} has {wanted} entries behind its position on blue, but "
                f"{self._green.connection.name} holds {copied} of them; the switch was not made. Look at the "
                "replication of that topic, then run again."
            )
        return Place(before, await copies.of(cursor.alone) if carries(self._singles, cursor) else Intervals())

    def _refuse_newcomers(self, topic: TopicName, name: str, cursor: SubscriptionCursor, clients: Clients) -> None:
        if cursor.consumers and not clients.consumers.get(name):
            raise Conflict(
                f"A consumer of subscription {name!r} of {topic} came to {self._blue.connection.name} in the moment of "
                "the switch, which was not made; run again."
            )

    def _copies(self, topic: TopicName, look: _Look) -> Copies:
        return Copies(self._green, topic, look.blue, look.green.numbers)

    async def _copied(self, topic: TopicName) -> _Look:
        """A look at which all of blue's entries are on green. Writers are throttled, not stopped: it may take a few."""
        loop = asyncio.get_running_loop()
        end = loop.time() + COPIED_SECONDS
        while not (look := await self._look(topic)).is_copied:
            if loop.time() > end:
                link = "connected" if look.linked else "not connected"
                raise Conflict(
                    f"{len(look.blue) - look.replicated} entries of {topic} are not on {self._green.connection.name} "
                    f"after {COPIED_SECONDS:.0f} s of quiet, its replicator is {link}; the switch was not made. "
                    "Look at the replication in the stats of that topic, then run again."
                )
            await asyncio.sleep(0.1)
        return look

    async def _look(self, topic: TopicName) -> _Look:
        # Blue first: what it says was confirmed by green is in what green says afterwards.
        stats, held = await asyncio.gather(self._blue.stats(topic, precise=False), self._blue.internal_stats(topic))
        here = TopicStats.of(topic, stats)
        blue, cluster = Ledgers.of(held), await self._green.cluster_name()
        return _Look(
            blue=blue,
            green=await Seats.of(self._green, topic),
            subscriptions=subscription_cursors(blue, here, held),
            replicated=replicated_up_to(blue, held, cluster) or 0,
            linked=here.replication_connected.get(cluster, False),
        )


def _is_consumed(name: str, cursor: SubscriptionCursor, clients: Clients) -> bool:
    return bool(cursor.consumers or clients.consumers.get(name))


def _needs(cursor: SubscriptionCursor) -> int:
    """How many of blue's entries have to be on green before it can be placed."""
    return (cursor.alone.last or 0) + 1 if cursor.alone else cursor.behind
