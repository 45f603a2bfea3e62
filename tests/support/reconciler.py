"""Two real clusters that share nothing, kept equal: what the tests of reconciliation have in common."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.reconcile.request import Mode, Request
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
from pulsar_fleet.policy_sync.reconcile.steps import find_drift, read_plans, repair

MAX_PRODUCERS = ("maxProducersPerTopic", "max_producers_per_topic")
MAX_CONSUMERS = ("maxConsumersPerTopic", "max_consumers_per_topic")
MAX_SUBSCRIPTIONS = ("maxSubscriptionsPerTopic", "max_subscriptions_per_topic")
MAX_UNACKED = ("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer")
SETTERS = (MAX_PRODUCERS, MAX_CONSUMERS, MAX_SUBSCRIPTIONS, MAX_UNACKED)


@dataclass
class Reconciler:
    """Runs of reconciliation on blue and green, one after the other, over one tenant."""

    connections: tuple[ClusterConnection, ...]
    request: Request
    runs: int = 0

    @classmethod
    def of(cls, tenant: str, *connections: ClusterConnection, **settings: Any) -> Reconciler:
        request = Request(selection=Selection(tenants=frozenset({tenant})), mode=Mode.REPAIR, **settings)
        return cls(connections, request)

    async def find(self, **settings: Any) -> DriftSummary:
        """Only look."""
        self.runs += 1
        return await find_drift(self.connections, replace(self.request, **settings), self.run)

    async def cycle(self, **settings: Any) -> tuple[DriftSummary, RepairSummary | None]:
        """One scheduled run: look, and repair what there is."""
        summary = await self.find(**settings)
        if not summary.plans:
            if summary.drift:
                await repair(self.connections, summary, replace(self.request, **settings), self.run)
            return summary, None
        return summary, await repair(self.connections, summary, replace(self.request, **settings), self.run)

    async def cycle_allowing(self, **settings: Any) -> tuple[DriftSummary, RepairSummary | None]:
        """A run whose every change a person allows: rights that are revoked elsewhere need their ids."""
        summary = await self.find(**settings)
        if not summary.plans:
            return summary, None
        plans = read_plans(summary, self.run).values()
        allow = frozenset(change.id for plan in plans for change in plan.needing_permission())
        request = replace(self.request, allow=allow, **settings)
        return summary, await repair(self.connections, summary, request, self.run)

    async def cycle_until_older(self, admin: AdminClient, topic: TopicName) -> None:
        """Look until a topic is certainly older than the last look."""
        await until_older(admin, topic, self.cycle)

    @property
    def run(self) -> Run:
        return Run.open(f"reconcile/{self.runs}")

    @property
    def store(self) -> ReconciliationStore:
        return ReconciliationStore(self.run.ledger, ("blue", "green"))


async def until_older(admin: AdminClient, topic: TopicName, look: Callable[[], Awaitable[object]]) -> None:
    """Look until a topic is certainly older than the last look.

    Clocks are known by whole seconds, and on a busy machine by a few less.
    """
    info = await admin.internal_info(topic)
    parts = (info, *info.get("partitions", {}).values())
    created = max(datetime.fromisoformat(part["creationDate"]).timestamp() for part in parts if "creationDate" in part)
    began = 0.0
    while began < created + 4:
        began = time.time()
        await look()


async def make_namespaces(namespaces: list[NamespaceName], *admins: AdminClient) -> None:
    """The same empty namespaces on each cluster."""
    for admin in admins:
        own = await admin.cluster_name()
        for tenant in {name.tenant for name in namespaces}:
            await admin.put(f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [own]})
        for name in namespaces:
            await admin.put(f"/namespaces/{name.path}", {"replication_clusters": [own]})


async def held(admin: AdminClient, namespace: NamespaceName, fields: Mapping[str, Any] | tuple[str, ...]) -> JsonObject:
    """Some fields of a namespace."""
    document = await admin.namespace(namespace) or {}
    return {field: document.get(field) for field in fields}


async def set_policy(admin: AdminClient, namespace: NamespaceName, path: str, value: Json) -> None:
    """As a person would, past us; None unsets it."""
    if value is None:
        await admin.delete(f"/namespaces/{namespace.path}/{path}")
    else:
        await admin.post(f"/namespaces/{namespace.path}/{path}", value)
