"""The bounds of one topic on both clusters: the source's end, the copies on the target, what a proof leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.positions import TIME_MARGIN_MS, Ledgers, count_before
from pulsar_fleet.messages.ranges import ANY_REPLICATOR, NO_REPLICATOR, TopicBounds
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.verification.bounds.compaction import compacted_bounds, compacted_to, is_compacted, last_readable
from pulsar_fleet.verification.coverage import Compaction, Coverage, Mode, Sample
from pulsar_fleet.verification.request import EntryMapping, Pair


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


async def sample_pair(copies: Copies, pair: Pair, sample: Sample) -> Pair:
    """The pair with the pieces of the source and their copies on the target; usually two calls for each piece."""
    spans = sample.choose(str(copies.topic), pair.source.begin, pair.source.end)
    copied: list[tuple[int, int]] = []
    shift = pair.target.begin - pair.source.begin
    for begin, end in spans:
        first = await _copy_of(copies, pair, begin, shift)
        shift = first - begin
        copied.append((first, await _copy_of(copies, pair, end, shift)))
    return replace(pair, source=replace(pair.source, spans=spans), target=replace(pair.target, spans=tuple(copied)))


async def _copy_of(copies: Copies, pair: Pair, index: int, shift: int) -> int:
    """The number of the target's copies of entries before the source's `index`; tries `shift` first."""
    source, target = pair.source, pair.target
    if index >= source.end:
        return target.end
    position = source.ledgers.at(index)
    guess = index + shift
    if target.begin <= guess < target.end and await copies.origin(guess) == position:
        return guess
    return await copies.count_up_to(Position(position.ledger, position.entry - 1))


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace while its bounds are frozen.

    :param replicates: whether the source's replication clusters include the target.
    :param keeps_all: whether the target's retention is unlimited.
    :param earlier: `Pair.earlier` by topic; only in mode `incremental`.
    :param unproven: why `earlier` has no proof of a topic.
    """

    name: NamespaceName
    replicates: bool
    keeps_all: bool
    earlier: Mapping[str, JsonObject] = field(default_factory=dict)
    unproven: str = ""


