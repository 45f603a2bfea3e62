"""Which disturbances are dealt to migrations, at which tasks, and which of them hit a run that was going on (pure)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import cycle, islice

PER_ROUND = 4
TASKS = (
    "check_gates",
    "prepare_green",
    "recheck_gates",
    "freeze_blue",
    "start_replication",
    "wait_replicated",
    "verify_copy",
    "cut_over",
    "verify_subscriptions",
    "wait_drained",
    "verify_messages",
    "clean_up_blue",
    "restore_blue",
)
"""Tasks at which runs are disturbed, in the order of the DAG."""
# It is the task that must not be disturbed, and it is dealt twice as often as another.
WEIGHTS = {"cut_over": 2}
CHANGING = TASKS.index("start_replication")
"""From here on a run that is given up has changed something on blue."""


class Kind(StrEnum):
    """What happens to a run."""

    TASK_KILLED = "task killed"
    SCHEDULER_KILLED = "scheduler killed"
    MARKED_FAILED = "marked as failed"
    TASK_CLEARED = "task cleared"
    SECOND_RUN = "second run"
    ONBOARDING = "onboarding"


class Ending(StrEnum):
    """What follows a disturbance: the run goes on, is given up and cleaned up in one of three ways, or had finished."""

    CONTINUED = "continued"
    RESTORED = "given up, restored"
    WATCHED = "given up, watched"
    FOLLOWED = "given up, followed by another run"
    FINISHED = "in the finished run"


GIVEN_UP = (Ending.RESTORED, Ending.WATCHED, Ending.FOLLOWED)
ENDINGS = {
    Kind.MARKED_FAILED: (Ending.CONTINUED, *GIVEN_UP),
    Kind.TASK_CLEARED: (Ending.CONTINUED, Ending.FINISHED),
}
"""Of the kinds after which a run does not always go on; dealt in turn."""
# Another run needs a lease that keeps it out. A command starts for seconds, so the last tasks are over before it works.
AT = {Kind.SECOND_RUN: TASKS[2:-2], Kind.ONBOARDING: TASKS[:-2]}


@dataclass(frozen=True, slots=True)
class Card:
    """A disturbance that is dealt; only the last one of a round has another ending than `CONTINUED`."""

    kind: Kind
    ending: Ending = Ending.CONTINUED

    def __str__(self) -> str:
        return str(self.kind) if self.ending is Ending.CONTINUED else f"{self.kind}, {self.ending}"


@dataclass(frozen=True, slots=True)
class Point:
    """A card, and the task at which it is played; the task is empty where the run has finished."""

    card: Card
    task: str

    def __str__(self) -> str:
        return f"{self.card} at {self.task or 'the end'}"


def shuffled_cards(number: int, dice: random.Random) -> list[Card]:
    """As many cards of each kind, give or take one, with the endings of a kind in turn."""
    rest = dice.sample(list(Kind), number % len(Kind))
    cards: list[Card] = []
    for kind in Kind:
        endings, first = ENDINGS.get(kind, (Ending.CONTINUED,)), dice.randrange(4)
        quota = number // len(Kind) + (kind in rest)
        cards += (Card(kind, ending) for ending in islice(cycle(endings), first, first + quota))
    dice.shuffle(cards)
    return cards


def deal(cards: Iterable[Card], dice: random.Random) -> list[list[Point]]:
    """The points of each round: about `PER_ROUND`, in the order of their tasks, with at most one ending each."""
    cards = list(cards)
    last = [card for card in cards if card.ending is not Ending.CONTINUED]
    rounds: list[list[Card]] = [[] for _ in range(max(-(-len(cards) // PER_ROUND), len(last)))]
    for hand, card in zip(rounds, last, strict=False):
        hand.append(card)
    for card in cards:
        if card.ending is Ending.CONTINUED:
            min(rounds, key=len).append(card)
    dice.shuffle(rounds)
    return [_placed(hand, dice) for hand in rounds]


def _placed(cards: Sequence[Card], dice: random.Random) -> list[Point]:
    """The cards at random tasks; those before the card that gives the run up at tasks that the run reaches."""
    end = [Point(card, "") for card in cards if card.ending is Ending.FINISHED]
    end += [Point(card, _task(_given_up_at(card.ending), dice)) for card in cards if card.ending in GIVEN_UP]
    reached = TASKS[: TASKS.index(end[0].task) + 1] if end and end[0].task else TASKS
    before = [
        Point(card, _task([task for task in AT.get(card.kind, TASKS) if task in reached], dice))
        for card in cards
        if card.ending is Ending.CONTINUED
    ]
    return sorted(before, key=lambda point: TASKS.index(point.task)) + end


def _given_up_at(ending: Ending) -> Sequence[str]:
    """After the cut-over another run is refused, so the run that it follows is given up before its end."""
    return TASKS[CHANGING : TASKS.index("cut_over") + 1] if ending is Ending.FOLLOWED else TASKS[CHANGING:]


def _task(tasks: Sequence[str], dice: random.Random) -> str:
    return dice.choices(tasks, [WEIGHTS.get(task, 1) for task in tasks])[0]


@dataclass
class Hits:
    """The cards that hit a run that was going on, with the place where they hit it; the others are dealt again."""

    hits: list[tuple[Card, str]] = field(default_factory=list)
    missed: list[Card] = field(default_factory=list)

    def note(self, card: Card, place: str | None) -> None:
        """Count a card that was played; `place` is None where it missed."""
        if place is None:
            self.missed.append(card)
        else:
            self.hits.append((card, place))

    def take_missed(self) -> list[Card]:
        """The cards to deal again."""
        missed, self.missed = self.missed, []
        return missed

    def table(self) -> str:
        """A line for each kind: how often it hit a run, and where."""
        lines = [f"{'disturbance':<17} {'hits':>4}  where"]
        for kind in Kind:
            places = Counter(
                place if card.ending is Ending.CONTINUED else f"{place} ({card.ending})"
                for card, place in self.hits
                if card.kind is kind
            )
            shown = ", ".join(f"{place} {count}" for place, count in places.most_common())
            lines.append(f"{kind:<17} {places.total():>4}  {shown}")
        return "\n".join([*lines, f"{'all':<17} {len(self.hits):>4}"])
