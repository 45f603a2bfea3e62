"""What is left out or refused before anything is written, and whether what lacks values was created again (client).

A cluster that is added to the list of a namespace, tenant or topic is checked as by an onboarding (PIP-433); of the
policies, those that the table of limits names.

The admin API tells when a topic was created, but not a namespace or a tenant. A namespace is deleted with all its
topics, also `__change_events`, and a tenant after all its namespaces (measured, 4.2.4): so one topic that existed when
the values were last observed proves that nothing was created again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SYSTEM_TENANT, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import STORE_OF, comparable
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, TopicPolicyField
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.apply.outcome import creates_resource, left_without
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards import OtherDirection
from pulsar_fleet.planning.plan import Change, LeftAlone, Plan
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, is_cluster_list
from pulsar_fleet.policy_sync.merge.identity import identity_at
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, Span, span_of
from pulsar_fleet.policy_sync.merge.view import Identity, Item
from pulsar_fleet.preflight.bookies import Bookies, read_bookies
from pulsar_fleet.preflight.checks.clusters import configuration_stores_differ
from pulsar_fleet.preflight.checks.versions import unmeasured_versions
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.context import Measurements, Pair, Probes
from pulsar_fleet.preflight.findings import blockers
from pulsar_fleet.preflight.schema_probe import probe_schemas
from pulsar_fleet.preflight.target_limits import BOOKIES, ENCRYPTION, Effective
from pulsar_fleet.snapshot.cluster_reader import read_tenant
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.resources import lists_of_topics

log = logging.getLogger(__name__)

_Read = dict[tuple[str, Selection], Snapshot]
_LIST, _PERSISTENCE, _ENCRYPTION = "replication_clusters", "persistence", "encryption_required"


async def leave_incompatible_out(
    plan: Plan, clusters: Mapping[str, AdminClient], behind: Mapping[str, str], redactor: Redactor, snapshot: Snapshot
) -> tuple[Plan, frozenset[str]]:
    """The plan without lists that would begin a replication which cannot work, and without `harmful_policies`.

    Nothing is written. Two calls where a plan sets the copies of messages.

    For each added cluster the resource is read on both clusters, and the checks of onboarding are made in both
    directions. A cluster that cannot be asked is not added: what is unknown is not compatible.

    :param clusters: the clusters of this process that answered, by name; the target of the plan is one of them.
    :param behind: connection of this process → why its cluster did not answer.
    :param snapshot: the target before the plan.
    :returns: also the names of the resources that a later check may admit, since a cluster does not answer now.
    """
    asks = any(_PERSISTENCE in _written(change) for change in plan.changes)
    bookies = await read_bookies(clusters[plan.target]) if asks else None
    if bookies and bookies.count is None:
        log.warning("how many bookies %s has is unknown, and the plan sets ensembles: %s", plan.target, bookies.unread)
    reasons = harmful_policies(plan, snapshot, bookies)
    undecided: set[str] = set()
    read: _Read = {}
    for change in plan.changes:
        try:
            if reason := await _refusal(change, plan.target, clusters, behind, redactor, read):
                reasons[change.id] = reason
        except Unavailable as error:
            reasons[change.id] = str(error)
            undecided.add(change.name)
    absent = {
        (one.resource, one.name): reasons[one.id] for one in plan.changes if creates_resource(one) and one.id in reasons
    }
    reasons = {**left_without(plan.changes, absent), **reasons}
    refused = [change for change in plan.changes if change.id in reasons]
    kept = tuple(_with_ways_back(change, plan.target, read) for change in plan.changes if change.id not in reasons)
    left_alone = tuple(LeftAlone(change.resource, change.name, change.field, reasons[change.id]) for change in refused)
    return replace(plan, changes=kept, left_alone=(*plan.left_alone, *left_alone)), frozenset(undecided)


def harmful_policies(plan: Plan, snapshot: Snapshot, bookies: Bookies | None) -> dict[str, str]:
    """Id of each change by which topics could not be used, or replicators would be refused → why (pure).

    The cluster accepts these policies. What it refuses itself is a failed change, and needs no guard.
    """
    documents = {state.name: dict(state.policies) for state in snapshot.namespaces}
    for change in plan.changes:
        if change.resource is Resource.POLICY:
            documents.setdefault(change.name, {})[change.field] = change.after
        elif change.resource is Resource.NAMESPACE and not change.field:
            documents[change.name] = dict(change.after or {})
    lists = dict(lists_of_topics(snapshot.topic_policies))
    for change in plan.changes:
        if _is_of_topic(change) and (clusters := _written(change).get(TOPIC_CLUSTERS)):
            lists[TopicName.parse(change.name)] = frozenset(clusters)
    replicated = {name for name, document in documents.items() if len(document.get(_LIST) or ()) > 1}
    replicated |= {str(topic.namespace) for topic, clusters in lists.items() if len(clusters) > 1}
    reasons: dict[str, str] = {}
    for change in plan.changes:
        written, of_topic = _written(change), _is_of_topic(change)
        name = str(TopicName.parse(change.name).namespace) if of_topic else change.name
        document = documents.get(name, {})
        after = Effective(
            cluster=plan.target,
            namespace=comparable(document, plan.target),
            local=written if of_topic else {},
            configuration=snapshot.brokers[0].configuration if snapshot.brokers else {},
            bookies=bookies,
        )
        for field, limit in ((_PERSISTENCE, BOOKIES), *([(_ENCRYPTION, ENCRYPTION)] if name in replicated else [])):
            if written.get(field) and (exceeded := limit.exceeded(after, after)):
                reasons[change.id] = f"{limit.ids[0]}: {exceeded.evidence}; {limit.effect}"
    return reasons


def _with_ways_back(change: Change, own: str, read: _Read) -> Change:
    """The change as one that needs permission where it completes a replication in one direction."""
    for name in added_clusters(change, own):
        selection = _selection(change)
        change = OtherDirection(read[name, selection], read[own, selection]).with_risk(change)
    return change


def _written(change: Change) -> Mapping[str, Json]:
    """Policy → the value that a change gives it."""
    if change.resource is Resource.NAMESPACE and not change.field:
        return change.after or {}
    if change.resource is Resource.POLICY:
        return {change.field: change.after}
    return {TopicPolicyField.parse(change.field).policy: change.after} if _is_of_topic(change) else {}


def added_clusters(change: Change, own: str) -> tuple[str, ...]:
    """The clusters that a change adds to a list of its namespace, tenant or topic (pure)."""
    before, after = _lists(change, change.before), _lists(change, change.after)
    return tuple(sorted({name for field, names in after.items() for name in names - before.get(field, set())} - {own}))


def _lists(change: Change, value: Json) -> dict[str, set[str]]:
    if change.resource is Resource.TENANT:
        return {CLUSTERS: set((value or {}).get(CLUSTERS) or ())}
    if change.resource is Resource.NAMESPACE:
        return {field: set(names or ()) for field, names in (value or {}).items() if is_cluster_list(field)}
    if change.resource in (Resource.POLICY, Resource.TOPIC_POLICY) and is_cluster_list(change.field):
        return {change.field: set(value or ())}
    return {}


async def _refusal(
    change: Change,
    own: str,
    clusters: Mapping[str, AdminClient],
    behind: Mapping[str, str],
    redactor: Redactor,
    read: _Read,
) -> str:
    """Why a cluster is not added, as one sentence; empty if all may be.

    :param read: what was read of clusters before; it grows.
    :raises Unavailable: that is unknown as long as a cluster does not answer.
    """
    for name in added_clusters(change, own):
        not_now = f"{name} is not added to the list on {own} now, because it could not be checked"
        if name not in clusters and behind:
            raise Unavailable(f"{not_now}: {'; '.join(behind.values())}")
        if name not in clusters:
            return (
                f"{name} is not added, because this process has no connection to it and so cannot check that {own} and "
                f"{name} are compatible: name the connection of {name} too"
            )
        try:
            problem = await _incompatibility(change, (own, name), clusters, redactor, read)
        except Unavailable as error:
            raise Unavailable(f"{not_now}: {error}", cluster=error.cluster) from error
        except FleetError as error:
            problem = f"it could not be checked: {error}"
        if problem:
            return f"{name} is not added to the list on {own}: {problem}"
    return ""


async def _incompatibility(
    change: Change, pair: tuple[str, str], clusters: Mapping[str, AdminClient], redactor: Redactor, read: _Read
) -> str:
    selection = _selection(change)
    for name in pair:
        # Many topics of a namespace may get the same list.
        if (name, selection) not in read:
            read[name, selection] = await collect(clusters[name], selection, redactor=redactor)
    ours, theirs = (read[name, selection] for name in pair)
    here, there = (_replicated(_concerned(snapshot, change), pair) for snapshot in (ours, theirs))
    directions = (_Direction(here, there, clusters[pair[1]]), _Direction(there, here, clusters[pair[0]]))
    for direction in directions:
        if problem := await direction.problem():
            return problem
    return ""


def _selection(change: Change) -> Selection:
    if change.resource is Resource.TENANT:
        return Selection.parse([change.name])
    name = TopicName.parse(change.name).namespace if _is_of_topic(change) else NamespaceName.parse(change.name)
    return Selection(namespaces=frozenset({name}))


def _is_of_topic(change: Change) -> bool:
    return change.resource is Resource.TOPIC_POLICY


def _concerned(snapshot: Snapshot, change: Change) -> Snapshot:
    """Of a topic's own list only this topic: the others of its namespace are not sent by it."""
    if not _is_of_topic(change):
        return snapshot
    return replace(
        snapshot,
        topics=tuple(row for row in snapshot.topics if row.name == change.name),
        schemas=tuple(row for row in snapshot.schemas if row.topic == change.name),
        subscriptions=tuple(row for row in snapshot.subscriptions if row.topic == change.name),
        topic_policies=tuple(row for row in snapshot.topic_policies if row.topic == change.name),
    )


