"""A snapshot of one cluster in the terms of another (pure)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.policies.documents import translate, translate_clusters
from pulsar_fleet.cluster.policies.topic_policies import translate_topic_policies
from pulsar_fleet.cluster.redaction import fingerprints
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import LeftAlone
from pulsar_fleet.snapshot.model import ClusterDataState, NamespaceState, Snapshot, TenantState


def translate_snapshot(source: Snapshot, target: Snapshot) -> tuple[Snapshot, tuple[LeftAlone, ...]]:
    """What the target should hold to be equal to the source, and the cluster names that it cannot know.

    Of the cluster as a whole, only what the snapshot's namespaces need is meant when it was limited to a selection.
    """
    left: list[LeftAlone] = []
    peers = _peers(source, target)
    known = {*target.known_clusters, *(one.name for one in peers if not fingerprints(one.data))}

    def note(resource: Resource, name: str, field: str, missing: tuple[str, ...]) -> None:
        if missing:
            reason = f"{target.cluster} does not know {', '.join(missing)}, so they are not in its list"
            left.append(LeftAlone(resource, name, field, reason))

    tenants = []
    for tenant in source.tenants:
        clusters, missing = translate_clusters(tenant.allowed_clusters, source.cluster, target.cluster, known)
        note(Resource.TENANT, tenant.name, "allowedClusters", missing)
        tenants.append(TenantState(tenant.name, tenant.admin_roles, tuple(clusters)))
    namespaces = []
    for namespace in source.namespaces:
        result = translate(namespace.policies, source.cluster, target.cluster, known)
        note(Resource.NAMESPACE, namespace.name, "clusters", result.left_out)
        namespaces.append(NamespaceState(namespace.name, result.document))
    policies = tuple(
        dataclasses.replace(one, policies=translate_topic_policies(one.policies, source.cluster, target.cluster, known))
        for one in source.topic_policies
    )
    translated = dataclasses.replace(
        source,
        cluster=target.cluster,
        clusters=(*peers, _own(source, target.cluster)),
        resource_groups=tuple(one for one in source.resource_groups if _uses_group(source, one.name)),
        tenants=tuple(tenants),
        namespaces=tuple(namespaces),
        topic_policies=policies,
    )
    return translated, tuple(left)


def _peers(source: Snapshot, target: Snapshot) -> list[ClusterDataState]:
    """The clusters that the translated lists name, as the source knows them."""
    needed = {
        name
        for names in _lists(source)
        for name in translate_clusters(names, source.cluster, target.cluster)[0]
        if name != target.cluster
    }
    return [one for one in source.clusters if one.name in needed]


def _lists(source: Snapshot) -> Iterator[tuple[str, ...]]:
    yield from (tenant.allowed_clusters for tenant in source.tenants)
    for namespace in source.namespaces:
        for field in ("replication_clusters", "allowed_clusters"):
            yield tuple(namespace.policies.get(field) or ())
    yield from (tuple(one.policies.get("replicationClusters") or ()) for one in source.topic_policies)


def _own(source: Snapshot, target: str) -> ClusterDataState:
    """What the source keeps about itself, under the target's name."""
    domains: JsonObject = {}
    isolation: JsonObject = {}
    for one in source.clusters:
        if one.name == source.cluster:
            domains, isolation = one.failure_domains, one.isolation
    if source.selection:
        # Domains only serve namespaces that keep away from each other.
        domains = domains if any(one.policies.get("anti_affinity") for one in source.namespaces) else {}
        isolation = {name: one for name, one in isolation.items() if _isolates(source, one)}
    return ClusterDataState(target, {}, domains, isolation)


def _uses_group(source: Snapshot, name: str) -> bool:
    used = any(one.policies.get("resource_group_name") == name for one in source.namespaces)
    return used or not source.selection


def _isolates(source: Snapshot, policy: JsonObject) -> bool:
    patterns = policy.get("namespaces") or ()
    return any(re.fullmatch(pattern, one.name) for pattern in patterns for one in source.namespaces)
