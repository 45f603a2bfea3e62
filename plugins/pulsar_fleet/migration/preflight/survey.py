"""Read from both clusters what the gates check. Changes nothing.

It loads the topics of the namespaces on blue, and those on green to which blue replicates.

Calls: those of two snapshots (six for a namespace, two for a topic, a fixed number for the cluster and each broker),
two for the clients and the compacted view of each topic on blue, one for its transactions where brokers have them, a
few for a topic that is replicated to green already, one for each namespace's non-persistent topics, a few for the
redirect.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.admin.partial_reads import FUNCTIONS, Area, PartialReads, Problem
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import FUNCTIONS_STATE, SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor, without_user_info
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import read_partitions
from pulsar_fleet.migration.cutover.redirect import has_addresses, redirect_to
from pulsar_fleet.migration.cutover.termination import ended_by_owner
from pulsar_fleet.migration.facts import (
    EffectivePolicies,
    FlaggedNamespace,
    NamespaceFacts,
    compacting_topics,
    retained_by,
)
from pulsar_fleet.migration.preflight.copied_policies import (
    may_transact,
    read_compacted,
    read_transacted,
    read_uncopied,
)
from pulsar_fleet.migration.preflight.redirect_probe import (
    addresses_of_all,
    advertised_addresses,
    probe_redirect,
    probe_stored,
)
from pulsar_fleet.migration.preflight.view import (
    AddressProbe,
    ClusterFacts,
    GreenTargets,
    Survey,
    flagged_names,
    read_flagged,
    verified_addresses,
)
from pulsar_fleet.migration.scope import namespaces_besides
from pulsar_fleet.preflight.bookies import read_bookies
from pulsar_fleet.preflight.schema_probe import probe_schemas
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import InventoryState, Snapshot
from pulsar_fleet.snapshot.resources import lists_of_topics

_RUNNING = ("function", "source", "sink")


async def survey(
    blue: AdminClient,
    green: AdminClient,
    names: Sequence[NamespaceName],
    run: Run,
    *,
    redactor: Redactor,
    properties: bool = False,
) -> Survey:
    """Read everything that the gates check; it includes what could not be read.

    :param run: its ledger says which flagged namespaces were moved before, and to which addresses.
    :param properties: the gates compare the properties of subscriptions too: one more call for each topic with one.
    :raises PermissionDenied: a cluster does not accept our credentials.
    :raises Unavailable: a cluster does not answer any more.
    """
    began, before = time.monotonic(), blue.calls + green.calls
    on_blue, on_green = await asyncio.gather(
        *(_cluster(admin, names, redactor, properties=properties) for admin in (blue, green))
    )
    blue_contents, green_contents = _Contents.of(on_blue.snapshot), _Contents.of(on_green.snapshot)
    namespaces = await asyncio.gather(*(_namespace(blue, green, name, blue_contents, green_contents) for name in names))
    on_blue = replace(on_blue, snapshot=_with_acknowledgments(on_blue.snapshot, namespaces))
    attempts = PartialReads()
    advertised = await attempts.read("addresses of the brokers", advertised_addresses(green), area=Area.BROKERS) or {}
    redirect = redirect_to(green.connection, addresses_of_all(advertised), admin=not on_blue.unflagged)
    redirect_probe = await probe_redirect(blue.connection, green.connection, redirect, advertised)
    answers = await attempts.read("schemas", probe_schemas(green, on_blue.snapshot, on_green.snapshot)) or ()
    on_green = ClusterFacts(
        snapshot=on_green.snapshot, redirect=on_green.redirect, notes=(*on_green.notes, *attempts.take_notes())
    )
    flagged: tuple[FlaggedNamespace, ...] | None = ()
    stored_probes: tuple[AddressProbe, ...] = ()
    if not has_addresses(on_blue.redirect, redirect_probe.document):
        targets = GreenTargets(on_green.snapshot.brokers, verified_addresses(redirect_probe.to_json()))
        flagged = await read_flagged(blue, green, run, frozenset(names), targets)
        stored_probes = await probe_stored(green.connection, on_blue.redirect_addresses, advertised)
    home = await _home(blue, on_green.redirect)
    on_green_flagged = await flagged_names(green) if on_green.broker_addresses - home else ()
    return Survey(
        blue=on_blue,
        green=on_green,
        redirect_probe=redirect_probe,
        namespaces=tuple(namespaces),
        stored_probes=stored_probes,
        flagged=flagged,
        flagged_on_green=None if on_green_flagged is None else tuple(map(str, on_green_flagged)),
        home=home,
        left_out=await _left_out(blue, names) if on_blue.unflagged else (),
        answers=answers,
        bookies=await read_bookies(green),
        calls=blue.calls + green.calls - before,
        seconds=time.monotonic() - began,
    )


def _with_acknowledgments(snapshot: Snapshot, namespaces: Iterable[NamespaceFacts]) -> Snapshot:
    """The ranges of acknowledgments from the statistics that were read of every partition."""
    ranges = {
        (str(partition.topic), name): subscription.acknowledged_ranges
        for facts in namespaces
        for partition in facts.partitions
        for name, subscription in partition.subscriptions.items()
    }
    rows = tuple(
        replace(row, acknowledged_ranges=ranges.get((row.partition, row.name), row.acknowledged_ranges))
        for row in snapshot.subscriptions
    )
    return replace(snapshot, subscriptions=rows)


async def _left_out(blue: AdminClient, names: Sequence[NamespaceName]) -> tuple[str, ...] | None:
    try:
        return await namespaces_besides(blue, names)
    except FleetError:
        return None


async def _cluster(
    admin: AdminClient, names: Sequence[NamespaceName], redactor: Redactor, *, properties: bool
) -> ClusterFacts:
    selection = Selection(namespaces=frozenset(names))
    snapshot = await collect(admin, selection, redactor=redactor, load_topics=properties)
    attempts = PartialReads()
    redirect = await attempts.read("redirect", _redirect(admin, snapshot.cluster), area=Area.CLUSTERS)
    if any(note.resource == FUNCTIONS and note.problem == Problem.NOT_OFFERED for note in snapshot.notes):
        await _note_external_workers(admin, attempts)
    return ClusterFacts(snapshot=snapshot, redirect=redirect, notes=tuple(attempts.take_notes()))


async def _redirect(admin: AdminClient, cluster: str) -> JsonObject:
    return dict(without_user_info(await stored_redirect(admin, cluster) or {}))


async def _note_external_workers(admin: AdminClient, attempts: PartialReads) -> None:
    """Brokers without a worker do not report external workers, which store their state in a namespace."""
    listed = await attempts.read("functions: namespaces of public", admin.namespaces("public"))
    exists = FUNCTIONS_STATE in (listed or ())
    topics = await attempts.read("functions: topics", admin.topics(FUNCTIONS_STATE)) if exists else ()
    if topics:
        detail = f"{FUNCTIONS_STATE} has the state of functions workers, and the brokers do not answer for them"
        attempts.note(FUNCTIONS, Problem.UNREADABLE, detail)


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a snapshot, by namespace."""

    cluster: str
    policies: Mapping[str, JsonObject]
    topics: Mapping[str, Mapping[TopicName, int]]
    lists: Mapping[str, Mapping[TopicName, frozenset[str]]]
    functions: Mapping[str, Sequence[str]]
    clients: Mapping[str, Mapping[str, int]]
    retained: Mapping[str, str]
    terminated: Mapping[str, Mapping[TopicName, int]]
    shadows: Mapping[str, Mapping[TopicName, str]]
    scalable: Sequence[InventoryState]
    compacting: frozenset[TopicName]
    transactional: bool
    unread: frozenset[str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Contents:
        topics: dict[str, dict[TopicName, int]] = defaultdict(dict)
        terminated: dict[str, dict[TopicName, int]] = defaultdict(dict)
        shadows: dict[str, dict[TopicName, str]] = defaultdict(dict)
        for topic in snapshot.topics:
            name = TopicName.parse(topic.name)
            topics[str(name.namespace)][name] = topic.partitions
            if topic.terminated:
                terminated[str(name.namespace)][name] = topic.partitions
            if SHADOW_SOURCE in topic.properties:
                shadows[str(name.namespace)][name] = topic.properties[SHADOW_SOURCE]
        lists: dict[str, dict[TopicName, frozenset[str]]] = defaultdict(dict)
        for name, clusters in lists_of_topics(snapshot.topic_policies).items():
            lists[str(name.namespace)][name] = clusters
        functions: dict[str, list[str]] = defaultdict(list)
        clients: dict[str, dict[str, int]] = defaultdict(dict)
        for item in snapshot.inventory:
            if item.kind in _RUNNING:
                functions[item.namespace].append(f"{item.kind} {item.name!r}")
            elif item.kind == "client":
                clients[item.namespace][item.name] = sum(int(count) for count in item.detail.values())
        unread = frozenset(note.resource for note in snapshot.unreadable)
        policies = {state.name: state.policies for state in snapshot.namespaces}
        effective = EffectivePolicies(snapshot)
        return cls(
            snapshot.cluster,
            policies,
            topics,
            lists,
            functions,
            clients,
            retained_by(effective),
            terminated,
            shadows,
            snapshot.scalable_topics,
            compacting_topics(effective, (name for inside in topics.values() for name in inside)),
            may_transact(snapshot),
            unread,
        )


async def _namespace(
    blue: AdminClient, green: AdminClient, name: NamespaceName, contents: _Contents, green_contents: _Contents
) -> NamespaceFacts:
    text, attempts = str(name), PartialReads()
    document, topics = contents.policies.get(text), dict(contents.topics.get(text, {}))
    if document is not None:
        topics |= await attempts.read(text, _non_persistent(blue, name)) or {}
    listed, own = frozenset((document or {}).get("replication_clusters") or ()), contents.lists.get(text, {})
    links = {topic: own.get(topic, listed) - {contents.cluster} for topic in topics if topic.persistent}
    partitions, unread = await read_partitions(blue, topics, links)
    shadows = contents.shadows.get(text, {})
    stored = [
        stats.topic
        for stats in partitions
        if stats.exists and stats.topic.persistent and stats.topic.parent not in shadows
    ]
    compacted, unread_views = await read_compacted(blue, stored, contents.compacting)
    transacted, unread_buffers = await read_transacted(blue, stored if contents.transactional else ())
    linked = [stats for stats in partitions if green_contents.cluster in links.get(stats.topic.parent, ())]
    with_messages = frozenset(stored)
    copied = [stats for stats in linked if stats.topic in with_messages]
    uncopied, unread_copies = await read_uncopied(blue, green, copied)
    ended = await asyncio.gather(
        *(
            attempts.read(str(topic), ended_by_owner(blue, topic, topic.partitions(count), stored))
            for topic, count in contents.terminated.get(text, {}).items()
        )
    )
    on_green = green_contents.policies.get(text)
    if on_green is None and text in green_contents.unread:
        # A cluster that is not in the namespace's cluster list answers 412 to every call except for the policies.
        on_green = await attempts.read(text, green.namespace(name))
    return NamespaceFacts(
        namespace=name,
        blue=document,
        green=on_green,
        topics=topics,
        partitions=partitions,
        links=links,
        unread=(*unread, *unread_views, *unread_buffers, *attempts.take_notes()),
        unread_copies=tuple(unread_copies),
        functions=tuple(contents.functions.get(text, ())),
        green_clients=green_contents.clients.get(text, {}),
        retained=contents.retained.get(text, ""),
        scalable=tuple(item.name for item in contents.scalable if item.namespace == text),
        ended=tuple(partition for of_topic in ended for partition in of_topic or ()),
        shadows=shadows,
        compacted=compacted,
        transacted=transacted,
        uncopied=uncopied,
    )


async def _non_persistent(blue: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Plain non-persistent topics: they exist only while clients use them, and no snapshot has them."""
    listed = await blue.get(f"/namespaces/{name.path}/topics", mode="NON_PERSISTENT")
    topics = (TopicName.parse(text) for text in listed)
    return {topic: 0 for topic in topics if topic.partition_index is None and not topic.is_system}


async def _home(blue: AdminClient, stored_on_green: JsonObject | None) -> frozenset[str]:
    """Addresses that lead to blue; empty where they cannot be read."""
    if not (stored_on_green or {}).get("migratedClusterUrl"):
        return frozenset()
    try:
        advertised = [{}, *(await advertised_addresses(blue)).values()]
        redirects = [redirect_to(blue.connection, addresses).document for addresses in advertised]
    except FleetError:
        return frozenset()
    return frozenset(str(url) for addresses in (*advertised, *redirects) for url in addresses.values())
