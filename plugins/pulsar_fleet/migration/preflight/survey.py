"""Read what the gates look at from both clusters. Changes nothing; loads the topics of the namespaces on blue.

Calls: those of two snapshots (six for a namespace, two for a topic, a fixed number for the cluster and each broker),
one for the clients of each topic on blue, one for each namespace's non-persistent topics, a few for the redirect.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Area, Problem
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import FUNCTIONS_STATE, NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.migration.cutover.redirect import names_addresses, redirect_to, stored_redirect
from pulsar_fleet.migration.preflight.redirect_probe import advertised_addresses, try_redirect
from pulsar_fleet.migration.preflight.view import ClusterFacts, Survey
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.migration.stats.read import read_partitions, required_stats
from pulsar_fleet.preflight.schema_probe import ask_about_schemas
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.tenants import list_namespaces

_RUNNING = ("function", "source", "sink")


async def survey(blue: AdminClient, green: AdminClient, names: Sequence[NamespaceName], *, seal: Redactor) -> Survey:
    """Everything that the gates look at; what cannot be read is in it as such.

    :raises Denied: a cluster does not know us at all.
    :raises Transient: a cluster no longer answers.
    """
    began, before = time.monotonic(), blue.calls + green.calls
    on_blue, on_green = await asyncio.gather(_cluster(blue, names, seal), _cluster(green, names, seal))
    ours, theirs = _Held.of(on_blue.snapshot), _Held.of(on_green.snapshot)
    namespaces = await asyncio.gather(*(_namespace(blue, green, name, ours, theirs) for name in names))
    attempts = PartialReads()
    advertised = await attempts.read("addresses of the brokers", advertised_addresses(green), area=Area.BROKERS) or {}
    redirect = redirect_to(green.connection, next(iter(advertised.values()), {}))
    redirecting = await try_redirect(blue.connection, green.connection, redirect, advertised)
    answers = await attempts.read("schemas", ask_about_schemas(green, on_blue.snapshot, on_green.snapshot)) or ()
    on_green = ClusterFacts(
        snapshot=on_green.snapshot, redirect=on_green.redirect, notes=(*on_green.notes, *attempts.take_notes())
    )
    flagged: tuple[str, ...] | None = ()
    if not names_addresses(on_blue.redirect, redirecting.document):
        flagged = await _flagged(blue, frozenset(names))
    return Survey(
        blue=on_blue,
        green=on_green,
        redirecting=redirecting,
        namespaces=tuple(namespaces),
        flagged=flagged,
        home=await _home(blue, on_green.redirect),
        answers=answers,
        calls=blue.calls + green.calls - before,
        seconds=time.monotonic() - began,
    )


async def survey_partitions(admin: AdminClient, partitions: Iterable[TopicName]) -> tuple[TopicStats, ...]:
    """Statistics of each partition: the broker's sum leaves out, in silence, what it cannot load."""
    found = await required_stats(admin, partitions)
    return tuple(found.values())


async def _cluster(admin: AdminClient, names: Sequence[NamespaceName], seal: Redactor) -> ClusterFacts:
    snapshot = await collect(admin, Selection(namespaces=frozenset(names)), seal=seal)
    attempts = PartialReads()
    redirect = await attempts.read("redirect", _redirect(admin, snapshot.cluster), area=Area.CLUSTERS)
    if any(note.resource == "functions" and note.problem == Problem.NOT_OFFERED for note in snapshot.notes):
        await _look_for_other_workers(admin, attempts)
    return ClusterFacts(snapshot=snapshot, redirect=redirect, notes=tuple(attempts.take_notes()))


async def _redirect(admin: AdminClient, cluster: str) -> JsonObject:
    return await stored_redirect(admin, cluster) or {}


async def _look_for_other_workers(admin: AdminClient, attempts: PartialReads) -> None:
    """Brokers without a worker say nothing about workers beside them, which keep their state in a namespace."""
    listed = await attempts.read("functions: namespaces of public", admin.namespaces("public"))
    there = FUNCTIONS_STATE in (listed or ())
    held = await attempts.read("functions: topics", admin.topics(FUNCTIONS_STATE)) if there else ()
    if held:
        detail = f"{FUNCTIONS_STATE} holds the state of functions workers, and the brokers do not answer for them"
        attempts.note("functions", Problem.UNREADABLE, detail)


