"""Which entries or messages of two topics correspond, and which of them only one cluster would deliver (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from pulsar_fleet.messages.positions import Intervals

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]

NONE = -1


class Unit(StrEnum):
    """The unit of counts."""

    ENTRIES = "entries"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a topic's entries or messages.

    :param count: their number.
    :param first: entry numbers of the first ones on source and target; None if that cluster may not have it.
    """

    count: int
    first: tuple[tuple[int | None, int | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """How two sets of unread entries differ.

    :param redelivered: unread on the target but not on the source: consumers would get them again.
    :param skipped: unread on the source but not on the target: consumers would never get them.
    :param repeated: how many of the redelivered ones are stored more often on the target than on the source.
    """

    unit: Unit
    source_unread: int = 0
    target_unread: int = 0
    redelivered: Portion = Portion(0)
    skipped: Portion = Portion(0)
    repeated: int = 0


class Correspondence(Protocol):
    """The mapping between the entries or messages of one topic on source and target."""

    def compare(self, source: Intervals, target: Intervals, *, examples: int) -> Discrepancy:
        """Compare the unread entries of one subscription, by their numbers in the frozen topics."""
        ...


@dataclass(frozen=True, slots=True)
class OneToOne:
    """By entry: number `n` of the target is number `n + shift` of the source."""

    shift: int

    def compare(self, source: Intervals, target: Intervals, *, examples: int) -> Discrepancy:
        """Compare with the target's numbers."""
        translated = source.shifted(-self.shift)
        return Discrepancy(
            unit=Unit.ENTRIES,
            source_unread=len(source),
            target_unread=len(target),
            redelivered=self._portion(target.minus(translated), examples),
            skipped=self._portion(translated.minus(target), examples),
        )

    def _portion(self, numbers: Intervals, examples: int) -> Portion:
        return Portion(len(numbers), tuple((number + self.shift, number) for number in numbers.head(examples)))


@dataclass(frozen=True, slots=True)
class Listing:
    """The last messages of a topic, in order.

    :param contents: their digests.
    :param entries: the numbers of their entries.
    """

    contents: Sequence[bytes]
    entries: Numbers


@dataclass(frozen=True, slots=True)
class ByContent:
    """By message content; the last of several equal messages corresponds to the last one on the other cluster.

    :param source: entry number of each message of the source that was read, up to the end.
    :param target: the same for the target.
    :param in_target: for each message of the source the index of its partner in `target`, or `NONE`.
    :param in_source: for each message of the target the index of its partner in `source`, or `NONE`.
    :param repeated: messages of the target without a partner, whose content is on the source too: stored twice.
    :param excluded: messages of the target that are not counted, because they never were on the source.
    """

    source: Numbers
    target: Numbers
    in_target: Numbers
    in_source: Numbers
    repeated: Flags
    excluded: Flags

    @classmethod
    def of(cls, source: Listing, target: Listing) -> Self:
        """Match the messages. Both listings reach to the same end, but may begin at different messages."""
        import numpy as np

        places = {content: place for place, content in _numbered(target.contents)}
        in_target = np.full(len(source.contents), NONE, dtype=np.int64)
        in_source = np.full(len(target.contents), NONE, dtype=np.int64)
        for place, content in _numbered(source.contents):
            if (partner := places.get(content)) is not None:
                in_target[place], in_source[partner] = partner, place
        contents = set(source.contents)
        known = np.fromiter((content in contents for content in target.contents), dtype=np.bool_)
        excluded = np.zeros(len(target.contents), dtype=np.bool_)
        return cls(source.entries, target.entries, in_target, in_source, known & (in_source == NONE), excluded)

    def only_in_target(self, unread: Intervals) -> tuple[int, ...]:
        """The entries of the target among `unread` with a message that has no partner."""
        entries = self.target[_flags(self.target, unread) & (self.in_source == NONE)]
        return tuple(dict.fromkeys(entries.tolist()))

    def without(self, entries: Iterable[int]) -> Self:
        """The same correspondence without the messages in these entries of the target."""
        import numpy as np

        return replace(self, excluded=np.isin(self.target, list(entries)))

    def compare(self, source: Intervals, target: Intervals, *, examples: int) -> Discrepancy:
        """Compare by message."""
        on_source = _flags(self.source, source)
        on_target = _flags(self.target, target) & ~self.excluded
        redelivered = on_target & ~_of_partners(on_source, self.in_source)
        skipped = on_source & ~_of_partners(on_target, self.in_target)
        return Discrepancy(
            unit=Unit.MESSAGES,
            source_unread=int(on_source.sum()),
            target_unread=int(on_target.sum()),
            redelivered=_portion(self._of_target(redelivered), int(redelivered.sum()), examples),
            skipped=_portion(self._of_source(skipped), int(skipped.sum()), examples),
            repeated=int((redelivered & self.repeated).sum()),
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
    """Each index with its content and its ordinal among equal contents from the end, which identifies it."""
    counts: Counter[bytes] = Counter()
    for place in range(len(contents) - 1, -1, -1):
        content = contents[place]
        counts[content] += 1
        yield place, (content, counts[content])


def _flags(entries: Numbers, unread: Intervals) -> Flags:
    """Flags of the messages in unread entries."""
    import numpy as np

    begins = np.array([begin for begin, _ in unread.runs], dtype=np.int64)
    ends = np.array([end for _, end in unread.runs], dtype=np.int64)
    if not len(begins):
        return np.zeros(len(entries), dtype=np.bool_)
    place = np.searchsorted(begins, entries, side="right") - 1
    return (place >= 0) & (entries < ends[place])


def _of_partners(flags: Flags, partners: Numbers) -> Flags:
    """For each message the flag of its partner; False without a partner."""
    import numpy as np

    partner_flags = np.zeros(len(partners), dtype=np.bool_)
    has = partners != NONE
    partner_flags[has] = flags[partners[has]]
    return partner_flags


def _portion(places: Iterator[tuple[int | None, int | None]], count: int, examples: int) -> Portion:
    """A portion with the first entries; messages of the same entry are one example."""
    first: dict[tuple[int | None, int | None], None] = {}
    for place in places:
        if len(first) == examples:
            break
        first[place] = None
    return Portion(count, tuple(first))
