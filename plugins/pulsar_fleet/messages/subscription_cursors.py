"""Cursors of subscriptions and replicators of a topic, in entry numbers (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.statistics import (
    UNKNOWN_TYPE,
    Cursor,
    SubscriptionStats,
    TopicStats,
    cursors_in_stats,
    replicator_cursor,
)
from pulsar_fleet.messages.positions import Intervals, Ledgers, unread_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCursor:
    """The cursor of a durable subscription of one non-partitioned topic or partition.

    :param mark_delete_index: number of the first entry after its mark-delete position.
    :param unread: numbers of the entries that it would still deliver.
    :param individually_acknowledged: numbers of the acknowledged entries after its mark-delete position.
    :param type: type of its consumers, as the broker remembers it: `None` after the topic was loaded again.
    :param cursor: the cursor as the broker wrote it; an equal one means that nothing was acknowledged or reset.
    """

    mark_delete_index: int
    unread: Intervals
    individually_acknowledged: Intervals
    consumers: int = 0
    type: str = UNKNOWN_TYPE
    replicated: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    cursor: Cursor

    @classmethod
    def of(cls, ledgers: Ledgers, end: int, cursor: Cursor, subscription: SubscriptionStats) -> SubscriptionCursor:
        """The cursor in entry numbers, without the entries from `end` on."""
        begin, unread = ledgers.index_after(cursor.mark_delete), unread_entries(cursor, ledgers, end)
        return cls(
            mark_delete_index=begin,
            unread=unread,
            individually_acknowledged=Intervals.of([(begin, end)]).minus(unread),
            consumers=subscription.consumers,
            type=subscription.type,
            replicated=subscription.replicated,
            properties=subscription.properties,
            cursor=cursor,
        )


def subscription_cursors(
    ledgers: Ledgers, stats: TopicStats, internal_stats: JsonObject, *, end: int | None = None
) -> dict[str, SubscriptionCursor]:
    """The durable subscriptions of applications, by name; without system cursors and readers.

    :param end: leave out the entries from this number on; None includes all entries of `ledgers`.
    """
    cursors = cursors_in_stats(internal_stats)
    return {
        name: SubscriptionCursor.of(ledgers, len(ledgers) if end is None else end, cursors[name], subscription)
        for name, subscription in stats.subscriptions.items()
        if subscription.durable and name in cursors
    }


def replicated_up_to(ledgers: Ledgers, internal_stats: JsonObject, cluster: str) -> int | None:
    """The number of first entries that `cluster` has confirmed; None without a replicator to it."""
    cursor = cursors_in_stats(internal_stats).get(replicator_cursor(cluster))
    return ledgers.index_after(cursor.mark_delete) if cursor else None
