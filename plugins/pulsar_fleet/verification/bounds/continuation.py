"""The part of a topic behind an earlier proof, which a new proof continues: where it begins on both clusters (pure)."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.ranges import TopicBounds


class Unprovable(Exception):
    """The topic cannot be compared; the message says why."""


def source_after(earlier: JsonObject, whole: TopicBounds, name: str) -> tuple[TopicBounds, tuple[str, ...]]:
    """The entries of the source behind an earlier proof, and a note on what that proved.

    :param earlier: as `Pair.earlier`.
    :param name: of the source's cluster.
    """
    end = Position.parse(earlier["ends"]["source"])
    if end.ledger not in dict(whole.ledgers.runs):
        raise Unprovable(
            f"the proof of run {earlier['run']} ends at {end} of {name}, whose ledger was removed since: "
            "later messages may be deleted that were never compared; verify it with mode 'full'"
        )
    proven = earlier["proof"]["source"]["messages"]
    note = f"continues run {earlier['run']}, which proved {proven:,} messages up to {end}"
    return replace(whole, begin=whole.ledgers.index_after(end)), (note,)


def target_after(earlier: JsonObject, target: TopicBounds, name: str) -> TopicBounds:
    """The entries of the target behind an earlier proof, where producers wrote both topics."""
    end = Position.parse(earlier["ends"]["target"])
    if end.ledger not in dict(target.ledgers.runs):
        raise Unprovable(
            f"the proof of run {earlier['run']} ends at {end} of {name}, whose ledger was removed since; "
            "verify it with mode 'full'"
        )
    return replace(target, begin=target.ledgers.index_after(end))


def require_beginning(earlier: JsonObject, target: TopicBounds, name: str) -> None:
    """`Unprovable` unless a target that removes nothing still has the first entry of an earlier proof."""
    begin = Position.parse(earlier["bounds"]["target"].partition("–")[0])
    if begin.ledger not in dict(target.ledgers.runs):
        raise Unprovable(
            f"{name} has removed entries from {begin} on that run {earlier['run']} proved; verify it with mode 'full'"
        )
