"""The comparison of subscriptions on two clusters: exactly which messages would be redelivered or skipped."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.positions import Intervals, Ledgers, unread_entries
from pulsar_fleet.messages.ranges import TopicBounds, cut
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import Pair, Progress, VerifyRequest
from pulsar_fleet.verification.subscriptions.correspondence import (
    ByContent,
    Correspondence,
    Discrepancy,
    Listing,
    OneToOne,
)
from pulsar_fleet.verification.subscriptions.verdict import (
    Delivery,
    Kind,
    SubscriptionVerdict,
    TopicSubscriptions,
    evaluate_subscription,
    movement,
    type_note,
)


class DeliveryExamples:
    """Describes entries of one topic.

    :param lookups: entries of all subscriptions whose headers are read; other examples have positions only.
    """

    def __init__(
        self, topic: TopicName, ledgers: Mapping[Side, Ledgers], admins: Mapping[Side, AdminClient], lookups: int
    ) -> None:
        self._topic = topic
        self._numbers = ledgers
        self._admins = admins
        self._lookups = lookups
        self._headers: dict[tuple[Side, Position], Mapping[str, str]] = {}

    async def examples(self, discrepancy: Discrepancy) -> list[Delivery]:
        """The first redelivered and the first skipped entries."""
        return [
            await self._delivery(kind, *place)
            for kind, portion in ((Kind.REDELIVERED, discrepancy.redelivered), (Kind.SKIPPED, discrepancy.skipped))
            for place in portion.first
        ]

    async def _delivery(self, kind: Kind, source: int | None, target: int | None) -> Delivery:
        source_position = None if source is None else self._numbers[Side.SOURCE].at(source)
        target_position = None if target is None else self._numbers[Side.TARGET].at(target)
        headers = (
            await self._described(Side.SOURCE, source_position)
            if source_position
            else await self._described(Side.TARGET, target_position)
        )
        return Delivery(
            kind,
            str(source_position) if source_position else None,
            str(target_position) if target_position else None,
            headers.get("x-pulsar-partition-key"),
            headers.get("x-pulsar-publish-time"),
        )

    async def _described(self, side: Side, position: Position | None) -> Mapping[str, str]:
        if position is None:
            return {}
        if (side, position) not in self._headers and len(self._headers) < self._lookups:
            self._headers[side, position] = await self._admins[side].entry_properties(self._topic, position)
        return self._headers.get((side, position), {})


async def read_subscriptions(
    admin: AdminClient, topic: TopicName, ledgers: Ledgers, *, end: int
) -> dict[str, SubscriptionCursor]:
    """Every durable subscription of applications, by name, without system cursors and readers. **Loads the topic.**

    :param end: leave out the entries from this number on, which came after the bounds were frozen.
    :raises FleetError: the broker does not answer, or its answer has an unknown form.
    """
    stats, internal_stats = await asyncio.gather(admin.stats(topic, precise=False), admin.internal_stats(topic))
    return subscription_cursors(ledgers, TopicStats.of(topic, stats), internal_stats, end=end)


async def read_unread(admin: AdminClient, topic: TopicName, ledgers: Ledgers, *, end: int) -> Mapping[str, Intervals]:
    """The unread entries of every cursor, by the subscription's name, including system cursors."""
    cursors = cursors_in_stats(await admin.internal_stats(topic))
    return {name: unread_entries(cursor, ledgers, end) for name, cursor in cursors.items()}


TOPICS_AT_ONCE = 8
Cursors = Mapping[Side, Mapping[str, SubscriptionCursor]]


