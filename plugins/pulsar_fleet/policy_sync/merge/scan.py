"""Look at one cluster: a call for each namespace, two for each tenant, a fixed number for each broker (client)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import Clock, measure_clock
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Area, Note, Problem
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import BROKERS_TENANT, NamespaceName
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, Span, span_of
from pulsar_fleet.policy_sync.merge.view import POLICIES_OF, Item, place
from pulsar_fleet.snapshot.cluster_reader import read_brokers
from pulsar_fleet.snapshot.collect import PUBLIC_DEFAULT
from pulsar_fleet.snapshot.documents import read_namespace, read_partitioned
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot, TenantState, TopicPolicyState
from pulsar_fleet.snapshot.tenants import read_tenant, tenant_names
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


class EventTimes:
    """Listens to a pass over the events of a namespace.

    Each event repeats all policies of its topic, so a policy was written with the event in which it first had its
    value. Of the first event that is left after a compaction only the end is known.
    """

    def __init__(self) -> None:
        self._values: dict[str, Mapping[str, Json]] = {}
        self._written: dict[str, dict[str, tuple[bool, int]]] = {}

    def note(self, key: str, state: TopicPolicyState | None, at: int) -> None:
        """Take the next event."""
        first = key not in self._values
        before = self._values.get(key, {})
        values = topic_comparable(state.policies) if state else {}
        written = self._written.setdefault(key, {})
        for name_of_field in {*before, *values}:
            if first or not same(before.get(name_of_field), values.get(name_of_field)):
                written[name_of_field] = (not first, at)
        self._values[key] = values

    def spans(self, topic: str, clock: Clock, skew: float) -> dict[str, Span]:
        """`scope/policy` → when it was written, by our clock."""
        found: dict[str, Span] = {}
        for scope, key in (("local", topic), ("global", f"__G__{topic}")):
            for name_of_field, (exact, at) in self._written.get(key, {}).items():
                begin, end = span_of(at, clock, skew)
                found[f"{scope}/{name_of_field}"] = (begin if exact else UNKNOWN, end)
        return found


_PASSES_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one look at a cluster showed.

    :param snapshot: brokers, tenants, namespaces without what each cluster keeps for itself, topic policies.
    :param began: in seconds since 1970 by our clock; `ended` likewise.
    :param events: namespace → when its topics' policies were written.
    :param topics: namespace → its topics, of those that were asked for by `look_for_topics`.
    """

    snapshot: Snapshot
    clock: Clock
    began: float
    ended: float
    calls: int
    events: dict[str, EventTimes]
    topics: dict[str, frozenset[str]]

    @property
    def unread(self) -> frozenset[str]:
        """What is there and could not be read, or is hidden from our role."""
        bad = (Problem.UNREADABLE, Problem.HIDDEN)
        return frozenset(note.resource for note in self.snapshot.notes if note.problem in bad) - set(Area)


async def look(
    admin: AdminClient, selection: Selection, seal: Redactor, *, topics: bool, earlier: Observed | None = None
) -> Observed:
    """Read what the selection means on one cluster.

    :param topics: read the policies of topics too: a pass over the events of each namespace, no call.
    :param earlier: a look of a moment ago, whose brokers, clock and known clusters still count.
    :raises Transient: the cluster does not answer.
    :raises Denied: it does not let us read.
    """
    reading = await _Reading.begin(admin, seal, earlier)
    tenants, names = await _tenants(admin, selection, reading.attempts)
    namespaces = await _namespaces(admin, names, seal, reading.attempts)
    async with TopicPolicyReader(admin, seal) as reader:
        policies = await reading.policies(namespaces, reader) if topics else []
    return reading.end(selection.texts(), tenants, namespaces, policies)


async def look_in_parts(
    admin: AdminClient,
    selection: Selection,
    seal: Redactor,
    *,
    topics: bool,
    earlier: Observed | None = None,
    most: int = 100,
) -> AsyncGenerator[Observed, None]:
    """The same, each time the tenants and so many namespaces more; close it where it is left early.

    Only the last part has no namespace. What no part showed, and the last one does not call unread, is not there.
    """
    reading = await _Reading.begin(admin, seal, earlier)
    tenants, names = await _tenants(admin, selection, reading.attempts)
    async with TopicPolicyReader(admin, seal) as reader:
        for first in range(0, len(names), most):
            namespaces = await _namespaces(admin, names[first : first + most], seal, reading.attempts)
            policies = await reading.policies(namespaces, reader) if topics else []
            if namespaces:
                yield reading.end((), tenants, namespaces, policies)
    yield reading.end(selection.texts(), tenants, (), ())