@dataclass(frozen=True, slots=True)
class _Held:
    """What one snapshot holds, by namespace."""

    cluster: str
    policies: Mapping[str, JsonObject]
    topics: Mapping[str, Mapping[TopicName, int]]
    lists: Mapping[str, Mapping[TopicName, frozenset[str]]]
    runs: Mapping[str, Sequence[str]]
    clients: Mapping[str, Mapping[str, int]]
    unread: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Held:
        topics: dict[str, dict[TopicName, int]] = defaultdict(dict)
        for one in snapshot.topics:
            name = TopicName.parse(one.name)
            topics[str(name.namespace)][name] = one.partitions
        lists: dict[str, dict[TopicName, frozenset[str]]] = defaultdict(dict)
        for policy in snapshot.topic_policies:
            name = TopicName.parse(policy.topic)
            if policy.policies.get("replicationClusters"):
                lists[str(name.namespace)][name] = frozenset(policy.policies["replicationClusters"])
        runs: dict[str, list[str]] = defaultdict(list)
        clients: dict[str, dict[str, int]] = defaultdict(dict)
        for found in snapshot.inventory:
            if found.kind in _RUNNING:
                runs[found.namespace].append(f"{found.kind} {found.name!r}")
            elif found.kind == "client":
                clients[found.namespace][found.name] = sum(int(count) for count in found.detail.values())
        unread = frozenset(note.resource for note in snapshot.unreadable)
        policies = {one.name: one.policies for one in snapshot.namespaces}
        return cls(snapshot.cluster, policies, topics, lists, runs, clients, unread)


async def _namespace(
    blue: AdminClient, green: AdminClient, name: NamespaceName, ours: _Held, theirs: _Held
) -> NamespaceFacts:
    text, attempts = str(name), PartialReads()
    document, topics = ours.policies.get(text), dict(ours.topics.get(text, {}))
    if document is not None:
        topics |= await attempts.read(text, _non_persistent(blue, name)) or {}
    listed, own = frozenset((document or {}).get("replication_clusters") or ()), ours.lists.get(text, {})
    links = {topic: own.get(topic, listed) - {ours.cluster} for topic in topics if topic.persistent}
    partitions, unread = await read_partitions(blue, topics, links)
    there = theirs.policies.get(text)
    if there is None and text in theirs.unread:
        # A cluster that its own list does not name answers 412 to all about a namespace but the document itself.
        there = await attempts.read(text, green.namespace(name))
    return NamespaceFacts(
        namespace=name,
        blue=document,
        green=there,
        topics=topics,
        green_topics=theirs.topics.get(text, {}),
        partitions=partitions,
        links=links,
        unread=(*unread, *attempts.take_notes()),
        runs=tuple(ours.runs.get(text, ())),
        green_clients=theirs.clients.get(text, {}),
    )


async def _non_persistent(blue: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Those without partitions: they are there only while somebody uses them, and no snapshot holds them."""
    listed = await blue.get(f"/namespaces/{name.path}/topics", mode="NON_PERSISTENT")
    topics = (TopicName.parse(text) for text in listed)
    return {topic: 0 for topic in topics if topic.partition_index is None and not topic.is_system}


async def _home(blue: AdminClient, stored_on_green: JsonObject | None) -> frozenset[str]:
    """Addresses that lead to blue; those that cannot be read are missing, and then nothing leads there."""
    if not (stored_on_green or {}).get("migratedClusterUrl"):
        return frozenset()
    try:
        advertised = [{}, *(await advertised_addresses(blue)).values()]
        redirects = [redirect_to(blue.connection, one).document for one in advertised]
    except FleetError:
        return frozenset()
    return frozenset(str(url) for one in (*advertised, *redirects) for url in one.values())


async def _flagged(blue: AdminClient, moving: frozenset[NamespaceName]) -> tuple[str, ...] | None:
    """Namespaces of the whole cluster, beside those that move, that are flagged; None if not all could be read."""
    try:
        listed = await list_namespaces(blue, await blue.tenants())
        names = sorted(name for found in listed.values() for name in found or () if name not in moving)
        documents = await asyncio.gather(*(blue.namespace(name) for name in names))
    except FleetError:
        return None
    return tuple(str(name) for name, found in zip(names, documents, strict=True) if (found or {}).get("migrated"))