@dataclass(kw_only=True)
class Bounder:
    """Freezes the bounds of topics between two clusters.

    :param names: cluster names of the source and the target.
    :param catch_up_seconds: how long to wait for the replicator to pass the frozen end of a topic.
    """

    source: AdminClient
    target: AdminClient
    names: tuple[str, str]
    mapping: EntryMapping
    coverage: Coverage
    catch_up_seconds: float

    async def pairs(self, scope: Scope, topic: TopicName) -> tuple[Pair, ...]:
        """Its log on both clusters; of a compacted topic also its latest values, where the log may lack them.

        :raises Unprovable: no bounds would prove anything.
        """
        stats = await self.source.internal_stats(topic)
        # Read after the source's: what the replicator had confirmed then is on the target now.
        target_stats = await self.target.internal_stats(topic)
        if not self._is_compacted(stats, target_stats):
            return (await self._log(scope, topic, stats, target_stats),)
        if self.mapping is EntryMapping.MESH:
            raise Unprovable(
                "it is compacted, and the latest value of a key may come from any cluster; stop the producers and "
                "verify it with mapping 'whole'"
            )
        view = await self._compacted(scope, topic, stats, TopicBounds.whole(str(topic), stats), target_stats)
        if self.coverage.compaction is Compaction.ALWAYS:
            return (view,)
        try:
            log = await self._log(scope, topic, stats, target_stats)
        except Unprovable as error:
            return (_without_log(view, str(error)),)
        if len(log.source) and not len(log.target.ledgers):
            return (_without_log(view, f"{self.names[1]} holds none of it"),)
        return log, view

    async def _log(self, scope: Scope, topic: TopicName, stats: JsonObject, target_stats: JsonObject) -> Pair:
        whole = TopicBounds.whole(str(topic), stats)
        source, notes = await self._narrowed(scope, topic, whole)
        target_stats = await self._caught_up(topic, stats, source, target_stats)
        target = TopicBounds.whole(str(topic), target_stats)
        copies = self._copies(source, target)
        pair = await self._mapped(scope, copies, source, target)
        if self.coverage.mode in (Mode.WINDOW, Mode.SAMPLE) and not pair.publish_time:
            raise Unprovable(
                f"mode {self.coverage.mode.value!r} compares only what geo-replication copied: other copies have "
                "publish times and entries of their own; verify it with mode 'full'"
            )
        if self.coverage.sample:
            pair = await sample_pair(copies, pair, self.coverage.sample)
        earlier = scope.earlier.get(str(topic))
        if earlier and (earlier["publish_time"], earlier["mesh"]) != (pair.publish_time, bool(pair.source_origin)):
            raise Unprovable(f"run {earlier['run']} compared it with another mapping; verify it with mode 'full' again")
        return replace(pair, notes=(*notes, *pair.notes), earlier=earlier)

    # Which part of the source.

    async def _narrowed(
        self, scope: Scope, topic: TopicName, whole: TopicBounds
    ) -> tuple[TopicBounds, tuple[str, ...]]:
        if self.coverage.window:
            begin, end = self.coverage.window
            searches = [
                count_before(self.source, topic, whole.ledgers, time)
                for time in (begin - TIME_MARGIN_MS, end + TIME_MARGIN_MS)
            ]
            first, last = [await search for search in searches]
            return replace(whole, begin=first, end=last), ()
        if self.coverage.mode is Mode.INCREMENTAL:
            return self._continued(scope, topic, whole)
        return whole, ()

    def _continued(self, scope: Scope, topic: TopicName, whole: TopicBounds) -> tuple[TopicBounds, tuple[str, ...]]:
        earlier = scope.earlier.get(str(topic))
        if earlier is None:
            return whole, (f"compared completely: {scope.unproven}",)
        return source_after(earlier, whole, self.names[0])

    async def _caught_up(
        self, topic: TopicName, stats: JsonObject, source: TopicBounds, target_stats: JsonObject
    ) -> JsonObject:
        """The target's stats after the replicator to it, if there is one, has passed the source's frozen end.

        :param target_stats: the target's stats that were read after `stats`.
        """
        waited = False
        deadline = time.monotonic() + self.catch_up_seconds
        while source.last is not None:
            passed = replicated_up_to(source.ledgers, stats, self.names[1])
            if passed is None or passed >= source.end:
                break
            if time.monotonic() > deadline:
                raise Unprovable(
                    f"replication to {self.names[1]} is {source.end - passed:,} entries behind; wait for it and "
                    "verify again"
                )
            waited = True
            await asyncio.sleep(0.1)
            stats = await self.source.internal_stats(topic)
        return await self.target.internal_stats(topic) if waited else target_stats

    # The copies on the target.

    def _copies(self, source: TopicBounds, target: TopicBounds) -> Copies:
        topic = TopicName.parse(source.topic)
        only_from = self.names[0] if self.mapping is EntryMapping.MESH else None
        return Copies(self.source, self.target, topic, source.ledgers, target.ledgers, only_from)

    async def _mapped(self, scope: Scope, copies: Copies, source: TopicBounds, target: TopicBounds) -> Pair:
        topic = copies.topic
        if self.mapping is EntryMapping.MESH:
            return await self._in_mesh(scope, copies, source, target)
        begins = await origin_of(copies, 0)
        by_position = self.mapping in (EntryMapping.REPLICATED, EntryMapping.COPIES)
        sure = scope.replicates or begins is not None or by_position
        if self.mapping is EntryMapping.WHOLE or not sure:
            return Pair(str(topic), source, self._after_proof(scope, topic, target))
        earlier = scope.earlier.get(str(topic))
        if earlier and scope.keeps_all:
            require_beginning(earlier, target, self.names[1])
        if source.first is None:
            return self._empty_source(topic, source, target, begins)
        if self.mapping is EntryMapping.COPIES:
            target = await without_later(copies, self.source, self.names, source, target)
            return replace(await self._begun(scope, copies, source, target, begins), target_origin=ANY_REPLICATOR)
        if begins is None:
            if len(target):
                raise Unprovable(
                    f"its first entry on {self.names[1]} was published there directly, so the entries from "
                    f"{self.names[0]} cannot be identified; stop the producers and verify with mapping 'whole'"
                )
            return Pair(str(topic), source, target, publish_time=True)
        return await self._replicated(scope, copies, source, target, begins)

    async def _in_mesh(self, scope: Scope, copies: Copies, source: TopicBounds, target: TopicBounds) -> Pair:
        """What producers wrote to the source, and its copies, wherever they lie between what other clusters wrote.

        Without an earlier proof it begins with the oldest copy: what was stored before the link began was never
        replicated.
        """
        topic, notes = copies.topic, tuple[str, ...]()
        if source.first is not None:
            target = await without_later(copies, self.source, self.names, source, target, may_be_none=True)
            if earlier := scope.earlier.get(str(topic)):
                target = target_after(earlier, target, self.names[1])
            else:
                number, oldest = await oldest_copy(copies, self.names, source.first, target.end)
                target = replace(target, begin=number)
                if oldest is not None and oldest > source.first:
                    source, notes = self._from_oldest(scope, topic, source, oldest)
        else:
            target = replace(target, begin=target.end)
        pair = Pair(str(topic), source, target, publish_time=True, notes=notes)
        return replace(pair, source_origin=NO_REPLICATOR, target_origin=self.names[0])

    def _after_proof(self, scope: Scope, topic: TopicName, target: TopicBounds) -> TopicBounds:
        earlier = scope.earlier.get(str(topic))
        return target_after(earlier, target, self.names[1]) if earlier else target

    def _empty_source(
        self, topic: TopicName, source: TopicBounds, target: TopicBounds, begins: Position | None
    ) -> Pair:
        if begins is not None and not len(source.ledgers):
            raise Unprovable(f"{self.names[0]} has no messages of it any more, but {self.names[1]} has copies of them")
        return Pair(str(topic), source, replace(target, begin=0, end=0), publish_time=True)

    async def _replicated(
        self, scope: Scope, copies: Copies, source: TopicBounds, target: TopicBounds, begins: Position
    ) -> Pair:
        """End the target where the source ends, and begin both with the oldest entry that both have."""
        assert source.last is not None
        newest = await origin_of(copies, target.end - 1)
        if newest is None or newest > source.last:
            target = replace(target, begin=0, end=await copies.count_up_to(source.last))
        return await self._begun(scope, copies, source, target, begins)

    async def _begun(
        self, scope: Scope, copies: Copies, source: TopicBounds, target: TopicBounds, begins: Position | None
    ) -> Pair:
        """Begin both with the oldest entry that both have, where the target's first entry is a copy."""
        assert source.first is not None
        topic = copies.topic
        notes: tuple[str, ...] = ()
        if begins is None:
            return Pair(str(topic), source, target, publish_time=True)
        if begins < source.first:
            before = Position(source.first.ledger, source.first.entry - 1)
            target = replace(target, begin=await copies.count_up_to(before))
            if source.begin == 0:
                notes = (f"compared from {source.first} of {self.names[0]} on, the oldest that it still holds",)
        elif begins > source.first and not scope.keeps_all:
            source, notes = self._from_oldest(scope, topic, source, begins)
        return Pair(str(topic), source, target, publish_time=True, notes=notes)

    def _from_oldest(
        self, scope: Scope, topic: TopicName, source: TopicBounds, begins: Position
    ) -> tuple[TopicBounds, tuple[str, ...]]:
        begin = source.ledgers.index_after(begins) - 1
        if str(topic) in scope.earlier:
            raise Unprovable(
                f"{self.names[1]} has removed messages that are newer than the last proof; verify it with mode 'full'"
            )
        note = (
            f"compared from {begins} of {self.names[0]} on, the oldest that {self.names[1]} has; "
            f"{begin - source.begin:,} older entries of {self.names[0]} were not compared"
        )
        return replace(source, begin=min(begin, source.end)), (note,)

    # Compacted topics.

    def _is_compacted(self, stats: JsonObject, target_stats: JsonObject) -> bool:
        if self.coverage.compaction is not Compaction.AUTO:
            return self.coverage.compaction is Compaction.ALWAYS
        return is_compacted(stats) or is_compacted(target_stats)

    async def _compacted(
        self, scope: Scope, topic: TopicName, stats: JsonObject, log: TopicBounds, target_stats: JsonObject
    ) -> Pair:
        if self.coverage.mode in (Mode.WINDOW, Mode.SAMPLE):
            raise Unprovable(
                f"it is compacted, and the latest value of a key may lie anywhere, which mode "
                f"{self.coverage.mode.value!r} would miss; verify it with mode 'full'"
            )
        target_stats = await self._caught_up(topic, stats, log, target_stats)
        source = compacted_bounds(str(topic), stats, last_readable(stats))
        last, replicated = await self._last_copied(scope, topic, log, target_stats)
        if last is not None and compacted_to(target_stats) > last:
            raise Unprovable(f"{self.names[1]} compacted it beyond the entries from {self.names[0]}; verify again")
        notes = ("compacted: the latest value of each key was compared",)
        target = compacted_bounds(str(topic), target_stats, last)
        return Pair(str(topic), source, target, replicated, notes, compacted=True)

    async def _last_copied(
        self, scope: Scope, topic: TopicName, source: TopicBounds, target_stats: JsonObject
    ) -> tuple[Position | None, bool]:
        """The target's last copy of a frozen entry of the source, and whether geo-replication made it."""
        target = TopicBounds.whole(str(topic), target_stats)
        copies, last = self._copies(source, target), last_readable(target_stats)
        newest = await origin_of(copies, target.end - 1)
        oldest = await origin_of(copies, 0)
        if self.mapping is EntryMapping.WHOLE or not (scope.replicates or newest or oldest):
            return last, False
        if source.last is None or not len(target) or (newest is not None and newest <= source.last):
            return last, True
        end = await copies.count_up_to(source.last)
        if end:
            return target.ledgers.at(end - 1), True
        first = target.ledgers.at(0)
        return Position(first.ledger, first.entry - 1), True


