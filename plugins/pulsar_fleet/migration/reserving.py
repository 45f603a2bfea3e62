"""Keep on green what an idle subscription will need: without it, green removes what nobody there has left to read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.standing import standings
from pulsar_fleet.reading.source_positions import Ledgers
from pulsar_fleet.records.run import Run

RESERVED = "reserved.json"


async def reserve(blue: AdminClient, green: AdminClient, topic: TopicName) -> tuple[str, ...]:
    """Create on green, at the earliest position, the idle subscriptions with a backlog that it lacks; their names.

    Call it before the first entry is replicated; the switch moves them to their places. Again creates nothing.
    """
    stats, held, there = await asyncio.gather(
        blue.stats(topic, precise=False), blue.internal_stats(topic), green.stats(topic, precise=False)
    )
    numbers = Ledgers.of(held)
    created = []
    for name, one in standings(numbers, stats, held).items():
        if one.consumers == 0 and one.unread(len(numbers)) and name not in there["subscriptions"]:
            await green.create_subscription(topic, name)
            created.append(name)
    return tuple(created)


def remember_reserved(run: Run, reserved: Mapping[TopicName, Sequence[str]]) -> None:
    """Keep what was created, beside what was before: a stop takes it back."""
    found = {topic: {*names} for topic, names in known_reserved(run).items()}
    for topic, names in reserved.items():
        found.setdefault(topic, set()).update(names)
    document = {str(topic): sorted(names) for topic, names in found.items() if names}
    run.artefacts.write_json(run.id, RESERVED, document)


def known_reserved(run: Run) -> dict[TopicName, list[str]]:
    """Partition → the subscriptions that this run created on green to keep a backlog."""
    reference = run.artefacts.find(run.id, RESERVED)
    document = run.artefacts.read_json(reference) if reference else {}
    return {TopicName.parse(topic): list(names) for topic, names in document.items()}
