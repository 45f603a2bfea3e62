"""Put each subscription on green where it is on blue, so that nothing is skipped and redeliveries are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin import AdminClient, Position
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.moves import Clients
from pulsar_fleet.reading.source_positions import Ledgers, count_up_to


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a subscription continues on green.

    :param unread: entries that it will still get on green from what blue held.
    :param redelivered: entries among them that were acknowledged one by one on blue and will come again.
    """

    topic: str
    subscription: str
    unread: int
    redelivered: int

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "topic": self.topic,
            "subscription": self.subscription,
            "unread": self.unread,
            "redelivered": self.redelivered,
        }


async def place_subscriptions(
    blue: AdminClient, green: AdminClient, topic: TopicName, clients: Clients
) -> tuple[Placed, ...]:
    """Put the subscriptions of one replicated partition where they belong on green.

    One with consumers on blue starts at the end: what it has not read yet stays on blue, whose broker lets its
    consumers finish before it redirects them. One without consumers starts behind its last acknowledged entry. One
    that is on green already, where onboarding left it, would repeat everything and is made anew. Call it when writes
    are quiet, the replication backlog is 0 and nobody consumes on green.
    """
    on_blue = await blue.internal_stats(topic)
    on_green = await green.internal_stats(topic)
    ledgers = Ledgers.of(on_green)
    placed = []
    for name, consumers in clients.consumers.items():
        if name in on_green["cursors"]:
            await green.delete_subscription(topic, name)
        cursor = on_blue["cursors"].get(name)
        if consumers or cursor is None:
            await green.create_subscription(topic, name, "latest")
        else:
            placed.append(await _place_idle(blue, green, topic, name, Ledgers.of(on_blue), ledgers, cursor))
    return tuple(placed)


async def _place_idle(
    blue: AdminClient,
    green: AdminClient,
    topic: TopicName,
    name: str,
    on_blue: Ledgers,
    on_green: Ledgers,
    cursor: Mapping[str, str],
) -> Placed:
    acknowledged = Position.parse(cursor["markDeletePosition"])
    before = await count_up_to(green, topic, on_green, acknowledged)
    unread = len(on_green) - before
    wanted = on_blue.count_after(acknowledged)
    if unread != wanted:
        raise Conflict(
            f"Subscription {name!r} of {topic} has {wanted} entries behind its position on {blue.connection.name}, but "
            f"{green.connection.name} holds {unread} of them; the switch was not made. "
            "Run again when replication is done."
        )
    await green.create_subscription(topic, name, on_green.at(before) if unread else "latest")
    return Placed(str(topic), name, unread, unread - int(await _backlog(blue, topic, name)))


async def _backlog(blue: AdminClient, topic: TopicName, name: str) -> int:
    stats = await blue.stats(topic)
    return int(stats["subscriptions"][name]["msgBacklog"])
