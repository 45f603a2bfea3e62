"""Subscriptions that a run creates on green before replication begins, so that they keep their backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import subscription_cursors
from pulsar_fleet.migration.artefacts import RESERVED_SUBSCRIPTIONS


async def reserve_subscriptions(
    blue: AdminClient, green: AdminClient, topic: TopicName, *, consumed: bool = False
) -> tuple[str, ...]:
    """Create on green, at the earliest position, the idle subscriptions with a backlog that it lacks; their names.

    They keep what is replicated until their cursors are set. Call it before the first entry is replicated; a second
    call creates nothing.

    :param consumed: create all, also those with consumers: these will come without a redirect, at any time.
    """
    stats, internal, green_stats = await asyncio.gather(
        blue.stats(topic, precise=False), blue.internal_stats(topic), green.stats(topic, precise=False)
    )
    created = []
    present = TopicStats.of(topic, green_stats).subscriptions
    cursors = subscription_cursors(Ledgers.of(internal), TopicStats.of(topic, stats), internal)
    for name, cursor in cursors.items():
        if (consumed or (cursor.consumers == 0 and cursor.unread)) and name not in present:
            await green.create_subscription(topic, name)
            created.append(name)
    return tuple(created)


def store_reserved_subscriptions(run: Run, reserved: Mapping[TopicName, Sequence[str]]) -> None:
    """Add to the stored names of reserved subscriptions; an abort deletes them."""
    subscriptions = {topic: {*names} for topic, names in read_reserved_subscriptions(run).items()}
    for topic, names in reserved.items():
        subscriptions.setdefault(topic, set()).update(names)
    document = {str(topic): sorted(names) for topic, names in subscriptions.items() if names}
    run.artefacts.write_json(run.id, RESERVED_SUBSCRIPTIONS, document)


def read_reserved_subscriptions(run: Run) -> dict[TopicName, list[str]]:
    """Partition → the subscriptions that this run created on green to keep its backlog."""
    document = run.stored(RESERVED_SUBSCRIPTIONS) or {}
    return {TopicName.parse(topic): list(names) for topic, names in document.items()}
