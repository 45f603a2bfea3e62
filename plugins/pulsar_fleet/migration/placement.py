"""Put each subscription on green where it is on blue, so that nothing is skipped and redeliveries are known."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin import AdminClient, Position
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.resources import by_name
from pulsar_fleet.migration.moves import Clients
from pulsar_fleet.reading.source_positions import Ledgers, count_up_to

COPIED_SECONDS = 5.0


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
    there = by_name((await green.internal_stats(topic))["cursors"])
    cursors = by_name(on_blue["cursors"])
    placed = []
    for name, consumers in clients.consumers.items():
        if name in there:
            await green.delete_subscription(topic, name)
        if consumers:
            await green.create_subscription(topic, name, "latest")
        elif name in cursors:
            placed.append(await _place_idle(green, topic, name, Ledgers.of(on_blue), cursors[name]))
        else:
            raise Conflict(
                f"Subscription {name!r} of {topic} has no consumer and no position on blue: it was removed meanwhile. "
                "The switch was not made; run again."
            )
    return tuple(placed)


async def _place_idle(
    green: AdminClient, topic: TopicName, name: str, on_blue: Ledgers, cursor: Mapping[str, str]
) -> Placed:
    acknowledged = Position.parse(cursor["markDeletePosition"])
    unread = on_blue.count_after(acknowledged)
    on_green, before = await _copied(green, topic, name, on_blue, acknowledged)
    await green.create_subscription(topic, name, on_green.at(before) if before < len(on_green) else "latest")
    return Placed(str(topic), name, unread, acknowledged_alone(cursor["individuallyDeletedMessages"], on_blue))


async def _copied(
    green: AdminClient, topic: TopicName, name: str, on_blue: Ledgers, acknowledged: Position
) -> tuple[Ledgers, int]:
    """Green's entries, and how many of them the subscription has behind it; waits until all of blue's are there.

    Writers are throttled, not stopped: entries that came after blue was looked at are left out of the count.
    """
    wanted = on_blue.count_after(acknowledged)
    loop = asyncio.get_running_loop()
    end = loop.time() + COPIED_SECONDS
    while True:
        on_green = Ledgers.of(await green.internal_stats(topic))
        before = await count_up_to(green, topic, on_green, acknowledged)
        last = on_blue.at(len(on_blue) - 1) if len(on_blue) else acknowledged
        copied = await count_up_to(green, topic, on_green, last) - before
        if copied == wanted:
            return on_green, before
        if loop.time() > end:
            raise Conflict(
                f"Subscription {name!r} of {topic} has {wanted} entries behind its position on blue, but "
                f"{green.connection.name} holds {copied} of them; the switch was not made. Look at the replication of "
                "that topic, then run again."
            )
        await asyncio.sleep(0.1)


def acknowledged_alone(ranges: str, ledgers: Ledgers) -> int:
    """Entries that were acknowledged one by one behind a cursor's position: `[(18:3..18:5],(18:9..18:10]]`."""
    found = re.findall(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]", ranges)
    return sum(
        ledgers.count_after(Position(int(low), int(before))) - ledgers.count_after(Position(int(high), int(last)))
        for low, before, high, last in found
    )