async def look_at(admin: AdminClient, items: Collection[Item], seal: Redactor, earlier: Observed) -> Observed:
    """Read some resources: a call for each namespace in which one lies, two for a tenant, the topics where asked for.

    :param earlier: a look of a moment ago, whose brokers, clock and known clusters still count.
    :raises Transient: the cluster does not answer.
    """
    reading = await _Reading.begin(admin, seal, earlier)
    named = sorted(name for kind, name in items if kind is Resource.TENANT)
    answers = await asyncio.gather(*(read_tenant(admin, name, reading.attempts, listing=name) for name in named))
    tenants = [answer[0] for answer in answers if answer is not None]
    places = sorted({place(item)[1] for item in items} - {""})
    namespaces = await _namespaces(admin, list(map(NamespaceName.parse, places)), seal, reading.attempts)
    of_topics = {place(item)[1] for item in items if item[0] is Resource.TOPIC_POLICY}
    chosen = [one for one in namespaces if one.name in of_topics]
    async with TopicPolicyReader(admin, seal) as reader:
        policies = await reading.policies(chosen, reader)
    found = reading.end((), tenants, namespaces, policies)
    return await look_for_topics(admin, found, [one.name for one in chosen])


async def look_for_topics(admin: AdminClient, observed: Observed, namespaces: Sequence[str]) -> Observed:
    """Add the topics of some namespaces: three calls for each."""
    calls = admin.calls
    found = await asyncio.gather(*(_topics(admin, NamespaceName.parse(name)) for name in namespaces))
    listed = dict(zip(namespaces, found, strict=True))
    return replace(observed, topics={**observed.topics, **listed}, calls=observed.calls + admin.calls - calls)


@dataclass(kw_only=True)
class _Reading:
    """A look that goes on."""

    admin: AdminClient
    own: str
    seal: Redactor
    attempts: PartialReads
    began: float
    calls: int
    clock: Clock
    brokers: Sequence[BrokerState]
    known: tuple[str, ...]
    events: dict[str, EventTimes] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @classmethod
    async def begin(cls, admin: AdminClient, seal: Redactor, earlier: Observed | None) -> Self:
        began, calls, attempts = time.time(), admin.calls, PartialReads()
        return cls(
            admin=admin,
            own=await admin.cluster_name(),
            seal=seal,
            attempts=attempts,
            began=began,
            calls=calls,
            clock=earlier.clock if earlier else await measure_clock(admin),
            brokers=earlier.snapshot.brokers if earlier else await read_brokers(admin, seal, attempts),
            known=earlier.snapshot.known_clusters if earlier else await admin.clusters(),
        )

    async def policies(self, namespaces: Sequence[NamespaceState], reader: TopicPolicyReader) -> list[TopicPolicyState]:
        """The policies of the topics of some namespaces, and when they were written."""
        slots = asyncio.Semaphore(_PASSES_AT_ONCE)

        async def read(name: str) -> Sequence[TopicPolicyState]:
            self.events[name] = EventTimes()
            await self.admin.turn()
            async with slots:
                passed = reader.read(NamespaceName.parse(name), history=self.events[name])
                return await self.attempts.read(f"{POLICIES_OF}{name}", passed) or ()

        found = await asyncio.gather(*(read(one.name) for one in namespaces))
        return [state for states in found for state in states]

    def end(
        self,
        selection: tuple[str, ...],
        tenants: Sequence[TenantState],
        namespaces: Sequence[NamespaceState],
        policies: Sequence[TopicPolicyState],
    ) -> Observed:
        self.notes += self.attempts.take_notes()
        snapshot = Snapshot(
            cluster=self.own,
            began="",
            ended="",
            key_id=self.seal.key_id,
            selection=selection,
            known_clusters=self.known,
            brokers=tuple(self.brokers),
            tenants=tuple(tenants),
            namespaces=tuple(namespaces),
            topic_policies=tuple(policies),
            notes=tuple(self.notes),
        )
        return Observed(
            snapshot=snapshot,
            clock=self.clock,
            began=self.began,
            ended=time.time(),
            calls=self.admin.calls - self.calls,
            events=self.events,
            topics={},
        )


async def _tenants(
    admin: AdminClient, selection: Selection, attempts: PartialReads
) -> tuple[list[TenantState], list[NamespaceName]]:
    names = await tenant_names(admin, selection)
    if selection.named_tenants is None:
        names = [name for name in names if name != BROKERS_TENANT]
    answers = await asyncio.gather(*(read_tenant(admin, name, attempts, listing=name) for name in names))
    tenants = [answer for answer in answers if answer is not None]
    chosen = [namespace for _, namespaces in tenants for namespace in namespaces if selection.has(namespace)]
    unnamed = {PUBLIC_DEFAULT} if not selection.names(PUBLIC_DEFAULT) else set()
    return [tenant for tenant, _ in tenants], [namespace for namespace in chosen if namespace not in unnamed]


async def _namespaces(
    admin: AdminClient, names: Sequence[NamespaceName], seal: Redactor, attempts: PartialReads
) -> list[NamespaceState]:
    async def read(name: NamespaceName) -> NamespaceState | None:
        document = await attempts.read(str(name), read_namespace(admin, name, seal, local=False))
        return None if document is None else NamespaceState(str(name), document)

    return [one for one in await asyncio.gather(*map(read, names)) if one is not None]


async def _topics(admin: AdminClient, namespace: NamespaceName) -> frozenset[str]:
    try:
        listed = (*await admin.topics(namespace), *await read_partitioned(admin, namespace))
    except NotFound:
        return frozenset()
    return frozenset(str(topic.parent) for topic in listed) | frozenset(map(str, listed))
