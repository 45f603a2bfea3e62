"""What the owner's subscription lacks of the acknowledgments on a shadow topic (pure).

Entries are numbered from 0 in the source as it is now. Both subscriptions are sets of acknowledged numbers, so nothing
else has to be stored: the difference is what remains to be sent, whatever was sent before.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingPlan:
    """What is sent to the owner's subscription.

    :param position: how many first entries it is to have acknowledged; None where its position stays.
    :param individual: the entries beyond that position which are acknowledged individually.
    :param missing: all entries that it lacks.
    :param ahead: how many entries it has acknowledged that the shadow topic's has not; they stay.
    """

    position: int | None
    individual: Intervals
    missing: Intervals
    ahead: int


def plan_forwarding(shadow: Intervals, owner: Intervals, listed: Intervals) -> ForwardingPlan:
    """Compare both subscriptions.

    :param shadow: acknowledged on the shadow topic.
    :param owner: acknowledged on the source.
    :param listed: entries that the shadow topic lists: no consumer can have acknowledged another one there.
    """
    consumed = shadow.minus(shadow.minus(listed))
    missing = consumed.minus(owner)
    before, after = _first_run(owner), _first_run(owner.union(missing))
    return ForwardingPlan(
        position=after if after > before else None,
        individual=missing.minus(Intervals.of([(0, after)])),
        missing=missing,
        ahead=len(owner.minus(shadow)),
    )


def acknowledged(cursor: SubscriptionCursor) -> Intervals:
    """All entries that a subscription has acknowledged."""
    return Intervals.of([(0, cursor.mark_delete_index), *cursor.individually_acknowledged.runs])


def listed_entries(source: Ledgers, shadow: Ledgers) -> Intervals:
    """The entries of the source that its shadow topic lists too.

    A shadow topic learns of the end of a ledger later than its source; a position that passes such entries says
    nothing about them.
    """
    return Intervals.of(
        (source.index_after(Position(ledger, -1)), source.index_after(Position(ledger, entries - 1)))
        for ledger, entries in shadow.runs
    )


def _first_run(numbers: Intervals) -> int:
    """How many first entries are in the set without a gap."""
    return numbers.runs[0][1] if numbers.runs and numbers.runs[0][0] == 0 else 0
