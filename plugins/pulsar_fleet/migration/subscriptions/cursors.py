"""Where subscriptions stand in a topic, in entry numbers, and what becomes of them at a switch (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.intervals import Intervals, unread_entries
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.snapshot.documents import by_name

CARRIED_AT_MOST = 100_000
"""Single acknowledgments that are repeated on green for one subscription of a partition, at about 20,000 a second."""

OF_BROKERS = ("pulsar.", "__compaction")
"""How subscriptions and cursors begin that no application has made."""


class Singles(StrEnum):
    """What becomes of messages that were acknowledged one by one, behind one that is not acknowledged."""

    CARRY = "carry"
    """They are acknowledged on green too."""

    REDELIVER = "redeliver"
    """They come again; their number is told before the switch and after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A durable subscription of one partition.

    :param behind: entries up to its mark-delete position.
    :param alone: numbers of the entries after that which are acknowledged.
    :param cursor: the broker's own words for both: equal ones mean that nothing was acknowledged or reset.
    """

    behind: int
    alone: Intervals
    consumers: int
    replicated: bool
    properties: Mapping[str, str]
    cursor: tuple[str, str]

    def unread(self, end: int) -> Intervals:
        """The entries below `end` that it would still deliver."""
        return Intervals.of([(self.behind, end)]).minus(self.alone)

    def carries(self, singles: Singles) -> bool:
        """Whether its single acknowledgments are repeated on green; else their entries come again."""
        return singles is Singles.CARRY and len(self.alone) <= CARRIED_AT_MOST


def standings(numbers: Ledgers, stats: JsonObject, internal_stats: JsonObject) -> dict[str, Standing]:
    """The durable subscriptions of applications, by name; cursors of brokers and readers are left out."""
    cursors = by_name(internal_stats["cursors"])
    return {
        name: _standing(numbers, found, cursors[name])
        for name, found in stats["subscriptions"].items()
        if found["isDurable"] and name in cursors and not name.startswith(OF_BROKERS)
    }


def replicated_up_to(numbers: Ledgers, internal_stats: JsonObject, cluster: str) -> int | None:
    """How many of the first entries were sent to `cluster` and confirmed by it; None without a replicator."""
    cursor = internal_stats["cursors"].get(f"pulsar.repl.{cluster}")
    return numbers.behind(Position.parse(cursor["markDeletePosition"])) if cursor else None


def _standing(numbers: Ledgers, found: JsonObject, cursor: JsonObject) -> Standing:
    mark, deleted = cursor["markDeletePosition"], cursor["individuallyDeletedMessages"]
    behind = numbers.behind(Position.parse(mark))
    unread = unread_entries(numbers, Position.parse(mark), deleted, end=len(numbers))
    return Standing(
        behind=behind,
        alone=Intervals.of([(behind, len(numbers))]).minus(unread),
        consumers=len(found.get("consumers") or ()),
        replicated=bool(found.get("isReplicated")),
        properties=dict(found.get("subscriptionProperties") or {}),
        cursor=(mark, deleted),
    )
