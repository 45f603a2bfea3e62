"""Refuse connections to clusters that read tenants and namespaces from one configuration store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import SYSTEM_TENANT
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


async def _with_system_tenant(admin: AdminClient, snapshot: Snapshot) -> Snapshot:
    answer = await read_tenant(admin, SYSTEM_TENANT, PartialReads(), listing=SYSTEM_TENANT)
    others = tuple(tenant for tenant in snapshot.tenants if tenant.name != SYSTEM_TENANT)
    return replace(snapshot, tenants=(*others, answer[0]) if answer else others)
