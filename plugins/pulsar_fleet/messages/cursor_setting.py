"""Set the cursors of subscriptions on one topic, entry by entry, as they are on another cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName, own_subscription_properties
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors

MAX_CARRIED = 100_000
"""Individual acknowledgments repeated for one subscription of a partition, at about 20,000 a second."""
_VISIBLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """The position of a cursor, in entry numbers of its topic.

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
    """A cursor to set.

    :param source: the cursor of the other cluster, whose properties and replicated flag it gets.
    """

    source: SubscriptionCursor
    position: CursorPosition


@dataclass(frozen=True, slots=True)
class PartitionCursors:
    """A partition with its cursors as they are.

    :param last: its last confirmed entry.
    """

    ledgers: Ledgers
    last: Position
    cursors: Mapping[str, SubscriptionCursor]

    @classmethod
    async def read(cls, admin: AdminClient, topic: TopicName, earlier: Ledgers | None = None) -> PartitionCursors:
        """Read them: two concurrent calls.

        :param earlier: keep its numbers: a cursor that moves lets the broker remove ledgers that all have read.
        """
        stats, internal = await asyncio.gather(admin.stats(topic, precise=False), admin.internal_stats(topic))
        ledgers = Ledgers.of(internal) if earlier is None else earlier.grown_to(Ledgers.of(internal))
        return cls(
            ledgers,
            Position.parse(internal["lastConfirmedEntry"]),
            subscription_cursors(ledgers, TopicStats.of(topic, stats), internal),
        )

    def unacknowledged(self, name: str, target: CursorPosition) -> Intervals:
        """The entries that the target has acknowledged and the cursor has not."""
        return self.cursors[name].unread.minus(target.unread(len(self.ledgers)))

    def is_beyond(self, name: str, target: CursorPosition) -> bool:
        """Whether the cursor has acknowledged what the target has not."""
        return bool(target.unread(len(self.ledgers)).minus(self.cursors[name].unread))

    def needs_reset(self, name: str, target: CursorPosition) -> bool:
        """Whether more than individual acknowledgments lead to the target, or the subscription does not exist."""
        if name not in self.cursors or self.is_beyond(name, target):
            return True
        return len(self.unacknowledged(name, target)) > len(target.individually_acknowledged)

    def position(self, number: int) -> Position:
        """The position of an entry; one past the last is where the next entry will lie."""
        if number < len(self.ledgers):
            return self.ledgers.at(number)
        return Position(self.last.ledger, self.last.entry + 1)


async def set_cursors(
    admin: AdminClient,
    topic: TopicName,
    targets: Mapping[str, TargetCursor],
    current: PartitionCursors,
    *,
    live: bool = False,
) -> None:
    """Set the cursors of one partition to exactly these targets.

    An existing cursor is moved, never deleted: without it the broker would remove what no other subscription has left
    to read. A second call changes nothing and makes no call.

    :param current: the partition as it was read just before.
    :param live: consumers acknowledge on the other cluster meanwhile, so that replicated subscriptions may move a
        cursor further.
    :raises Conflict: a subscription has consumers here, or its cursor is not at its target after 10 s.
    """
    moving = [name for name, target in targets.items() if current.needs_reset(name, target.position)]
    for name in moving:
        await _move(admin, topic, name, current, targets[name])
    if moving:
        current = await PartitionCursors.read(admin, topic, current.ledgers)
    for name, target in targets.items():
        surplus = current.unacknowledged(name, target.position) if name in current.cursors else Intervals()
        if surplus and len(surplus) <= len(target.position.individually_acknowledged):
            positions = [current.ledgers.at(number) for number in surplus]
            await asyncio.to_thread(acknowledge, admin.connection, topic, name, positions)
    current = await _confirmed(admin, topic, current, targets, live=live)
    for name, target in targets.items():
        await _set_properties(admin, topic, name, current.cursors[name], target.source, moved=name in moving)


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


async def _move(
    admin: AdminClient, topic: TopicName, name: str, current: PartitionCursors, target: TargetCursor
) -> None:
    position = current.position(target.position.mark_delete)
    body: JsonObject = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1}
    path, cursor = topic.subscription_path(name), current.cursors.get(name)
    if cursor is None:
        await admin.put(path, {**body, "properties": dict(target.source.properties)})
        return
    if cursor.consumers:
        raise Conflict(
            f"Subscription {name!r} of {topic} already has {cursor.consumers} consumers on {admin.connection.name}, "
            "so its cursor cannot be set; no client was moved. Stop them, then run again."
        )
    await admin.post(f"{path}/resetcursor", {**body, "isExcluded": False})


async def _set_properties(
    admin: AdminClient,
    topic: TopicName,
    name: str,
    cursor: SubscriptionCursor,
    source: SubscriptionCursor,
    *,
    moved: bool,
) -> None:
    path = topic.subscription_path(name)
    if dict(cursor.properties) != dict(source.properties):
        await admin.put(f"{path}/properties", dict(source.properties))
        if own_subscription_properties(await admin.get(f"{path}/properties")) != dict(source.properties):
            raise Conflict(
                f"The properties of subscription {name!r} of {topic} are not those that were set on "
                f"{admin.connection.name}; no client was moved. Run again."
            )
    # A reset removes the flag from the stored cursor, while statistics show it until the topic is unloaded.
    if cursor.replicated != source.replicated or (moved and source.replicated):
        await admin.post(f"{path}/replicatedSubscriptionStatus", source.replicated)


async def _confirmed(
    admin: AdminClient,
    topic: TopicName,
    current: PartitionCursors,
    targets: Mapping[str, TargetCursor],
    *,
    live: bool,
) -> PartitionCursors:
    loop = asyncio.get_running_loop()
    end = loop.time() + _VISIBLE_SECONDS
    while astray := [
        name
        for name, target in targets.items()
        if name not in current.cursors
        or current.unacknowledged(name, target.position)
        or (current.is_beyond(name, target.position) and not live)
    ]:
        if loop.time() > end:
            raise Conflict(
                f"The cursor of subscription {astray[0]!r} of {topic} is not where it was set on "
                f"{admin.connection.name} after {_VISIBLE_SECONDS:.0f} s; no client was moved. Run again."
            )
        await asyncio.sleep(0.1)
        current = await PartitionCursors.read(admin, topic, current.ledgers)
    return current
