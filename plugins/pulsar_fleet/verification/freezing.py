"""Freeze what is compared: the source's end once, and on the target exactly what the source's entries became."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Denied, FleetError, Rejected
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.reading.ranges import TopicBounds
from pulsar_fleet.reading.source_positions import count_up_to, source_position
from pulsar_fleet.verification.engine_choice import EngineChoice, choose_engine
from pulsar_fleet.verification.request import Address, Mapping, Pair, Problem, VerifyRequest

REPLICATOR = "pulsar.repl."
TOPICS_AT_ONCE = 8
FOREVER = -1


class Unprovable(Exception):
    """This topic cannot be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """A namespace while its bounds are frozen.

    :param replicates: whether the source's policies name the target.
    :param keeps_all: whether the target's retention never removes anything.
    """

    name: NamespaceName
    replicates: bool
    keeps_all: bool


class Freezer:
    """Freezes bounds between two clusters.

    :param engine: who reads, or `auto` to measure it for each topic.
    :param catch_up_seconds: how long to wait for the replicator to pass the frozen end of a topic.
    """

    def __init__(
        self,
        source: AdminClient,
        target: AdminClient,
        *,
        mapping: Mapping,
        engine: EngineChoice = EngineChoice.AUTO,
        catch_up_seconds: float = 30.0,
    ) -> None:
        self._source = source
        self._target = target
        self._mapping = mapping
        self._engine = engine
        self._catch_up_seconds = catch_up_seconds
        self._room = asyncio.Semaphore(TOPICS_AT_ONCE)
        self._names = ("", "")

    async def freeze(self, namespaces: Sequence[NamespaceName]) -> VerifyRequest:
        """Bounds of every topic of the namespaces; what cannot be compared is named as a problem, never left out."""
        if not namespaces:
            raise Rejected("No namespace was given to verify; name at least one as tenant/namespace.")
        self._names = (await _name(self._source), await _name(self._target))
        found = [each for name in dict.fromkeys(namespaces) for each in await self._namespace(name)]
        return VerifyRequest(
            source=Address.of(self._source.connection, self._names[0]),
            target=Address.of(self._target.connection, self._names[1]),
            namespaces=tuple(dict.fromkeys(str(name) for name in namespaces)),
            pairs=tuple(each for each in found if isinstance(each, Pair)),
            problems=tuple(each for each in found if isinstance(each, Problem)),
        )

    async def _namespace(self, name: NamespaceName) -> list[Pair | Problem]:
        here, there = await asyncio.gather(self._source.namespace(name), self._target.namespace(name))
        for policies, cluster, different in ((here, self._names[0], False), (there, self._names[1], here is not None)):
            if policies is None:
                return [Problem(str(name), str(name), different, f"there is no such namespace on {cluster}")]
        scope = _Scope(name, self._names[1] in (here or {}).get("replication_clusters", ()), _keeps_all(there or {}))
        held, copied = await asyncio.gather(self._topics(self._source, name), self._topics(self._target, name))
        if not held:
            return [Problem(str(name), str(name), False, f"{self._names[0]} holds no persistent topic in it")]
        frozen = list(await asyncio.gather(*(self._topic(scope, topic) for topic in sorted(held & copied))))
        return [*frozen, *self._only_on_one_side(scope, held, copied)]

    async def _topics(self, admin: AdminClient, name: NamespaceName) -> set[TopicName]:
        return {topic for topic in await admin.topics(name) if topic.persistent and not topic.is_system}

    def _only_on_one_side(self, scope: _Scope, held: set[TopicName], copied: set[TopicName]) -> list[Pair | Problem]:
        source, target = self._names
        lost = [self._problem(topic, f"{target} has no such topic", different=True) for topic in sorted(held - copied)]
        if scope.replicates or self._mapping is Mapping.REPLICATED:
            return [*lost]
        # A topic that is only on a target to which nothing replicates was not there when the copy was made.
        new = [self._problem(topic, f"{source} has no such topic", different=True) for topic in sorted(copied - held)]
        return [*lost, *new]

    async def _topic(self, scope: _Scope, topic: TopicName) -> Pair | Problem:
        async with self._room:
            try:
                return await choose_engine(self._source, await self._pair(scope, topic), self._engine)
            except (FleetError, Unprovable) as error:
                return self._problem(topic, str(error), different=False)

    def _problem(self, topic: TopicName, reason: str, *, different: bool) -> Problem:
        return Problem(str(topic.namespace), str(topic), different, reason)

    async def _pair(self, scope: _Scope, topic: TopicName) -> Pair:
        stats = await self._source.internal_stats(topic)
        source = TopicBounds.whole(str(topic), stats)
        await self._caught_up(topic, stats, source)
        target = TopicBounds.whole(str(topic), await self._target.internal_stats(topic))
        begins = await self._from(topic, target, 0)
        sure = scope.replicates or begins is not None or self._mapping is Mapping.REPLICATED
        if self._mapping is Mapping.WHOLE or not sure:
            return Pair(str(topic), source, target)
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

    def _empty_source(
        self, topic: TopicName, source: TopicBounds, target: TopicBounds, begins: Position | None
    ) -> Pair:
        if begins is not None:
            raise Unprovable(
                f"{self._names[0]} holds none of its messages any more, while {self._names[1]} holds some from there"
            )
        return Pair(str(topic), source, replace(target, begin=0, end=0), publish_time=True)

    async def _replicated(
        self, scope: _Scope, topic: TopicName, source: TopicBounds, target: TopicBounds, begins: Position
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
            begin = await count_up_to(self._target, topic, target.ledgers, before)
            target = replace(target, begin=begin)
            notes = (f"compared from {source.first} of {self._names[0]} on, the oldest that it still holds",)
        elif begins > source.first and not scope.keeps_all:
            begin = source.end - source.ledgers.count_after(begins) - 1
            source = replace(source, begin=begin)
            notes = (
                f"compared from {begins} of {self._names[0]} on, the oldest that {self._names[1]} holds; "
                f"{begin:,} older entries of {self._names[0]} were not compared",
            )
        return Pair(str(topic), source, target, publish_time=True, notes=notes)

    async def _from(self, topic: TopicName, target: TopicBounds, index: int) -> Position | None:
        return await source_position(self._target, topic, target.ledgers.at(index)) if len(target) else None

    async def _caught_up(self, topic: TopicName, stats: JsonObject, source: TopicBounds) -> None:
        """Wait until the replicator to the target, where there is one, has passed the source's frozen end."""
        deadline = time.monotonic() + self._catch_up_seconds
        cursor = REPLICATOR + self._names[1]
        while source.last is not None and (found := stats.get("cursors", {}).get(cursor)):
            passed = Position.parse(found["markDeletePosition"])
            missing = source.ledgers.count_after(passed)
            if missing == 0:
                return
            if time.monotonic() > deadline:
                raise Unprovable(
                    f"replication to {self._names[1]} is {missing:,} entries behind; wait for it and verify again"
                )
            await asyncio.sleep(0.1)
            stats = await self._source.internal_stats(topic)


async def _name(admin: AdminClient) -> str:
    try:
        return await admin.cluster_name()
    except Denied:  # only a superuser may ask a broker for its cluster's name
        return admin.connection.name


def _keeps_all(policies: JsonObject) -> bool:
    kept = policies.get("retention_policies") or {}
    return kept.get("retentionTimeInMinutes") == FOREVER and kept.get("retentionSizeInMB") == FOREVER
