"""Refuse connections to clusters that read tenants and namespaces from one configuration store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import SYSTEM_TENANT, NamespaceName
from pulsar_fleet.cluster.policies.documents import STORE_OF
from pulsar_fleet.preflight.checks.clusters import configuration_stores_differ
from pulsar_fleet.preflight.context import Pair
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.tenants import read_tenant


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