def _replicated(snapshot: Snapshot, pair: Collection[str]) -> Snapshot:
    """The cluster as it will be when its namespaces replicate between the two."""
    both = sorted(pair)
    return replace(
        snapshot,
        namespaces=tuple(
            replace(state, policies={**state.policies, "replication_clusters": both}) for state in snapshot.namespaces
        ),
    )


@dataclass(frozen=True, slots=True)
class _Direction:
    source: Snapshot
    target: Snapshot
    admin: AdminClient

    async def problem(self) -> str:
        schemas = await probe_schemas(self.admin, self.source, self.target)
        probes = Probes(schemas=schemas, target=Measurements(bookies=await read_bookies(self.admin)))
        for finding in blockers(check_compatibility(self.source, self.target, probes)):
            return f"{finding.id} on {finding.resource}: {finding.evidence}; {finding.remedy.rstrip('.')}"
        return ""


async def refuse_shared_stores(clusters: Mapping[str, AdminClient], snapshots: Mapping[str, Snapshot]) -> None:
    """Refuse two clusters with one store: every write on one is a write on the other, and a list of clusters for one
    deletes the topics of the other.

    The system tenant of each cluster is read too, by two calls: it allows its own cluster only, unless the store is
    shared.

    :raises InvalidRequest: two clusters share a store.
    """
    names = sorted(snapshots)
    evidence = await asyncio.gather(*(_with_system_tenant(clusters[name], snapshots[name]) for name in names))
    if sentence := shared_store(dict(zip(names, evidence, strict=True))):
        raise InvalidRequest(sentence)


