"""Set subscriptions' cursors on green exactly: create or reset, acknowledge individually, read back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName, own_subscription_properties
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors

_VISIBLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """The position of a cursor, in green's entry numbers.

    :param mark_delete: entries up to the mark-delete position.
    :param individually_acknowledged: entries acknowledged beyond it.
    """

    mark_delete: int
    individually_acknowledged: Intervals

    def unread(self, end: int) -> Intervals:
        """The entries below `end` that it delivers."""
        return Intervals.of([(self.mark_delete, end)]).minus(self.individually_acknowledged)


@dataclass(frozen=True, slots=True)
class TargetCursor:
    """A cursor to set on green.

    :param source: blue's cursor, whose properties and replicated flag it gets.
    """

    source: SubscriptionCursor
    position: CursorPosition


@dataclass(frozen=True, slots=True)
class GreenCursors:
    """Green's partition with its cursors as they are.

    :param last: its last confirmed entry.
    """

    ledgers: Ledgers
    last: Position
    cursors: Mapping[str, SubscriptionCursor]

    @classmethod
    async def read(cls, green: AdminClient, topic: TopicName) -> GreenCursors:
        """Read them: two concurrent calls."""
        stats, internal = await asyncio.gather(green.stats(topic, precise=False), green.internal_stats(topic))
        ledgers = Ledgers.of(internal)
        return cls(
            ledgers,
            Position.parse(internal["lastConfirmedEntry"]),
            subscription_cursors(ledgers, TopicStats.of(topic, stats), internal),
        )

    def unacknowledged(self, name: str, target: CursorPosition) -> Intervals | None:
        """The entries still to be acknowledged individually; None when only a reset leads to the target."""
        if name not in self.cursors:
            return None
        current, expected = self.cursors[name].unread, target.unread(len(self.ledgers))
        surplus = current.minus(expected)
        return None if expected.minus(current) or len(surplus) > len(target.individually_acknowledged) else surplus

    def position(self, number: int) -> Position:
        """The position of an entry; one past the last is where the next entry will lie."""
        if number < len(self.ledgers):
            return self.ledgers.at(number)
        return Position(self.last.ledger, self.last.entry + 1)


async def set_cursors(
    green: AdminClient, topic: TopicName, targets: Mapping[str, TargetCursor], current: GreenCursors
) -> None:
    """Set the cursors of one partition on green to exactly these targets.

    An existing cursor is moved, never deleted: without it green would remove what no other subscription has left to
    read. A second call changes nothing and makes no call.

    :param current: green as it was read just before.
    :raises Conflict: a subscription has consumers on green, or its cursor is not at its target after 10 s.
    """
    moving = [name for name, target in targets.items() if current.unacknowledged(name, target.position) is None]
    for name in moving:
        await _move(green, topic, name, current, targets[name])
    if moving:
        current = await GreenCursors.read(green, topic)
    for name, target in targets.items():
        if surplus := current.unacknowledged(name, target.position):
            positions = [current.ledgers.at(number) for number in surplus]
            await asyncio.to_thread(acknowledge, green.connection, topic, name, positions)
    current = await _confirmed(green, topic, current, targets)
    for name, target in targets.items():
        await _set_properties(green, topic, name, current.cursors[name], target.source, moved=name in moving)


def acknowledge(connection: ClusterConnection, topic: TopicName, name: str, positions: list[Position]) -> None:
    """Acknowledge exactly these entries individually, with an exclusive consumer that receives no message.

    The broker confirms no acknowledgment, so read the cursor back.

    :raises Unavailable: it could not subscribe, for example because the subscription has a consumer.
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
            consumer_name="cursor-transfer",
        )
        for position in positions:
            consumer.acknowledge(pulsar.MessageId(-1, position.ledger, position.entry, -1))
        consumer.close()
    except pulsar.PulsarException as error:
        raise Unavailable(
            f"The cursor of subscription {name!r} of {topic} cannot be set on {connection.name}: {error}."
        ) from error
    finally:
        client.close()


async def _move(green: AdminClient, topic: TopicName, name: str, current: GreenCursors, target: TargetCursor) -> None:
    position = current.position(target.position.mark_delete)
    body: JsonObject = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1}
    path, cursor = topic.subscription_path(name), current.cursors.get(name)
    if cursor is None:
        await green.put(path, {**body, "properties": dict(target.source.properties)})
        return
    if cursor.consumers:
        raise Conflict(
            f"Subscription {name!r} of {topic} already has {cursor.consumers} consumers on {green.connection.name}, "
            "so its cursor cannot be set; the cutover was not made. Stop them, then run again."
        )
    await green.post(f"{path}/resetcursor", {**body, "isExcluded": False})


async def _set_properties(
    green: AdminClient,
    topic: TopicName,
    name: str,
    cursor: SubscriptionCursor,
    source: SubscriptionCursor,
    *,
    moved: bool,
) -> None:
    path = topic.subscription_path(name)
    if dict(cursor.properties) != dict(source.properties):
        await green.put(f"{path}/properties", dict(source.properties))
        if own_subscription_properties(await green.get(f"{path}/properties")) != dict(source.properties):
            raise Conflict(
                f"The properties of subscription {name!r} of {topic} are not those that were set on "
                f"{green.connection.name}; the cutover was not made. Run again."
            )
    # A reset removes the flag from the stored cursor, while statistics show it until the topic is unloaded.
    if cursor.replicated != source.replicated or (moved and source.replicated):
        await green.post(f"{path}/replicatedSubscriptionStatus", source.replicated)


async def _confirmed(
    green: AdminClient, topic: TopicName, current: GreenCursors, targets: Mapping[str, TargetCursor]
) -> GreenCursors:
    loop = asyncio.get_running_loop()
    end = loop.time() + _VISIBLE_SECONDS
    while astray := [
        name for name, target in targets.items() if current.unacknowledged(name, target.position) != Intervals()
    ]:
        if loop.time() > end:
            raise Conflict(
                f"The cursor of subscription {astray[0]!r} of {topic} is not where it was set on "
                f"{green.connection.name} after {_VISIBLE_SECONDS:.0f} s; the cutover was not made. Run again."
            )
        await asyncio.sleep(0.1)
        current = await GreenCursors.read(green, topic)
    return current
