"""Make subscriptions on green stand at their places, exactly: created or reset, acknowledged one by one, read back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors

_VISIBLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subscription has to stand, in green's entry numbers.

    :param behind: entries that it has behind it.
    :param alone: entries after that which are acknowledged.
    """

    behind: int
    alone: Intervals

    def unread(self, end: int) -> Intervals:
        """The entries below `end` that it delivers."""
        return Intervals.of([(self.behind, end)]).minus(self.alone)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription as it has to be on green.

    :param like: blue's, whose properties and replicated flag it gets.
    """

    like: SubscriptionCursor
    place: Place


@dataclass(frozen=True, slots=True)
class Seats:
    """Green's partition with its subscriptions as they are.

    :param last: its last confirmed entry.
    """

    numbers: Ledgers
    last: Position
    cursors: Mapping[str, SubscriptionCursor]

    @classmethod
    async def of(cls, green: AdminClient, topic: TopicName) -> Seats:
        """Look at it: two calls at once."""
        stats, held = await asyncio.gather(green.stats(topic, precise=False), green.internal_stats(topic))
        numbers = Ledgers.of(held)
        return cls(
            numbers,
            Position.parse(held["lastConfirmedEntry"]),
            subscription_cursors(numbers, TopicStats.of(topic, stats), held),
        )

    def missing(self, name: str, place: Place) -> Intervals | None:
        """What is still to be acknowledged one by one; None when only a reset brings it there."""
        if name not in self.cursors:
            return None
        now, wanted = self.cursors[name].unread, place.unread(len(self.numbers))
        found = now.minus(wanted)
        return None if wanted.minus(now) or len(found) > len(place.alone) else found

    def at(self, number: int) -> Position:
        """The entry of that number; one past the last is where the next one will lie."""
        if number < len(self.numbers):
            return self.numbers.at(number)
        return Position(self.last.ledger, self.last.entry + 1)


async def seat(green: AdminClient, topic: TopicName, wanted: Mapping[str, Wanted], now: Seats) -> None:
    """Make green's subscriptions of one partition stand at exactly these places.

    One that exists is moved, never deleted: without it green would remove what nobody else has left to read. Again
    changes nothing, without a call.

    :param now: green as it was seen just before.
    :raises Conflict: somebody consumes one on green, or one does not stand there after 10 s.
    """
    moving = [name for name, one in wanted.items() if now.missing(name, one.place) is None]
    for name in moving:
        await _move(green, topic, name, now, wanted[name])
    if moving:
        now = await Seats.of(green, topic)
    for name, one in wanted.items():
        if missing := now.missing(name, one.place):
            positions = [now.numbers.at(number) for number in missing]
            await asyncio.to_thread(acknowledge, green.connection, topic, name, positions)
    now = await _confirmed(green, topic, now, wanted)
    for name, one in wanted.items():
        await _settle(green, topic, name, now.cursors[name], one.like, moved=name in moving)


def acknowledge(connection: ClusterConnection, topic: TopicName, name: str, positions: list[Position]) -> None:
    """Acknowledge exactly these entries, one after the other, by a consumer that takes no message.

    It is alone on the subscription. Read back what came of it: the broker confirms nothing.

    :raises Transient: it could not subscribe, for example because there is a consumer.
    """
    import pulsar

    from pulsar_fleet.cluster.message_client import open_client

    client = open_client(connection)
    try:
        consumer = client.subscribe(
            str(topic),
            name,
            consumer_type=pulsar.ConsumerType.Exclusive,
            receiver_queue_size=0,
            consumer_name="placing",
        )
        for position in positions:
            consumer.acknowledge(pulsar.MessageId(-1, position.ledger, position.entry, -1))
        consumer.close()
    except pulsar.PulsarException as error:
        raise Unavailable(
            f"Subscription {name!r} of {topic} cannot be placed on {connection.name}: {error}."
        ) from error
    finally:
        client.close()


async def _move(green: AdminClient, topic: TopicName, name: str, now: Seats, wanted: Wanted) -> None:
    position = now.at(wanted.place.behind)
    body: JsonObject = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1}
    path, like, cursor = topic.subscription_path(name), wanted.like, now.cursors.get(name)
    if cursor is None:
        await green.put(path, {**body, "properties": dict(like.properties)})
        return
    if cursor.consumers:
        raise Conflict(
            f"Subscription {name!r} of {topic} has {cursor.consumers} consumers on {green.connection.name} already, "
            "so it cannot be placed; the switch was not made. Stop them, then run again."
        )
    await green.post(f"{path}/resetcursor", {**body, "isExcluded": False})


async def _settle(
    green: AdminClient, topic: TopicName, name: str, found: SubscriptionCursor, like: SubscriptionCursor, *, moved: bool
) -> None:
    path = topic.subscription_path(name)
    if dict(found.properties) != dict(like.properties):
        await green.put(f"{path}/properties", dict(like.properties))
    # A reset takes the flag from what is written down, and statistics go on showing it until the topic is unloaded.
    if found.replicated != like.replicated or (moved and like.replicated):
        await green.post(f"{path}/replicatedSubscriptionStatus", like.replicated)


async def _confirmed(green: AdminClient, topic: TopicName, now: Seats, wanted: Mapping[str, Wanted]) -> Seats:
    loop = asyncio.get_running_loop()
    end = loop.time() + _VISIBLE_SECONDS
    while astray := [name for name, one in wanted.items() if now.missing(name, one.place) != Intervals()]:
        if loop.time() > end:
            raise Conflict(
                f"Subscription {astray[0]!r} of {topic} does not stand where it was placed on {green.connection.name} "
                f"after {_VISIBLE_SECONDS:.0f} s; the switch was not made. Run again."
            )
        await asyncio.sleep(0.1)
        now = await Seats.of(green, topic)
    return now