async def compare_pairs(
    source: AdminClient, target: AdminClient, request: VerifyRequest, progress: Progress | None = None
) -> list[TopicSubscriptions]:
    """Compare every pair of the request between its frozen bounds; six calls for a topic, more with unread entries.

    Consumes nothing and changes no subscription. A pair that cannot be compared is inconclusive, with a reason.

    :param progress: takes the number of finished topics and their total.
    """
    # Imports protobuf and numpy, which planning does not need.
    from pulsar_fleet.messages.engines.engines import Engines

    with ExitStack() as stack:
        engines = {
            Side.SOURCE: stack.enter_context(Engines(source.connection)),
            Side.TARGET: stack.enter_context(Engines(target.connection)),
        }
        comparer = SubscriptionComparer(source, target, engines, request)
        slots = asyncio.Semaphore(TOPICS_AT_ONCE)
        pairs, done = request.logs, 0
        if progress:
            progress(0, len(pairs))

        async def compare(pair: Pair) -> TopicSubscriptions:
            nonlocal done
            async with slots:
                topic_verdicts = await comparer.compare(pair)
            done += 1
            if progress:
                progress(done, len(pairs))
            return topic_verdicts

        return list(await asyncio.gather(*(compare(pair) for pair in pairs)))


class SubscriptionComparer:
    """Compares the subscriptions of topics."""

    def __init__(
        self, source: AdminClient, target: AdminClient, engines: Mapping[Side, Engine], request: VerifyRequest
    ) -> None:
        self._admins = {Side.SOURCE: source, Side.TARGET: target}
        self._names = {side: request.address(side).name for side in Side}
        self._matcher = EntryMatcher(source, target, engines, (request.source.name, request.target.name))
        self._examples = request.examples

    async def compare(self, pair: Pair) -> TopicSubscriptions:
        """The verdicts on one topic's subscriptions; a `FleetError` becomes the reason of an inconclusive verdict."""
        ledgers = {side: pair.bounds(side).ledgers for side in Side}
        try:
            cursors = await self._cursors(pair, ledgers)
            missing = [
                self._missing(name, cursors) for name in cursors[Side.SOURCE] if name not in cursors[Side.TARGET]
            ]
            common = await self._common(pair, ledgers, cursors)
        except FleetError as error:
            return TopicSubscriptions(topic=pair.topic, topic_verdict=Verdict.INCONCLUSIVE, reason=str(error))
        return TopicSubscriptions(
            topic=pair.topic,
            topic_verdict=Verdict.EQUAL,
            subscriptions=tuple(sorted([*missing, *common], key=lambda verdict: verdict.subscription)),
            notes=(*pair.notes, *self._notes(cursors)),
        )

    async def _cursors(self, pair: Pair, ledgers: Mapping[Side, Ledgers]) -> Cursors:
        topic = TopicName.parse(pair.topic)
        cursors = await asyncio.gather(
            *(read_subscriptions(self._admins[side], topic, ledgers[side], end=pair.bounds(side).end) for side in Side)
        )
        return dict(zip(Side, cursors, strict=True))

    async def _common(self, pair: Pair, ledgers: Mapping[Side, Ledgers], cursors: Cursors) -> list[SubscriptionVerdict]:
        """The verdicts on subscriptions that both clusters have."""
        source, target = cursors[Side.SOURCE], cursors[Side.TARGET]
        common = [name for name in source if name in target]
        if not common:
            return []
        correspondence, unclear = await self._correspondence(pair, ledgers, cursors, common)
        moved = await self._moved(pair, ledgers, cursors)
        names = DeliveryExamples(TopicName.parse(pair.topic), ledgers, self._admins, self._examples)
        verdicts = []
        for name in common:
            source_cursor, target_cursor = source[name], target[name]
            if reason := moved.get(name) or (unclear if source_cursor.unread or target_cursor.unread else ""):
                verdicts.append(_inconclusive(name, reason, source_cursor, target_cursor))
                continue
            discrepancy = correspondence.compare(source_cursor.unread, target_cursor.unread, examples=self._examples)
            verdicts.append(
                evaluate_subscription(
                    name, source_cursor, target_cursor, discrepancy, await names.examples(discrepancy)
                )
            )
        return verdicts

    async def _correspondence(
        self, pair: Pair, ledgers: Mapping[Side, Ledgers], cursors: Cursors, common: Sequence[str]
    ) -> tuple[Correspondence, str]:
        """The correspondence of entries; with a reason if the unread entries cannot be matched."""
        source, target = (
            Intervals.of(chain.from_iterable(cursors[side][name].unread.runs for name in common)) for side in Side
        )
        # For a replicated subscription the brokers store markers with snapshots of its position among the messages.
        markers = any(state.replicated for side in Side for state in cursors[side].values())
        try:
            return await self._matcher.find(pair, ledgers, Unread(source, target), markers=markers), ""
        except (Unmatchable, FleetError, UnicodeDecodeError) as error:
            return OneToOne(0), str(error)

    async def _moved(self, pair: Pair, ledgers: Mapping[Side, Ledgers], cursors: Cursors) -> Mapping[str, str]:
        """The subscriptions that changed since they were read, and how they changed."""
        topic = TopicName.parse(pair.topic)
        moved: dict[str, str] = {}
        for side in Side:
            now = await read_unread(self._admins[side], topic, ledgers[side], end=pair.bounds(side).end)
            for name, before in cursors[side].items():
                if what := movement(before.unread, now.get(name)):
                    moved[name] = (
                        f"it moved while being compared: {what} on {self._names[side]}; "
                        "stop its consumers or compare again"
                    )
        return moved

    def _missing(self, name: str, cursors: Cursors) -> SubscriptionVerdict:
        return SubscriptionVerdict(
            subscription=name,
            verdict=Verdict.DIFFERENT,
            reason=f"{self._names[Side.TARGET]} has no such subscription",
            source_unread=len(cursors[Side.SOURCE][name].unread),
        )

    def _notes(self, cursors: Cursors) -> list[str]:
        source, target = cursors[Side.SOURCE], cursors[Side.TARGET]
        extra = sorted(target.keys() - source.keys())
        types = (type_note(name, source[name], target[name]) for name in sorted(source.keys() & target.keys()))
        return [
            *(f"subscription {name!r} is on {self._names[Side.TARGET]} only" for name in extra),
            *(note for note in types if note),
        ]


