"""A snapshot of one cluster in the terms of another (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.cluster.admin.partial_reads import NOT_SERVED
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import (
    configuration_servers,
    stored_policies,
    translate,
    translate_clusters,
)
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS
from pulsar_fleet.cluster.policies.namespace_catalogue import KEYED_BY_CLUSTER
from pulsar_fleet.cluster.policies.topic_policies import translate_topic_policies
from pulsar_fleet.cluster.redaction import fingerprints
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import LeftAlone
from pulsar_fleet.snapshot.model import (
    MIGRATED_PROPERTY,
    ClusterDataState,
    NamespaceState,
    Snapshot,
    TenantState,
    TopicState,
)
from pulsar_fleet.snapshot.resources import lists_of_topics

LISTS = ("replication_clusters", "allowed_clusters")
_NOT_COPIED = f"brokers mark topics that they redirected with the property {MIGRATED_PROPERTY!r}, so it is never copied"


def share_store(source: Snapshot, target: Snapshot) -> bool:
    """Whether two clusters have one configuration store.

    Equal addresses prove nothing (each cluster may call its own server `zookeeper`): with a shared store both clusters
    also have the same clusters, tenants and namespaces, with identical documents.
    """
    same = configuration_store(source) & configuration_store(target) or _keyed_for_both(source, target)
    return bool(same) and _may_share(source, target)


def has_one_store(source: Snapshot, target: Snapshot) -> bool:
    """As `share_store`, where both name a common address: so does what looks again before something is deleted."""
    return share_store(source, target) and bool(configuration_store(source) & configuration_store(target))


def configuration_store(snapshot: Snapshot) -> frozenset[str]:
    """The servers of the store for tenants and namespaces; empty for a store inside the broker's process."""
    return configuration_servers({key: value for row in snapshot.brokers for key, value in row.configuration.items()})


def _may_share(source: Snapshot, target: Snapshot) -> bool:
    names = {source.cluster, target.cluster}
    if set(source.known_clusters) != set(target.known_clusters) or not names <= set(source.known_clusters):
        return False
    tenants = {tenant.name: tenant for tenant in target.tenants}
    documents = {namespace.name: stored_policies(namespace.policies) for namespace in target.namespaces}
    unserved = {note.resource for note in target.unreadable if NOT_SERVED in note.detail}
    return (
        bool(source.tenants)
        and all(tenants.get(tenant.name) == tenant for tenant in source.tenants)
        and all(
            documents.get(namespace.name) == stored_policies(namespace.policies)
            for namespace in source.namespaces
            if namespace.name not in unserved
        )
    )


def _keyed_for_both(source: Snapshot, target: Snapshot) -> bool:
    """Whether the target has a rate under the source's name too: only a shared store has both."""
    return any(
        source.cluster in (namespace.policies.get(field) or {}) and target.cluster in namespace.policies[field]
        for namespace in target.namespaces
        for field in KEYED_BY_CLUSTER
    )


def translate_snapshot(source: Snapshot, target: Snapshot) -> tuple[Snapshot, tuple[LeftAlone, ...]]:
    """The desired state of the target for equality with the source, and the cluster names that the target lacks.

    When the snapshot is limited to a selection, only the cluster-wide resources that its namespaces need are included.
    """
    left_alone: list[LeftAlone] = []
    peers, clusters = _peers(source, target), known_after_plan(source, target)
    shared = share_store(source, target)

    def note(resource: Resource, name: str, field: str, missing: tuple[str, ...]) -> None:
        if missing:
            reason = f"{target.cluster} has no cluster {', '.join(missing)}, so its list does not name them"
            left_alone.append(LeftAlone(resource, name, field, reason))

    tenants = []
    for tenant in source.tenants:
        names, missing = translate_clusters(tenant.allowed_clusters, source.cluster, target.cluster, clusters)
        note(Resource.TENANT, tenant.name, "allowedClusters", missing)
        tenants.append(TenantState(tenant.name, tenant.admin_roles, tuple(names)))
    namespaces = []
    for namespace in source.namespaces:
        result = translate(namespace.policies, source.cluster, target.cluster, clusters)
        note(Resource.NAMESPACE, namespace.name, "clusters", result.omitted_clusters)
        if shared:
            # Each would replicate to the other with both names in the list that both read.
            result.document.update({key: namespace.policies[key] for key in LISTS if key in namespace.policies})
        namespaces.append(NamespaceState(namespace.name, result.document))
    policies = tuple(
        replace(state, policies=translate_topic_policies(state.policies, source.cluster, target.cluster, clusters))
        for state in source.topic_policies
    )
    left_alone += [
        LeftAlone(Resource.TOPIC, topic.name, "properties", _NOT_COPIED)
        for topic in source.topics
        if MIGRATED_PROPERTY in topic.properties
    ]
    translated = replace(
        source,
        cluster=target.cluster,
        clusters=(*peers, _own(source, target.cluster)),
        resource_groups=tuple(group for group in source.resource_groups if _uses_group(source, group.name)),
        tenants=source.tenants if shared else tuple(tenants),
        namespaces=tuple(namespaces),
        topics=tuple(map(_without_mark, source.topics)),
        topic_policies=policies,
    )
    return translated, tuple(left_alone)