def _without_log(view: Pair, reason: str) -> Pair:
    """The pair of the latest values of a topic whose log is not compared."""
    return replace(view, notes=(*view.notes, f"its log was not compared: {reason}"))


_MOST_LOOKED_AT = 20_000
_LOOKED_AT_ONCE = 32


async def without_later(
    copies: Copies,
    source: AdminClient,
    names: tuple[str, str],
    bounds: TopicBounds,
    target: TopicBounds,
    *,
    may_be_none: bool = False,
) -> TopicBounds:
    """End the target where no copy of a later entry of the source follows; what producers wrote to it may remain.

    A source without a later entry has no such copy. Otherwise the newest copy lies near the target's end.

    :param bounds: of the source.
    :param may_be_none: the source may hold only what other clusters published: then the target is read to no entry.
    """
    assert bounds.last is not None
    now = Ledgers.of(await source.internal_stats(copies.topic))
    if now.index_after(bounds.last) == len(now):
        return target
    for end in range(target.end, max(target.end - _MOST_LOOKED_AT, 0), -_LOOKED_AT_ONCE):
        numbers = range(end - 1, max(end - _LOOKED_AT_ONCE, 0) - 1, -1)
        origins = await asyncio.gather(*(origin_of(copies, number) for number in numbers))
        for number, origin in zip(numbers, origins, strict=True):
            if origin is not None and origin <= bounds.last:
                return replace(target, begin=0, end=number + 1)
    if may_be_none and target.end <= _MOST_LOOKED_AT:
        return replace(target, begin=0, end=0)
    raise Unprovable(
        f"its last {_MOST_LOOKED_AT:,} entries on {names[1]} have no copy of what {names[0]} held when "
        "the verification began; verify again when fewer producers write"
    )


async def oldest_copy(
    copies: Copies, names: tuple[str, str], first: Position, end: int, *, most: int = _MOST_LOOKED_AT
) -> tuple[int, Position | None]:
    """The first copy of the source's entries from `first` on among the target's first `end`; (0, None) if none is.

    Calls: one where the target begins with it.

    :raises Unprovable: it is not among the first `most` entries of the target, which has more.
    """
    for begin in (0, *range(1, min(end, most), _LOOKED_AT_ONCE)):
        numbers = range(begin, min(begin + (_LOOKED_AT_ONCE if begin else 1), most, end))
        origins = await asyncio.gather(*(origin_of(copies, number) for number in numbers))
        for number, origin in zip(numbers, origins, strict=True):
            if origin is not None and origin >= first:
                return number, origin
    if end <= most:
        return 0, None
    raise Unprovable(
        f"its first {most:,} entries on {names[1]} have no copy of what {names[0]} still "
        "holds; verify it with mode 'window'"
    )


async def origin_of(copies: Copies, index: int) -> Position | None:
    """The source position of an entry of the target; None if the target has no entry at all."""
    return await copies.origin(index) if len(copies.copies) else None
