"""Freeze the bounds of a verification: the source's end, and on the target exactly the copies of those entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.error_map import is_migrated
from pulsar_fleet.cluster.admin.partial_reads import SCALABLE_TOPICS_OF
from pulsar_fleet.cluster.admin.scalable_topics import ScalableTopics
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, PermissionDenied
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.messages.positions import entries_behind, terminated_at
from pulsar_fleet.verification.bounds.engine_choice import (
    EngineChoice,
    ReadFrom,
    choose_engine,
    may_continue,
    read_from_shadow,
)
from pulsar_fleet.verification.bounds.topic_bounds import Bounder, Scope, Unprovable
from pulsar_fleet.verification.coverage import Coverage
from pulsar_fleet.verification.request import Address, EntryMapping, Pair, Problem, VerifyRequest

TOPICS_AT_ONCE = 8
FOREVER = -1
EarlierProofs = Callable[[NamespaceName, str, str], Mapping[str, JsonObject]]
"""Takes a namespace and the names of source and target; returns `Pair.earlier` by topic."""


@dataclass(kw_only=True)
class Freezer:
    """Freezes bounds between two clusters.

    :param engine: the engine that reads, or `auto` to measure it for each topic.
    :param keyed: hash messages with the key in the environment.
    :param read_from: where the source's messages are read.
    :param catch_up_seconds: how long to wait for the replicator to pass the frozen end of a topic.
    :param earlier: earlier proofs for mode `incremental`.
    :param topics: of a namespace with one of them, only these, which a list of their own replicates.
    """

    source: AdminClient
    target: AdminClient
    mapping: EntryMapping
    coverage: Coverage = field(default_factory=Coverage)
    earlier: EarlierProofs | None = None
    engine: EngineChoice = EngineChoice.AUTO
    keyed: bool = False
    read_from: ReadFrom = ReadFrom.SERVING
    catch_up_seconds: float = 30.0
    topics: frozenset[TopicName] = frozenset()

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(TOPICS_AT_ONCE)
        self._names = ("", "")
        self._transactional: tuple[AdminClient, ...] = ()
        self._scalable: tuple[ScalableTopics, ...] = ()

    async def freeze(self, namespaces: Sequence[NamespaceName]) -> VerifyRequest:
        """Bounds of every topic of the namespaces; a topic that cannot be compared is a problem, never left out."""
        if not namespaces:
            raise InvalidRequest("No namespace was given to verify; give at least one as tenant/namespace.")
        self._names = (await _name(self.source), await _name(self.target))
        sides = (self.source, self.target)
        self._transactional = tuple([admin for admin in sides if await _has_transactions(admin)])
        self._scalable = tuple([await ScalableTopics.of(admin) for admin in sides])
        outcomes = [outcome for name in dict.fromkeys(namespaces) for outcome in await self._namespace(name)]
        return VerifyRequest(
            source=Address.of(self.source.connection, self._names[0]),
            target=Address.of(self.target.connection, self._names[1]),
            namespaces=tuple(dict.fromkeys(str(name) for name in namespaces)),
            pairs=tuple(outcome for outcome in outcomes if isinstance(outcome, Pair)),
            problems=tuple(outcome for outcome in outcomes if isinstance(outcome, Problem)),
            coverage=self.coverage,
        )

    async def _namespace(self, name: NamespaceName) -> list[Pair | Problem]:
        source, target = await asyncio.gather(self.source.namespace(name), self.target.namespace(name))
        for policies, cluster, different in ((source, self._names[0], False), (target, self._names[1], True)):
            if policies is None:
                return [Problem(str(name), str(name), different, f"there is no such namespace on {cluster}")]
        single = {topic for topic in self.topics if topic.namespace == name}
        replicates = bool(single) or self._names[1] in (source or {}).get("replication_clusters", ())
        earlier = self.earlier(name, *self._names) if self.earlier else {}
        continued = {topic: proof for topic, proof in earlier.items() if may_continue(proof, self.engine)}
        scope = Scope(name, replicates, _keeps_all(target or {}), continued, self._unproven)
        bounder = Bounder(
            source=self.source,
            target=self.target,
            names=self._names,
            mapping=self.mapping,
            coverage=self.coverage,
            catch_up_seconds=self.catch_up_seconds,
        )
        source_topics, target_topics = await asyncio.gather(
            self._topics(self.source, name, single), self._topics(self.target, name, single)
        )
        scalable = [] if single else await self._scalable_topics(scope)
        if not source_topics:
            empty = Problem(str(name), str(name), False, f"{self._names[0]} has no persistent topic in it")
            return [empty, *scalable]
        frozen = await asyncio.gather(
            *(self._topic(bounder, scope, topic) for topic in sorted(source_topics & target_topics))
        )
        only_on_one_side = self._only_on_one_side(scope, source_topics, target_topics)
        return [*chain.from_iterable(frozen), *scalable, *only_on_one_side]

    @property
    def _unproven(self) -> str:
        by = "" if self.engine is EngineChoice.AUTO else f" with engine {self.engine.value!r}"
        return f"no earlier run proved it equal{by}"

    async def _topics(self, admin: AdminClient, name: NamespaceName, single: Collection[TopicName]) -> set[TopicName]:
        stored = {topic for topic in await admin.topics(name) if topic.persistent and not topic.is_system}
        return {topic for topic in stored if not single or topic.parent in single}

    def _only_on_one_side(
        self, scope: Scope, source_topics: set[TopicName], target_topics: set[TopicName]
    ) -> list[Pair | Problem]:
        source, target = self._names
        missing = [
            self._problem(topic, f"{target} has no such topic", different=True)
            for topic in sorted(source_topics - target_topics)
        ]
        if self._may_have_more(scope):
            return [*missing]
        # Without replication to the target, a topic that only the target has did not come from the copy.
        extra = [
            self._problem(topic, f"{source} has no such topic", different=True)
            for topic in sorted(target_topics - source_topics)
        ]
        return [*missing, *extra]

    def _may_have_more(self, scope: Scope) -> bool:
        return scope.replicates or self.mapping in (EntryMapping.REPLICATED, EntryMapping.COPIES, EntryMapping.MESH)

    async def _scalable_topics(self, scope: Scope) -> list[Problem]:
        """Topics that no engine reads; those of the target where it may have no other topics than the source."""
        clusters: dict[str, list[str]] = {}
        sides = list(zip(self._scalable, self._names, strict=True))
        for scalable, cluster in sides[:1] if self._may_have_more(scope) else sides:
            try:
                for topic in await scalable.names(scope.name):
                    clusters.setdefault(topic, []).append(cluster)
            except FleetError as error:
                unread = f"{SCALABLE_TOPICS_OF}{scope.name}"
                return [Problem(str(scope.name), unread, False, f"they could not be read: {error}")]
        return [
            Problem(str(scope.name), topic, False, f"a scalable topic on {' and '.join(on)}: it is not compared")
            for topic, on in clusters.items()
        ]

    async def _topic(self, bounder: Bounder, scope: Scope, topic: TopicName) -> Sequence[Pair | Problem]:
        async with self._slots:
            try:
                await self._refuse_open_transactions(topic)
                lost = await self._behind_end(topic)
                pairs = [replace(pair, notes=(*lost, *pair.notes)) for pair in await bounder.pairs(scope, topic)]
                return [await self._read_by(pair) for pair in pairs]
            except (FleetError, Unprovable) as error:
                return [self._problem(topic, _reason(error), different=False)]

    async def _read_by(self, pair: Pair) -> Pair:
        """The pair with the engine that reads it, and from where."""
        chosen = await choose_engine(self.source, replace(pair, keyed=self.keyed), self.engine, self.coverage.mode)
        return await read_from_shadow(self.source, chosen) if self.read_from is ReadFrom.SHADOW else chosen

    async def _refuse_open_transactions(self, topic: TopicName) -> None:
        for admin in self._transactional:
            if TopicStats.of(topic, await admin.stats(topic, precise=False)).ongoing_transactions:
                raise Unprovable(
                    f"a transaction is open on {admin.connection.name}: its messages, and all that follow, are "
                    "invisible until it ends; verify again"
                )

    async def _behind_end(self, topic: TopicName) -> tuple[str, ...]:
        """A note on what the source has stored behind the position where it was terminated."""
        info = await self.source.internal_info(topic)
        entries = await entries_behind(self.source, topic, info)
        listed = ", ".join(f"{count:,} entries of ledger {ledger}" for ledger, count in entries.items())
        sentence = f"{listed} lie behind its end {terminated_at(info)} on {self._names[0]}: no consumer gets them"
        return (sentence,) if entries else ()

    def _problem(self, topic: TopicName, reason: str, *, different: bool) -> Problem:
        return Problem(str(topic.namespace), str(topic), different, reason)


def _reason(error: FleetError | Unprovable) -> str:
    if not is_migrated(error):
        return str(error)
    return (
        f"{error}: a migration has moved it, and it is not loaded there any more, so nothing of it can be read; the "
        "verdict of that migration has compared it"
    )


async def _name(admin: AdminClient) -> str:
    try:
        return await admin.cluster_name()
    except PermissionDenied:  # only a superuser may read the cluster's name
        return admin.connection.name


async def _has_transactions(admin: AdminClient) -> bool:
    """Whether to check each topic for open transactions, one call; True if the role may not read broker settings."""
    try:
        return (await admin.runtime_configuration()).get("transactionCoordinatorEnabled") == "true"
    except PermissionDenied:
        return True


def _keeps_all(policies: JsonObject) -> bool:
    kept = policies.get("retention_policies") or {}
    return kept.get("retentionTimeInMinutes") == FOREVER and kept.get("retentionSizeInMB") == FOREVER