def _inconclusive(
    name: str, reason: str, source: SubscriptionCursor, target: SubscriptionCursor
) -> SubscriptionVerdict:
    return SubscriptionVerdict(
        subscription=name,
        verdict=Verdict.INCONCLUSIVE,
        reason=reason,
        source_unread=len(source.unread),
        target_unread=len(target.unread),
    )


POSITION_LOOKUPS = 16
"""Entries of a copy whose source positions are read before all entries are assumed to match one to one."""

MOST_MESSAGES = 200_000
"""The most messages to read of one topic and cluster if entries do not match one to one; about 10 µs of CPU each."""

MOST_CALLS = 500
"""The most entries of a copy without a partner whose source position is read from the broker."""


class Unmatchable(Exception):
    """The entries of the two topics cannot be matched; the message says why."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Entries that any subscription of a topic has not read, by their numbers in the frozen topics."""

    source: Intervals
    target: Intervals


class EntryMatcher:
    """Matches entries of topics; reads the messages of one topic at a time.

    :param engines: the engines that read messages, by side.
    """

    def __init__(
        self, source: AdminClient, target: AdminClient, engines: Mapping[Side, Engine], names: tuple[str, str]
    ) -> None:
        self._source = source
        self._target = target
        self._engines = engines
        self._names = names
        self._reading = asyncio.Lock()

    async def find(
        self, pair: Pair, ledgers: Mapping[Side, Ledgers], unread: Unread, *, markers: bool
    ) -> Correspondence:
        """The correspondence of at least all entries in `unread`.

        :param markers: brokers may have stored markers among the messages, which exist on one cluster only.
        :raises Unmatchable: it would take more than `MOST_MESSAGES` or `MOST_CALLS`.
        """
        if not (unread.source or unread.target):
            return OneToOne(0)
        # Publish times are compared only if the replicator made the copy, which then has source positions.
        replicated, topic = pair.publish_time, TopicName.parse(pair.topic)
        copies = Copies(self._source, self._target, topic, ledgers[Side.SOURCE], ledgers[Side.TARGET])
        if replicated and not markers and (shift := await _shift(copies, pair, unread)) is not None:
            return OneToOne(shift)
        begins = await _begins(copies, pair, unread)
        by_content = ByContent.of(*await self._listings(pair, ledgers, begins))
        if not replicated:
            return by_content
        return by_content.without(await self._own(copies, by_content.only_in_target(unread.target)))

    async def _listings(
        self, pair: Pair, ledgers: Mapping[Side, Ledgers], begins: Mapping[Side, int]
    ) -> tuple[Listing, Listing]:
        ends = {side: replace(pair.bounds(side), begin=begin) for side, begin in begins.items()}
        for side, name in zip(Side, self._names, strict=True):
            if len(ends[side]) > MOST_MESSAGES:
                raise _too_much(name)
        async with self._reading:
            source, target = await asyncio.gather(
                *(
                    asyncio.to_thread(self._list, side, name, pair, ends[side], ledgers[side])
                    for side, name in zip(Side, self._names, strict=True)
                )
            )
        return source, target

    def _list(self, side: Side, name: str, pair: Pair, bounds: TopicBounds, ledgers: Ledgers) -> Listing:
        import numpy as np

        from pulsar_fleet.messages.digests import digest

        contents: list[bytes] = []
        entries = array("q")
        for entry_range in cut(bounds, pair=0, publish_time=pair.publish_time):
            for messages in self._engines[side].read(replace(entry_range, origin=pair.origin(side))):
                contents.extend(digest(message, publish_time=pair.publish_time) for message in messages)
                entries.extend(ledgers.index_after(message.position) - 1 for message in messages)
                if len(contents) > MOST_MESSAGES:
                    raise _too_much(name)
        return Listing(contents, np.array(entries, dtype=np.int64))

    async def _own(self, copies: Copies, entries: tuple[int, ...]) -> Iterable[int]:
        """The entries that were published on the target directly, so that they are not copies of the source's."""
        if len(entries) > MOST_CALLS:
            raise Unmatchable(
                f"{len(entries):,} unread entries of {self._names[1]} are not unread on {self._names[0]}, but the "
                f"origin of at most {MOST_CALLS} entries is checked; compare the messages first"
            )
        positions = await asyncio.gather(*map(copies.origin, entries))
        return [number for number, position in zip(entries, positions, strict=True) if position is None]


