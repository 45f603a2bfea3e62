"""The bounds of one topic on both sides: the source's end now, and on the target what the source's entries became."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.positions import TIME_MARGIN_MS, count_before, count_up_to, source_position
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.verification.bounds.compaction import compacted_to, is_compacted, last_value, up_to
from pulsar_fleet.verification.bounds.sample import sampled
from pulsar_fleet.verification.coverage import Compaction, Coverage, Mode
from pulsar_fleet.verification.request import Mapping, Pair


class Unprovable(Exception):
    """This topic cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace while its bounds are frozen.

    :param replicates: whether the source's policies name the target.
    :param keeps_all: whether the target's retention never removes anything.
    :param earlier: what `Pair.earlier` is to be, by topic; only in mode `incremental`.
    :param unproven: why a topic is not among them.
    """

    name: NamespaceName
    replicates: bool
    keeps_all: bool
    earlier: Dictionary[str, JsonObject] = field(default_factory=dict)
    unproven: str = ""


class Bounder:
    """Freezes the bounds of topics between two clusters.

    :param names: of the source and of the target, as they know each other.
    :param catch_up_seconds: how long to wait for the replicator to pass the frozen end of a topic.
    """

    def __init__(
        self,
        source: AdminClient,
        target: AdminClient,
        *,
        names: tuple[str, str],
        mapping: Mapping,
        coverage: Coverage,
        catch_up_seconds: float,
    ) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._mapping = mapping
        self._coverage = coverage
        self._catch_up_seconds = catch_up_seconds

    async def pair(self, scope: Scope, topic: TopicName) -> Pair:
        """Bounds on both sides; `Unprovable`, or a broker's `FleetError`, where there are none that prove anything."""
        stats = await self._source.internal_stats(topic)
        # After the source's: what its replicator had passed by then lies in the target by now.
        there = await self._target.internal_stats(topic)
        whole = TopicBounds.whole(str(topic), stats)
        if self._is_compacted(stats, there):
            return await self._compacted(scope, topic, stats, whole, there)
        source, notes = await self._narrowed(scope, topic, whole)
        there = await self._caught_up(topic, stats, source, there)
        found = await self._mapped(scope, topic, source, there)
        if self._coverage.mode in (Mode.WINDOW, Mode.SAMPLE) and not found.publish_time:
            raise Unprovable(
                f"mode {self._coverage.mode.value!r} compares only what geo-replication copied: other copies have "
                "publish times and entries of their own; verify it with mode 'full'"
            )
        if self._coverage.sample:
            found = await sampled(self._target, topic, found, self._coverage.sample)
        earlier = scope.earlier.get(str(topic))
        if earlier and earlier["publish_time"] != found.publish_time:
            raise Unprovable(f"run {earlier['run']} compared it with another mapping; verify it with mode 'full' again")
        return replace(found, notes=(*notes, *found.notes), earlier=earlier)

    # Which part of the source.

    async def _narrowed(
        self, scope: Scope, topic: TopicName, whole: TopicBounds
    ) -> tuple[TopicBounds, tuple[str, ...]]:
        if self._coverage.window:
            begin, end = self._coverage.window
            search = [
                count_before(self._source, topic, whole.ledgers, each)
                for each in (begin - TIME_MARGIN_MS, end + TIME_MARGIN_MS)
            ]
            first, behind = [await each for each in search]
            return replace(whole, begin=first, end=behind), ()
        if self._coverage.mode is Mode.INCREMENTAL:
            return self._continued(scope, topic, whole)
        return whole, ()

    def _continued(self, scope: Scope, topic: TopicName, whole: TopicBounds) -> tuple[TopicBounds, tuple[str, ...]]:
        earlier = scope.earlier.get(str(topic))
        if earlier is None:
            return whole, (f"compared as a whole: {scope.unproven}",)
        end = Position.parse(earlier["ends"]["source"])
        if end.ledger not in dict(whole.ledgers.runs):
            raise Unprovable(
                f"the proof of run {earlier['run']} ends at {end} of {self._names[0]}, whose ledger was removed since: "
                "messages behind it may be gone that were never compared; verify it with mode 'full'"
            )
        proven = earlier["proof"]["source"]["messages"]
        note = f"continues run {earlier['run']}, which proved {proven:,} messages up to {end}"
        return replace(whole, begin=whole.ledgers.behind(end)), (note,)

    async def _caught_up(
        self, topic: TopicName, stats: JsonObject, source: TopicBounds, there: JsonObject
    ) -> JsonObject:
        """The target's stats when the replicator to it, where there is one, has passed the source's frozen end.

        :param there: those read after `stats`.
        """
        waited = False
        deadline = time.monotonic() + self._catch_up_seconds
        while source.last is not None:
            passed = replicated_up_to(source.ledgers, stats, self._names[1])
            if passed is None or passed >= source.end:
                break
            if time.monotonic() > deadline:
                raise Unprovable(
                    f"replication to {self._names[1]} is {source.end - passed:,} entries behind; wait for it and "
                    "verify again"
                )
            waited = True
            await asyncio.sleep(0.1)
            stats = await self._source.internal_stats(topic)
        return await self._target.internal_stats(topic) if waited else there

    # What it became on the target.

    async def _mapped(self, scope: Scope, topic: TopicName, source: TopicBounds, there: JsonObject) -> Pair:
        target = TopicBounds.whole(str(topic), there)
        begins = await self._from(topic, target, 0)
        sure = scope.replicates or begins is not None or self._mapping is Mapping.REPLICATED
        if self._mapping is Mapping.WHOLE or not sure:
            return Pair(str(topic), source, self._behind(scope, topic, target))
        if source.first is None:
            return self._empty_source(topic, source, target, begins)
        if begins is None:
            if len(target):
                raise Unprovable(
                    f"its first entry on {self._names[1]} was published there directly, so what came from "
                    f"{self._names[0]} cannot be told apart; stop the writers and verify with mapping 'whole'"
                )
            return Pair(str(topic), source, target, publish_time=True)
        return await self._replicated(scope, topic, source, target, begins)

    def _behind(self, scope: Scope, topic: TopicName, target: TopicBounds) -> TopicBounds:
        earlier = scope.earlier.get(str(topic))
        if earlier is None:
            return target
        end = Position.parse(earlier["ends"]["target"])
        if end.ledger not in dict(target.ledgers.runs):
            raise Unprovable(
                f"the proof of run {earlier['run']} ends at {end} of {self._names[1]}, whose ledger was removed since; "
                "verify it with mode 'full'"
            )
        return replace(target, begin=target.ledgers.behind(end))

    def _empty_source(
        self, topic: TopicName, source: TopicBounds, target: TopicBounds, begins: Position | None
    ) -> Pair:
        if begins is not None and not len(source.ledgers):
            raise Unprovable(
                f"{self._names[0]} holds none of its messages any more, while {self._names[1]} holds some from there"
            )
        return Pair(str(topic), source, replace(target, begin=0, end=0), publish_time=True)

    async def _replicated(
        self, scope: Scope, topic: TopicName, source: TopicBounds, target: TopicBounds, begins: Position
    ) -> Pair:
        """Cut the target's end at the source's, and both beginnings to what both hold."""
        assert source.first is not None
        assert source.last is not None
        newest = await self._from(topic, target, target.end - 1)
        if newest is None or newest > source.last:
            end = await count_up_to(self._target, topic, target.ledgers, source.last)
            target = replace(target, begin=0, end=end)
        notes: tuple[str, ...] = ()
        if begins < source.first:
            before = Position(source.first.ledger, source.first.entry - 1)
            target = replace(target, begin=await count_up_to(self._target, topic, target.ledgers, before))
            if source.begin == 0:
                notes = (f"compared from {source.first} of {self._names[0]} on, the oldest that it still holds",)
        elif begins > source.first and not scope.keeps_all:
            source, notes = self._from_oldest(scope, topic, source, begins)
        return Pair(str(topic), source, target, publish_time=True, notes=notes)

    def _from_oldest(
        self, scope: Scope, topic: TopicName, source: TopicBounds, begins: Position
    ) -> tuple[TopicBounds, tuple[str, ...]]:
        begin = source.ledgers.behind(begins) - 1
        if str(topic) in scope.earlier:
            raise Unprovable(
                f"{self._names[1]} has removed messages that came since the last proof; verify it with mode 'full'"
            )
        note = (
            f"compared from {begins} of {self._names[0]} on, the oldest that {self._names[1]} holds; "
            f"{begin - source.begin:,} older entries of {self._names[0]} were not compared"
        )
        return replace(source, begin=min(begin, source.end)), (note,)

    async def _from(self, topic: TopicName, target: TopicBounds, index: int) -> Position | None:
        return await source_position(self._target, topic, target.ledgers.at(index)) if len(target) else None

    # Compacted topics.

    def _is_compacted(self, stats: JsonObject, there: JsonObject) -> bool:
        if self._coverage.compaction is not Compaction.AUTO:
            return self._coverage.compaction is Compaction.ALWAYS
        return is_compacted(stats) or is_compacted(there)

    async def _compacted(
        self, scope: Scope, topic: TopicName, stats: JsonObject, log: TopicBounds, there: JsonObject
    ) -> Pair:
        if self._coverage.mode in (Mode.WINDOW, Mode.SAMPLE):
            raise Unprovable(
                f"it is compacted, and the latest value of a key may lie anywhere, which mode "
                f"{self._coverage.mode.value!r} would not see; verify it with mode 'full'"
            )
        there = await self._caught_up(topic, stats, log, there)
        source = up_to(str(topic), last_value(stats))
        last, replicated = await self._last_copied(scope, topic, log, there)
        if last is not None and compacted_to(there) > last:
            raise Unprovable(f"{self._names[1]} compacted it beyond what came from {self._names[0]}; verify again")
        notes = ("compacted: the latest value of each key was compared",)
        return Pair(str(topic), source, up_to(str(topic), last), replicated, notes, compacted=True)

    async def _last_copied(
        self, scope: Scope, topic: TopicName, source: TopicBounds, there: JsonObject
    ) -> tuple[Position | None, bool]:
        """The target's last entry that came from the source's frozen ones, and whether geo-replication made it."""
        target = TopicBounds.whole(str(topic), there)
        last = last_value(there)
        newest = await self._from(topic, target, target.end - 1)
        oldest = await self._from(topic, target, 0)
        if self._mapping is Mapping.WHOLE or not (scope.replicates or newest or oldest):
            return last, False
        if source.last is None or not len(target) or (newest is not None and newest <= source.last):
            return last, True
        end = await count_up_to(self._target, topic, target.ledgers, source.last)
        if end:
            return target.ledgers.at(end - 1), True
        first = target.ledgers.at(0)
        return Position(first.ledger, first.entry - 1), True
