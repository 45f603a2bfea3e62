"""Whether transferred cursors are where the cutover stated (pure)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorComparison:
    """The comparison of both clusters for one subscription of one partition.

    :param repeated: how many of the redelivered messages green stores more often than blue.
    :param by_entries: whether `redelivered` and `skipped` count entries; otherwise messages.
    :param settings: properties and other settings that differ, in words.
    :param reason: why it could not be compared, empty if it was.
    """

    redelivered: int
    skipped: int
    repeated: int = 0
    by_entries: bool = True
    settings: tuple[str, ...] = ()
    reason: str = ""


CursorKey = tuple[str, str]
"""Partition and subscription."""


def wrong_cursors(
    transferred: Collection[TransferredCursor],
    comparisons: Mapping[CursorKey, CursorComparison],
    consumed: Collection[CursorKey],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Subscriptions that do not continue as stated, in words, and those that have a consumer on green already.

    A consumer on green that has received a message makes the clusters differ, so those cannot be judged.
    """
    wrong: list[str] = []
    moved: list[str] = []
    for cursor in transferred:
        key, text = (cursor.topic, cursor.subscription), f"{cursor.subscription!r} of {cursor.topic}"
        if key in consumed:
            moved.append(text)
        else:
            wrong += (f"{text}: {difference}" for difference in _differences(cursor, comparisons.get(key)))
    return tuple(wrong), tuple(moved)


def _differences(stated: TransferredCursor, comparison: CursorComparison | None) -> Iterator[str]:
    if comparison is None:
        # Blue's broker removes a subscription without backlog within a check period of the cutover.
        if stated.unread:
            yield "it does not exist on both clusters"
        return
    if comparison.reason:
        yield comparison.reason
        return
    if comparison.skipped:
        yield f"{comparison.skipped:,} would be skipped"
    # A replicator that lost its connection sent copies again: that is no fault of the cursor.
    # In messages a stated number of entries is a lower bound: a batch has one or more.
    redelivered = comparison.redelivered - comparison.repeated
    as_stated = redelivered == stated.redelivered or (
        not comparison.by_entries and redelivered > stated.redelivered > 0
    )
    if not as_stated:
        yield f"{redelivered:,} would be redelivered, stated were {stated.redelivered:,}"
    yield from comparison.settings
