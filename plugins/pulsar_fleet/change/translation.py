"""A snapshot of one cluster in the terms of another (pure)."""

from __future__ import annotations

import dataclasses

from pulsar_fleet.change.diff import Resource
from pulsar_fleet.change.plan import LeftAlone
from pulsar_fleet.cluster.policy_documents import translate, translate_clusters
from pulsar_fleet.cluster.states import NamespaceState, Snapshot, TenantState
from pulsar_fleet.cluster.topic_policies import translate_topic_policies


def translate_snapshot(source: Snapshot, target: Snapshot) -> tuple[Snapshot, tuple[LeftAlone, ...]]:
    """What the target should hold to be equal to the source, and the cluster names that it does not know."""
    left: list[LeftAlone] = []
    known = target.known_clusters

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
        tenants=tuple(tenants),
        namespaces=tuple(namespaces),
        topic_policies=policies,
    )
    return translated, tuple(left)
