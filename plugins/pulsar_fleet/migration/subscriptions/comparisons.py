"""What the verification of subscriptions says of transferred cursors, and which have been used on green since."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.migration.subscriptions.verify import CursorComparison, CursorKey
from pulsar_fleet.verification.subscriptions.correspondence import Unit
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerdict, SubscriptionVerification


def comparisons_of(verification: SubscriptionVerification) -> dict[CursorKey, CursorComparison]:
    """The comparison of every subscription of every partition."""
    topics = [topic for namespace in verification.namespaces for topic in namespace.topics]
    clusters = verification.source, verification.target
    return {
        (topic.topic, result.subscription): _compared(result, *clusters)
        for topic in topics
        for result in topic.subscriptions
    }


def _compared(subscription: SubscriptionVerdict, source: str, target: str) -> CursorComparison:
    return CursorComparison(
        redelivered=subscription.redelivered,
        skipped=subscription.skipped,
        repeated=subscription.repeated,
        by_entries=subscription.unit is Unit.ENTRIES,
        settings=tuple(
            f"{name} is {on_source} on {source} and {on_target} on {target}"
            for name, on_source, on_target in subscription.settings
        ),
        reason=subscription.reason,
    )


async def consumed_on(green: AdminClient, names: list[CursorKey]) -> set[CursorKey]:
    """Subscriptions that have a consumer on green, or had a consumer since the topic was loaded."""
    topics = sorted({topic for topic, _ in names})
    documents = await asyncio.gather(*(green.stats(TopicName.parse(topic), precise=False) for topic in topics))
    stats = {
        topic: TopicStats.of(TopicName.parse(topic), document)
        for topic, document in zip(topics, documents, strict=True)
    }
    return {
        (topic, name)
        for topic, name in names
        if (subscription := stats[topic].subscriptions.get(name)) and (subscription.consumers or subscription.delivered)
    }
