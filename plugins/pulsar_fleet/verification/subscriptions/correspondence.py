"""Which stored things of two topics are the same, and which of them only one side would still deliver (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from pulsar_fleet.messages.intervals import Intervals

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]

NONE = -1


class Unit(StrEnum):
    """What is counted."""

    ENTRIES = "entries"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Portion:
    """Some of what a topic holds.

    :param count: how much of it.
    :param first: entry numbers of the first of it on both sides; None where that side is not known to hold it.
    """

    count: int
    first: tuple[tuple[int | None, int | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """How two sets of unread entries differ.

    :param redelivered: unread on the target although the source has it no more: its consumers would get it again.
    :param skipped: unread on the source and not on the target: its consumers would never get it there.
    """

    unit: Unit
    source_unread: int = 0
    target_unread: int = 0
    redelivered: Portion = Portion(0)
    skipped: Portion = Portion(0)


class Correspondence(Protocol):
    """Knows what of one topic is the same on both sides."""

    def compare(self, source: Intervals, target: Intervals, *, examples: int) -> Discrepancy:
        """Compare the unread entries of one subscription, numbered on each side in the frozen topic."""
        ...


@dataclass(frozen=True, slots=True)
class OneToOne:
    """Entry for entry: number `n` of the target is number `n + shift` of the source."""

    shift: int

    def compare(self, source: Intervals, target: Intervals, *, examples: int) -> Discrepancy:
        """Compare in the target's numbers."""
        translated = source.shifted(-self.shift)
        return Discrepancy(
            unit=Unit.ENTRIES,
            source_unread=len(source),
            target_unread=len(target),
            redelivered=self._portion(target.minus(translated), examples),
            skipped=self._portion(translated.minus(target), examples),
        )

    def _portion(self, found: Intervals, examples: int) -> Portion:
        return Portion(len(found), tuple((number + self.shift, number) for number in found.head(examples)))


@dataclass(frozen=True, slots=True)
class Listing:
    """The messages at the end of a topic, in order.

    :param contents: their digests.
    :param entries: the entry numbers in which they lie.
    """

    contents: Sequence[bytes]
    entries: Numbers


@dataclass(frozen=True, slots=True)
class ByContent:
    """Message for message, by what they hold; the last of equal messages belongs to the last on the other side.

    :param source: entry number of each message of the source that was read, up to the end.
    :param target: the same of the target.
    :param in_target: for each message of the source the place of its partner in `target`, or `NONE`.
    :param in_source: for each message of the target the place of its partner in `source`, or `NONE`.
    :param left_out: messages of the target that are not to be counted, because they never were on the source.
    """

    source: Numbers
    target: Numbers
    in_target: Numbers
    in_source: Numbers
    left_out: Flags

    @classmethod
    def of(cls, source: Listing, target: Listing) -> Self:
        """Find the partners. Both listings reach to the same end, but may begin where they like."""
        import numpy as np

        places = {each: place for place, each in _numbered(target.contents)}
        in_target = np.full(len(source.contents), NONE, dtype=np.int64)
        in_source = np.full(len(target.contents), NONE, dtype=np.int64)
        for place, each in _numbered(source.contents):
            if (partner := places.get(each)) is not None:
                in_target[place], in_source[partner] = partner, place
        left_out = np.zeros(len(target.contents), dtype=np.bool_)
        return cls(source.entries, target.entries, in_target, in_source, left_out)

    def alone_in_target(self, unread: Intervals) -> tuple[int, ...]:
        """Entries of the target among `unread` that hold a message without a partner."""
        alone = self.target[_flags(self.target, unread) & (self.in_source == NONE)]
        return tuple(dict.fromkeys(alone.tolist()))

    def without(self, entries: Iterable[int]) -> Self:
        """The same, with messages in these entries of the target left out."""
        import numpy as np

        return replace(self, left_out=np.isin(self.target, list(entries)))

    def compare(self, source: Intervals, target: Intervals, *, examples: int) -> Discrepancy:
        """Compare in messages."""
        on_source = _flags(self.source, source)
        on_target = _flags(self.target, target) & ~self.left_out
        again = on_target & ~_of_partners(on_source, self.in_source)
        lost = on_source & ~_of_partners(on_target, self.in_target)
        return Discrepancy(
            unit=Unit.MESSAGES,
            source_unread=int(on_source.sum()),
            target_unread=int(on_target.sum()),
            redelivered=_portion(self._of_target(again), int(again.sum()), examples),
            skipped=_portion(self._of_source(lost), int(lost.sum()), examples),
        )

    def _of_target(self, chosen: Flags) -> Iterator[tuple[int | None, int | None]]:
        for place in chosen.nonzero()[0].tolist():
            partner = int(self.in_source[place])
            yield (None if partner == NONE else int(self.source[partner])), int(self.target[place])

    def _of_source(self, chosen: Flags) -> Iterator[tuple[int | None, int | None]]:
        for place in chosen.nonzero()[0].tolist():
            partner = int(self.in_target[place])
            yield int(self.source[place]), (None if partner == NONE else int(self.target[partner]))


def _numbered(contents: Sequence[bytes]) -> Iterator[tuple[int, tuple[bytes, int]]]:
    """Each place with its content and how many equal ones follow: what is told apart on both sides alike."""
    seen: Counter[bytes] = Counter()
    for place in range(len(contents) - 1, -1, -1):
        content = contents[place]
        seen[content] += 1
        yield place, (content, seen[content])


def _flags(entries: Numbers, unread: Intervals) -> Flags:
    """Which messages lie in unread entries."""
    import numpy as np

    begins = np.array([begin for begin, _ in unread.runs], dtype=np.int64)
    ends = np.array([end for _, end in unread.runs], dtype=np.int64)
    if not len(begins):
        return np.zeros(len(entries), dtype=np.bool_)
    place = np.searchsorted(begins, entries, side="right") - 1
    return (place >= 0) & (entries < ends[place])


def _of_partners(flags: Flags, partners: Numbers) -> Flags:
    """For each message, whether its partner has the flag; one without a partner has not."""
    import numpy as np

    found = np.zeros(len(partners), dtype=np.bool_)
    has = partners != NONE
    found[has] = flags[partners[has]]
    return found


def _portion(places: Iterator[tuple[int | None, int | None]], count: int, examples: int) -> Portion:
    """Messages of one entry are named once."""
    first: dict[tuple[int | None, int | None], None] = {}
    for place in places:
        if len(first) == examples:
            break
        first[place] = None
    return Portion(count, tuple(first))