def shared_store(snapshots: Mapping[str, Snapshot]) -> str:
    """Which two clusters share a store, and what to do, as one sentence; empty if none do (pure)."""
    for first, second in combinations(sorted(snapshots), 2):
        pair = Pair(snapshots[first], snapshots[second], snapshots[first])
        for finding in configuration_stores_differ(pair):
            return (
                f"Clusters {first} and {second} share a configuration store ({finding.evidence}), so they have the "
                "same tenants and namespaces already: name the connection of only one of them."
            )
    return ""


async def claim_store(admin: AdminClient, own: str, namespace: NamespaceName) -> None:
    """Name a cluster in the namespace of the event topic as the one that takes part with its store, if none is named.

    Clusters with one store have one such namespace, so each sees there which of them takes part, whoever else runs.
    At most three calls; none that writes if the cluster is named already.

    :raises InvalidRequest: another cluster is named.
    """
    document = await admin.namespace(namespace) or {}
    refuse_claimed_store(own, namespace, document)
    if not claimed_by(document):
        await admin.put(f"/namespaces/{namespace.path}/properties", {STORE_OF: own})
        # Another process may have named another cluster meanwhile.
        refuse_claimed_store(own, namespace, await admin.namespace(namespace) or {})


def refuse_claimed_store(own: str, namespace: NamespaceName, document: JsonObject) -> None:
    """Refuse a cluster whose store another cluster takes part with (pure).

    :param document: the policies of the event topic's namespace on this cluster; empty if it is missing.
    :raises InvalidRequest: another cluster is named there.
    """
    if (other := claimed_by(document)) not in ("", own):
        raise InvalidRequest(
            f"Cluster {own} shares a configuration store with {other}, which takes part in these events: the property "
            f"{STORE_OF} of {namespace} on {own} is {other!r}. What changes on one of the two changes on the other, "
            "and a list of clusters for one deletes the topics of the other: name the connection of "
            f"{other} and not that of {own}. If {other} is out of service for good, remove the property "
            f"(DELETE /admin/v2/namespaces/{namespace.path}/property/{STORE_OF} on {own}) and run again.",
            cluster=own,
        )


