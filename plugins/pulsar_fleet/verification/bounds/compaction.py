"""Compacted topics: the position up to which compaction ran, and the bounds of the compared values (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics import COMPACTION, cursors_in_stats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EARLIEST, TopicBounds

LAST_ENTRY = (1 << 31) - 1
"""No ledger has an entry of this number: with it a position is the end of a ledger of unknown length."""


def compacted_to(internal_stats: JsonObject) -> Position:
    """The position up to which the topic is compacted; `EARLIEST` if it never was.

    When the ledgers that were compacted are deleted, brokers move the cursor to the begin of the open ledger (observed
    on 4.2.4): what was compacted ends in a ledger before it.
    """
    cursor = cursors_in_stats(internal_stats).get(COMPACTION)
    if cursor is None:
        return EARLIEST
    at = cursor.mark_delete
    return at if at.entry >= 0 else Position(at.ledger - 1, LAST_ENTRY)


def compacted_entries(internal_stats: JsonObject) -> int:
    """Entries of the compacted ledger; 0 without one."""
    ledger: Mapping[str, int] = internal_stats.get("compactedLedger") or {}
    return max(int(ledger.get("entries") or 0), 0)


def is_compacted(internal_stats: JsonObject) -> bool:
    """Whether the topic was ever compacted."""
    return COMPACTION in cursors_in_stats(internal_stats)


def left_no_value(internal_stats: JsonObject, last: Position) -> bool:
    """Whether compaction ran up to this entry and every key up to it was deleted: nothing is delivered to a reader."""
    ledger: Mapping[str, int] = internal_stats.get("compactedLedger") or {}
    is_empty = int(ledger.get("ledgerId", -1)) >= 0 and ledger.get("entries") == 0
    return is_empty and compacted_to(internal_stats) >= last


def compacted_bounds(topic: str, internal_stats: JsonObject, last: Position | None) -> TopicBounds:
    """Bounds of a compacted topic: all its values up to an entry; empty where it has none."""
    if last is None or last.entry < 0 or left_no_value(internal_stats, last):
        return TopicBounds(topic, Ledgers(()), 0, 0)
    # Nothing counts the values up to the end of a ledger of unknown length.
    begin = last.entry if last.entry == LAST_ENTRY else 0
    return TopicBounds(topic, Ledgers(((last.ledger, last.entry + 1),)), begin, last.entry + 1)


def last_readable(internal_stats: JsonObject) -> Position | None:
    """The last entry that a reader of the compacted topic may get; the entries of its log may all be deleted."""
    ledgers = Ledgers.of(internal_stats)
    ends = [compacted_to(internal_stats), *([ledgers.at(len(ledgers) - 1)] if len(ledgers) else [])]
    last = max(ends)
    if last.entry == LAST_ENTRY and not compacted_entries(internal_stats):
        return None
    return last if last.entry >= 0 else None
