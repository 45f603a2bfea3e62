"""Up to where subscriptions and replicators have come in a topic, in entry numbers (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.cursors import Cursor, cursors_in_stats
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.system_cursors import replicator_cursor
from pulsar_fleet.cluster.topic_statistics import UNKNOWN_TYPE, SubscriptionStats, TopicStats
from pulsar_fleet.messages.intervals import Intervals, unread_entries
from pulsar_fleet.messages.positions import Ledgers


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCursor:
    """The cursor of a durable subscription of one plain topic or partition.

    :param behind: entries up to its mark-delete position.
    :param unread: numbers of the entries that it would still deliver.
    :param alone: numbers of the entries after its mark-delete position which are acknowledged.
    :param type: of its consumers, as the broker remembers it: `None` after the topic was loaded anew.
    :param cursor: as the broker wrote it: an equal one means that nothing was acknowledged or reset.
    """

    behind: int
    unread: Intervals
    alone: Intervals
    consumers: int = 0
    type: str = UNKNOWN_TYPE
    replicated: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    cursor: Cursor

    @classmethod
    def of(cls, numbers: Ledgers, end: int, cursor: Cursor, subscription: SubscriptionStats) -> SubscriptionCursor:
        """The cursor in entry numbers; entries from `end` on are left out."""
        behind, unread = numbers.behind(cursor.mark_delete), unread_by(cursor, numbers, end)
        return cls(
            behind=behind,
            unread=unread,
            alone=Intervals.of([(behind, end)]).minus(unread),
            consumers=subscription.consumers,
            type=subscription.type,
            replicated=subscription.replicated,
            properties=subscription.properties,
            cursor=cursor,
        )


def subscription_cursors(
    numbers: Ledgers, stats: TopicStats, internal_stats: JsonObject, *, end: int | None = None
) -> dict[str, SubscriptionCursor]:
    """The durable subscriptions of applications, by name; cursors of brokers and readers are left out.

    :param end: entries from this number on are left out; by default none of `numbers`.
    """
    cursors = cursors_in_stats(internal_stats)
    return {
        name: SubscriptionCursor.of(numbers, len(numbers) if end is None else end, cursors[name], subscription)
        for name, subscription in stats.subscriptions.items()
        if subscription.durable and name in cursors
    }


def unread_by(cursor: Cursor, numbers: Ledgers, end: int) -> Intervals:
    """The entries below `end` that a cursor has not acknowledged."""
    return unread_entries(numbers, cursor.mark_delete, cursor.acknowledged, end=end)


def replicated_up_to(numbers: Ledgers, internal_stats: JsonObject, cluster: str) -> int | None:
    """How many of the first entries were sent to `cluster` and confirmed by it; None without a replicator."""
    cursor = cursors_in_stats(internal_stats).get(replicator_cursor(cluster))
    return numbers.behind(cursor.mark_delete) if cursor else None
