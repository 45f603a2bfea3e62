"""Compacted topics: the position up to which compaction ran, and the bounds of the compared values (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics.cursors import cursors_in_stats
from pulsar_fleet.cluster.statistics.system_cursors import COMPACTION
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EARLIEST, TopicBounds


def compacted_to(internal_stats: JsonObject) -> Position:
    """The mark-delete position of compaction; `EARLIEST` if the topic was never compacted."""
    cursor = cursors_in_stats(internal_stats).get(COMPACTION)
    return cursor.mark_delete if cursor else EARLIEST


def is_compacted(internal_stats: JsonObject) -> bool:
    """Whether the topic was ever compacted."""
    return COMPACTION in cursors_in_stats(internal_stats)


def compacted_bounds(topic: str, last: Position | None) -> TopicBounds:
    """Bounds of a compacted topic: all its values up to an entry."""
    if last is None or last.entry < 0:
        return TopicBounds(topic, Ledgers(()), 0, 0)
    return TopicBounds(topic, Ledgers(((last.ledger, last.entry + 1),)), 0, last.entry + 1)


def last_readable(internal_stats: JsonObject) -> Position | None:
    """The last entry that a reader of the compacted topic may get; the entries of its log may all be deleted."""
    ledgers = Ledgers.of(internal_stats)
    ends = [compacted_to(internal_stats), *([ledgers.at(len(ledgers) - 1)] if len(ledgers) else [])]
    last = max(ends)
    return last if last.entry >= 0 else None