async def _shift(copies: Copies, pair: Pair, unread: Unread) -> int | None:
    """The difference of entry numbers, if all checked entries have it and every unread entry has a partner.

    The replicator keeps the order of entries. So if it is the same at both ends, no entry between is unmatched.
    """
    end = pair.target.end
    if not end or (shift := await _shift_at(copies, end - 1)) is None:
        return None
    translated = unread.target.union(unread.source.shifted(-shift))
    if translated.runs[0][0] < 0 or translated.runs[-1][1] > end or translated.runs[0][0] + shift < 0:
        return None
    shifts = await asyncio.gather(*(_shift_at(copies, number) for number in _edges(translated)))
    return shift if set(shifts) == {shift} else None


async def _shift_at(copies: Copies, number: int) -> int | None:
    came_from = await _source_number(copies, number)
    return None if came_from is None else came_from - number


async def _source_number(copies: Copies, number: int) -> int | None:
    """The source's number of an entry of the target; None if the source never had it or no longer has it."""
    position = await copies.origin(number)
    if position is None:
        return None
    came_from = copies.originals.index_after(position) - 1
    return came_from if came_from >= 0 and copies.originals.at(came_from) == position else None


async def _begins(copies: Copies, pair: Pair, unread: Unread) -> Mapping[Side, int]:
    """The entry from which each cluster is read: its first unread one; on the source also that of the target."""
    source = pair.source.end if unread.source.first is None else unread.source.first
    target = pair.target.end if unread.target.first is None else unread.target.first
    replicated = pair.publish_time
    if replicated and unread.target and (number := await _source_number(copies, target)) is not None:
        source = min(source, number)
    return {Side.SOURCE: source, Side.TARGET: target}


def _edges(numbers: Intervals) -> list[int]:
    """The first and the last number and, evenly spread, ends of the intervals between."""
    ends = sorted({number for begin, end in numbers.runs for number in (begin, end - 1)})
    last = len(ends) - 1
    count = min(POSITION_LOOKUPS, len(ends))
    return [ends[place * last // max(1, count - 1)] for place in range(count)]


def _too_much(name: str) -> Unmatchable:
    return Unmatchable(
        f"the entries of the two clusters do not match one to one, and on {name} more than {MOST_MESSAGES:,} messages "
        "would have to be read to match them; let the subscriptions with the largest backlog catch up"
    )
