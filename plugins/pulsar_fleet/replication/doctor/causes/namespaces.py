"""Causes in lists of clusters, tenants and namespaces (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.replication.doctor.causes.cluster_data import storing_peer
from pulsar_fleet.replication.doctor.causes.pair import Explained, NamespacePair, diagnosis, on
from pulsar_fleet.replication.doctor.facts import FleetFacts, NamespaceFacts
from pulsar_fleet.replication.doctor.model import RemedyCall

_AUTO_CREATION = {"topicType": "allowAutoTopicCreationType", "defaultNumPartitions": "defaultNumPartitions"}


def find_namespace_cause(pair: NamespacePair) -> Iterator[Explained]:
    """The cause that keeps the whole namespace from being replicated to the target."""
    there = pair.there
    if pair.here.migrated and pair.failing:
        yield pair.diagnose("namespace-migrated", f"It is flagged on {pair.source}.", explained=pair.failing)
    elif there is None or there.exists is None:
        return
    elif not there.exists:
        yield _without_namespace(pair, there)
    elif there.cluster not in (there.clusters or there.allowed_clusters):
        yield _without_own_name(pair, there)
    elif there.migrated:
        yield pair.diagnose("namespace-migrated", f"It is flagged on {pair.target}.", explained=pair.failing)


def _without_namespace(pair: NamespacePair, there: NamespaceFacts) -> Explained:
    tenant, own = quote(pair.name.tenant, safe=""), pair.target
    create = with_body("PUT", f"/namespaces/{pair.name.path}", {"replication_clusters": [own]})
    if there.tenant_exists is False:
        missing = with_body("PUT", f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [own]})
        evidence = f"{own} has no tenant {pair.name.tenant!r}."
        return pair.diagnose("tenant-not-allowed", evidence, explained=pair.failing, calls=on(own, missing, create))
    allowed = there.tenant_clusters
    if allowed is not None and own not in allowed:
        evidence = f"The tenant on {own} allows {listed(allowed)}, and has no such namespace."
        calls = on(own, _allowing(there, own), create)
        return pair.diagnose("tenant-not-allowed", evidence, explained=pair.failing, calls=calls)
    evidence = f"{own} has no such namespace; {pair.source} lists {', '.join(pair.here.clusters)}."
    return pair.diagnose("namespace-missing", evidence, explained=pair.failing, calls=on(own, create))


def _without_own_name(pair: NamespacePair, there: NamespaceFacts) -> Explained:
    evidence = f"The list on {pair.target} is {sorted(there.clusters)}."
    calls = on(pair.target, storing(pair.name, {*there.clusters, pair.target}))
    return pair.diagnose("own-cluster-missing", evidence, explained=pair.failing, calls=calls)


def find_direction_causes(pair: NamespacePair, receive_only: Collection[str]) -> Iterator[Explained]:
    """A list on one side only, unless the other side is meant only to receive."""
    there = pair.there
    if pair.source in receive_only and pair.target in pair.here.clusters:
        yield pair.diagnose("receive-only-sends", f"The list on {pair.source} is {sorted(pair.here.clusters)}.")
        return
    if there is None or not there.exists or pair.target in receive_only or there.cluster not in there.clusters:
        return
    if pair.target in pair.here.clusters and pair.source not in there.clusters:
        evidence = f"{pair.source} lists {', '.join(pair.here.clusters)}; {pair.target} {', '.join(there.clusters)}."
        yield pair.diagnose("one-way", evidence, calls=completing_list(pair, there))
    yield from _topic_lists(pair, there)


def _topic_lists(pair: NamespacePair, there: NamespaceFacts) -> Iterator[Explained]:
    """Topics that are replicated in one direction by a list of their own, on either cluster."""
    both_by_namespace = pair.target in pair.here.clusters and pair.source in there.clusters
    for topic in sorted({*(pair.here.topic_policies or {}), *(there.topic_policies or {})}):
        ours, theirs = pair.here.clusters_of(topic), there.clusters_of(topic)
        own = (pair.here.policies_of(topic).clusters, there.policies_of(topic).clusters)
        if own == (None, None) or pair.here.topics is None or topic not in pair.here.topics:
            continue
        if pair.target in ours and pair.source not in theirs and (both_by_namespace or own[0]):
            yield pair.diagnose(
                "topic-list-differs",
                f"For this topic {pair.source} lists {', '.join(ours)}; {pair.target} {', '.join(theirs)}.",
                resource=str(topic),
            )


def completing_list(pair: NamespacePair, there: NamespaceFacts) -> tuple[RemedyCall, ...]:
    """The calls by which the target replicates back: cluster data, tenant, list; none if what they need is unknown."""
    target, calls = pair.clusters.target, list[Call]()
    if target is None or target.peers is None or there.tenant_clusters is None:
        return ()
    if pair.source not in target.peers:
        calls.append(storing_peer(target, pair.clusters.source))
    if pair.source not in there.tenant_clusters:
        calls.append(_allowing(there, pair.source))
    return on(pair.target, *calls, storing(pair.name, {*there.clusters, pair.target, pair.source}))


def find_auto_creation_cause(pair: NamespacePair) -> Iterator[Explained]:
    """Types or partition counts by which both clusters create topics on their first use."""
    if pair.there is None or not pair.there.exists or pair.clusters.target is None:
        return
    sides = (pair.clusters.source, pair.here), (pair.clusters.target, pair.there)
    if any(cluster.configuration is None for cluster, _ in sides):
        return
    ours, theirs = (_creation(cluster.configuration or {}, namespace) for cluster, namespace in sides)
    if ours and theirs and ours != theirs:
        yield pair.diagnose(
            "auto-creation-differs",
            f"{pair.source} creates {_creation_text(ours)}; {pair.target} {_creation_text(theirs)}.",
        )


def _creation(configuration: dict[str, str] | object, namespace: NamespaceFacts) -> tuple[str, int]:
    """Type and partition count; empty type where topics are not created."""
    settings = configuration if isinstance(configuration, dict) else {}
    override = namespace.policies.get("autoTopicCreationOverride") or {}
    allowed = override.get("allowAutoTopicCreation", settings.get("allowAutoTopicCreation", "true") == "true")
    if not allowed:
        return ("", 0)
    kind = str(override.get("topicType") or settings.get(_AUTO_CREATION["topicType"]) or "non-partitioned")
    count = override.get("defaultNumPartitions") or settings.get(_AUTO_CREATION["defaultNumPartitions"]) or 1
    kind = kind.lower().replace("_", "-")
    return (kind, int(count) if kind == "partitioned" else 0)


def _creation_text(creation: tuple[str, int]) -> str:
    kind, count = creation
    return f"topics with {counted(count, 'partition')}" if count else f"{kind} topics"


def find_stray_clusters(facts: FleetFacts) -> Iterator[Explained]:
    """Tenants that allow a cluster that does not exist, and clusters that replicate to us without a list."""
    in_use: dict[tuple[str, str], set[str]] = {}
    for namespace in facts.namespaces.values():
        names = {*namespace.clusters, *namespace.allowed_clusters, *namespace.targets}
        in_use.setdefault((namespace.cluster, namespace.name.tenant), set()).update(names)
    tenants = {(namespace.cluster, namespace.name.tenant): namespace for namespace in facts.namespaces.values()}
    for (cluster, tenant), namespace in tenants.items():
        peers = facts.clusters[cluster].peers
        if peers is not None:
            for name in sorted({*(namespace.tenant_clusters or ())} - {*peers} - in_use[cluster, tenant]):
                yield _stray(namespace, name)
    yield from _inbound(facts)


def _stray(namespace: NamespaceFacts, name: str) -> Explained:
    kept = [cluster for cluster in namespace.tenant_clusters or () if cluster != name]
    body = {**(namespace.tenant or {}), "allowedClusters": kept}
    call = with_body("POST", f"/tenants/{quote(namespace.name.tenant, safe='')}", body)
    return Explained(
        diagnosis(
            "removed-cluster-in-tenant",
            f"tenant {namespace.name.tenant}",
            namespace.cluster,
            name,
            f"The tenant on {namespace.cluster} allows {', '.join(namespace.tenant_clusters or ())}.",
            calls=on(namespace.cluster, call),
        )
    )


def _inbound(facts: FleetFacts) -> Iterator[Explained]:
    seen_before: set[tuple[str, str, NamespaceName]] = set()
    for row in facts.replicators:
        key = (row.target, row.source, row.namespace)
        if row.expected or row.last is None or not row.last.inbound or key in seen_before:
            continue
        sender = facts.namespaces.get((row.target, row.namespace))
        evidence = f"{row.topic} has an inbound connection from {row.target}, at {row.last.inbound}."
        if row.target not in facts.clusters:
            id_ = "inbound-only"
        elif sender is not None and sender.exists and row.source not in sender.clusters_of(row.topic):
            id_ = "removed-cluster-sends"
        else:
            continue
        seen_before.add(key)
        yield Explained(diagnosis(id_, str(row.namespace), row.target, row.source, evidence))


def storing(namespace: NamespaceName, clusters: Collection[str]) -> Call:
    """The call that stores a namespace's list of clusters."""
    return with_body("POST", f"/namespaces/{namespace.path}/replication", sorted(clusters))


def _allowing(namespace: NamespaceFacts, cluster: str) -> Call:
    body = {**(namespace.tenant or {}), "allowedClusters": sorted({*(namespace.tenant_clusters or ()), cluster})}
    return with_body("POST", f"/tenants/{quote(namespace.name.tenant, safe='')}", body)