def claimed_by(document: JsonObject) -> str:
    """The cluster that takes part with the store of this namespace; empty if none is named (pure)."""
    return str((document.get("properties") or {}).get(STORE_OF) or "")


async def _with_system_tenant(admin: AdminClient, snapshot: Snapshot) -> Snapshot:
    answer = await read_tenant(admin, SYSTEM_TENANT, PartialReads(), listing=SYSTEM_TENANT)
    others = tuple(tenant for tenant in snapshot.tenants if tenant.name != SYSTEM_TENANT)
    return replace(snapshot, tenants=(*others, answer[0]) if answer else others)


_MOST_TOPICS = 10
_MOST_NAMESPACES = 10


async def read_identity(admin: AdminClient, item: Item, at: float, clock: ClockSkew) -> Identity:
    """Whether a resource is the one that existed at a time; what cannot be read proves nothing.

    Calls: one for a topic, up to 11 for a namespace, up to 111 for a tenant; it stops at the first proof.

    :param at: in seconds since 1970 by our clock.
    """
    if at <= UNKNOWN:
        return Identity.UNKNOWN
    kind, name = item
    try:
        if kind in (Resource.TOPIC, Resource.TOPIC_POLICY):
            return await _topic(admin, TopicName.parse(name), at, clock)
        namespaces = (NamespaceName.parse(name),) if kind is Resource.NAMESPACE else await admin.namespaces(name)
        for namespace in namespaces[:_MOST_NAMESPACES]:
            if await _has_older_topic(admin, namespace, at, clock):
                return Identity.SAME
    except FleetError as error:
        log.info("whether %s %s was created again on %s is unknown: %s", kind, name, admin.connection.name, error)
    return Identity.UNKNOWN


async def _has_older_topic(admin: AdminClient, namespace: NamespaceName, at: float, clock: ClockSkew) -> bool:
    topics = await admin.topics(namespace, system=True)
    # The topic of the policies is the oldest one in most namespaces.
    persistent = sorted((topic for topic in topics if topic.persistent), key=lambda topic: (not topic.is_system, topic))
    for topic in persistent[:_MOST_TOPICS]:
        if await _topic(admin, topic, at, clock) is Identity.SAME:
            return True
    return False


async def _topic(admin: AdminClient, topic: TopicName, at: float, clock: ClockSkew) -> Identity:
    try:
        info = await admin.internal_info(topic, answered_retry_seconds=0)
    except FleetError:
        return Identity.UNKNOWN
    return identity_at(list(_created(info, clock)), at)


def _created(info: JsonObject, clock: ClockSkew) -> Iterable[Span]:
    """When the topic, or each partition, was created, by our clock."""
    for part in (info, *(info.get("partitions") or {}).values()):
        if text := part.get("creationDate"):
            created = datetime.fromisoformat(text)
            if created.tzinfo is not None:
                yield span_of(int(created.timestamp() * 1000), clock, 0.0)


def unmeasured_brokers(snapshot: Snapshot) -> tuple[str, ...]:
    """What is not known of the versions of a cluster's brokers, a sentence each (pure)."""
    return unmeasured_versions(snapshot.cluster, (broker.version for broker in snapshot.brokers))
