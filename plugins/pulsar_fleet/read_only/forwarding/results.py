"""What the owner's subscription lacks of acknowledgments, and what a pass has carried to it, and what not (pure).

Entries are numbered from 0 in the source as it is now. Both subscriptions are sets of acknowledged numbers, so nothing
else has to be stored: the difference is what remains to be sent, whatever was sent before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor


class State(StrEnum):
    """How a subscription of a shadow topic stands to that of its owner."""

    FORWARDED = "forwarded"
    """The owner's has everything that was acknowledged on the shadow topic."""
    WAITING = "waiting"
    """Entries remain; the next pass sends them."""
    REFUSED = "refused"
    """The cluster refused a call that a repetition would not help."""
    POSITION_NOT_CONFIRMED = "position-not-confirmed"
    """It was ahead of the owner's when it was first read, and no consumer need have acknowledged that."""
    OWNER_MISSING = "owner-subscription-missing"
    """The owner has no subscription of that name."""


REMEDIES = {
    State.WAITING: "the next pass sends the rest; a consumer of an exclusive subscription must disconnect for that",
    State.REFUSED: "correct what the cluster says; the next pass tries again",
    State.POSITION_NOT_CONFIRMED: (
        "it may begin at the end of the topic, or have been reset: if its consumers have acknowledged everything "
        "up to its position, name it in accept_positions; otherwise reset it to the owner's position"
    ),
    State.OWNER_MISSING: "let the owner create it, or set create_missing",
}
"""What to do where entries are not forwarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionResult(Document):
    """One subscription of one shadow topic or partition after a pass; numbers are entries.

    :param topic: the shadow topic.
    :param forwarded: acknowledged on the owner's subscription by this pass.
    :param waiting: acknowledged on the shadow topic, and not on the owner's subscription.
    :param ahead: acknowledged on the owner's subscription, and not on the shadow topic; they stay.
    :param position: mark-delete position on the shadow topic; `owner_position` that of the owner's subscription.
    :param holes: individually acknowledged on the shadow topic; `owner_holes` on the owner's subscription.
    :param reason: what prevented more; empty where nothing did.
    """

    topic: str
    subscription: str
    state: State
    forwarded: int = 0
    waiting: int = 0
    ahead: int = 0
    position: str = ""
    owner_position: str = ""
    holes: int = 0
    owner_holes: int = 0
    reason: str = ""

    @property
    def identical(self) -> bool:
        """Whether both subscriptions have acknowledged the same entries."""
        return bool(self.owner_position) and not self.waiting and not self.ahead

    def text(self) -> str:
        """One line for a log or a report."""
        cursors = (
            f"{self.position} and {counted(self.holes, 'hole')}, owner "
            f"{self.owner_position or 'none'} and {counted(self.owner_holes, 'hole')}"
        )
        parts = [f"{self.waiting:,} waiting", f"owner {self.ahead:,} ahead" if self.ahead else ""]
        numbers = ", ".join([f"{counted(self.forwarded, 'entry')} forwarded", *filter(None, parts)])
        return f"{self.topic} {self.subscription}: {self.state.value}, {numbers}; {cursors}{self._why()}"

    def _why(self) -> str:
        remedy = REMEDIES.get(self.state, "")
        return "".join(f"; {text}" for text in (self.reason, remedy) if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingResult(Document):
    """One pass, or all passes of a run.

    :param subscriptions: as the last pass left them; `forwarded` counts all passes.
    :param problems: topics that are not forwarded, and why.
    :param calls: admin calls.
    """

    cluster: str
    subscriptions: tuple[SubscriptionResult, ...]
    problems: tuple[str, ...] = ()
    passes: int = 1
    calls: int = 0
    seconds: float = 0.0

    @property
    def forwarded(self) -> int:
        """Entries that were carried to the owner."""
        return sum(result.forwarded for result in self.subscriptions)

    @property
    def waiting(self) -> int:
        """Entries that the owner lacks."""
        return sum(result.waiting for result in self.subscriptions)

    @property
    def identical(self) -> int:
        """Subscriptions that have acknowledged the same entries on both sides."""
        return sum(result.identical for result in self.subscriptions)

    def faults(self) -> list[str]:
        """What needs an operator: topics that are not forwarded, refused calls, positions that are not confirmed."""
        return [*self.problems, *self._lines(State.REFUSED), *self._lines(State.POSITION_NOT_CONFIRMED)]

    def rest(self) -> list[str]:
        """What is not forwarded, or not yet, and needs nobody."""
        return [*self._lines(State.WAITING), *self._lines(State.OWNER_MISSING)]

    @property
    def complete(self) -> bool:
        """Whether every subscription that the owner has too lacks nothing there."""
        return not self.faults() and not self.waiting

    def _lines(self, state: State) -> list[str]:
        return [result.text() for result in self.subscriptions if result.state is state]

    def headline(self) -> str:
        """The pass or run in one line."""
        topics = counted(len({result.topic for result in self.subscriptions}), "shadow topic")
        parts = [
            f"{counted(self.forwarded, 'entry')} forwarded",
            f"{self.waiting:,} not yet",
            f"{self.identical} of {counted(len(self.subscriptions), 'subscription')} on {topics} identical",
        ]
        parts += [f"{counted(len(self.problems), 'topic')} NOT FORWARDED"] if self.problems else []
        return f"{', '.join(parts)} on {self.cluster}"

    def after(self, earlier: ForwardingResult | None) -> ForwardingResult:
        """This pass, with the numbers of earlier ones added."""
        if earlier is None:
            return self
        sent = {(result.topic, result.subscription): result.forwarded for result in earlier.subscriptions}
        subscriptions = tuple(
            SubscriptionResult.from_json(
                {**result.to_json(), "forwarded": result.forwarded + sent.get((result.topic, result.subscription), 0)}
            )
            for result in self.subscriptions
        )
        return ForwardingResult(
            cluster=self.cluster,
            subscriptions=subscriptions,
            problems=self.problems,
            passes=self.passes + earlier.passes,
            calls=self.calls + earlier.calls,
            seconds=round(self.seconds + earlier.seconds, 1),
        )


def together(results: Sequence[ForwardingResult]) -> ForwardingResult:
    """The results of several namespaces of one cluster."""
    return ForwardingResult(
        cluster=results[0].cluster,
        subscriptions=tuple(row for result in results for row in result.subscriptions),
        problems=tuple(problem for result in results for problem in result.problems),
        passes=max(result.passes for result in results),
        calls=sum(result.calls for result in results),
        seconds=max(result.seconds for result in results),
    )


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