def without_way_back(source: Snapshot, target: Snapshot) -> Snapshot:
    """The source with its own name taken out of lists by which it replicates to a target that does not replicate back.

    Copied as it is, such a list would make the target replicate into the source. Where both read one list, it stays.
    """
    if share_store(source, target):
        return source
    back = {state.name for state in target.namespaces if source.cluster in _replicates_to(state)}
    own = lists_of_topics(target.topic_policies)

    def topic_replicates_back(topic: TopicName) -> bool:
        return source.cluster in own[topic] if topic in own else str(topic.namespace) in back

    def one_way(clusters: tuple[str, ...]) -> list[str]:
        return [name for name in clusters if target.cluster not in clusters or name != source.cluster]

    namespaces = tuple(
        state
        if state.name in back
        else replace(state, policies={**state.policies, "replication_clusters": one_way(_replicates_to(state))})
        for state in source.namespaces
    )
    policies = tuple(
        replace(state, policies={**state.policies, TOPIC_CLUSTERS: one_way(tuple(clusters))})
        if (clusters := state.policies.get(TOPIC_CLUSTERS)) and not topic_replicates_back(TopicName.parse(state.topic))
        else state
        for state in source.topic_policies
    )
    return replace(source, namespaces=namespaces, topic_policies=policies)


def _replicates_to(state: NamespaceState) -> tuple[str, ...]:
    return tuple(state.policies.get("replication_clusters") or ())


def _without_mark(topic: TopicState) -> TopicState:
    if MIGRATED_PROPERTY not in topic.properties:
        return topic
    properties = {key: value for key, value in topic.properties.items() if key != MIGRATED_PROPERTY}
    return replace(topic, properties=properties)


def known_after_plan(source: Snapshot, target: Snapshot) -> set[str]:
    """The clusters that the target's lists can name: those that it knows, and peers of the source without secrets.

    A plan creates such a peer.
    """
    created = {peer.name for peer in _peers(source, target) if not fingerprints(peer.data)}
    return {*target.known_clusters, *created}


def _peers(source: Snapshot, target: Snapshot) -> list[ClusterDataState]:
    """The clusters that the translated lists name, with the source's data about them."""
    needed = {
        name
        for names in _lists(source)
        for name in translate_clusters(names, source.cluster, target.cluster)[0]
        if name != target.cluster
    }
    return [peer for peer in source.clusters if peer.name in needed]


def _lists(source: Snapshot) -> Iterator[tuple[str, ...]]:
    yield from (tenant.allowed_clusters for tenant in source.tenants)
    for namespace in source.namespaces:
        for field in LISTS:
            yield tuple(namespace.policies.get(field) or ())
    yield from (tuple(state.policies.get(TOPIC_CLUSTERS) or ()) for state in source.topic_policies)


def _own(source: Snapshot, target: str) -> ClusterDataState:
    """The source's data about itself, under the target's name."""
    domains: JsonObject = {}
    isolation: JsonObject = {}
    for cluster in source.clusters:
        if cluster.name == source.cluster:
            domains, isolation = cluster.failure_domains, cluster.isolation
    if source.selection:
        # Failure domains affect only namespaces with an anti-affinity group.
        domains = domains if any(namespace.policies.get("anti_affinity") for namespace in source.namespaces) else {}
        isolation = {name: policy for name, policy in isolation.items() if _isolates(source, policy)}
    return ClusterDataState(target, {}, domains, isolation)


def _uses_group(source: Snapshot, name: str) -> bool:
    used = any(namespace.policies.get("resource_group_name") == name for namespace in source.namespaces)
    return used or not source.selection


def _isolates(source: Snapshot, policy: JsonObject) -> bool:
    patterns = policy.get("namespaces") or ()
    return any(re.fullmatch(pattern, namespace.name) for pattern in patterns for namespace in source.namespaces)
