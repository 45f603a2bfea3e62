"""Seconds to apply a plan, beside the same calls in a bare aiohttp loop: to missing and to existing namespaces."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState

NAMESPACES = 100
ROUNDS = 5
REDACTOR = Redactor(b"a key of the benches")
ROLES = {f"role-{number}": ["consume", "produce"] for number in range(5)}
POLICIES: JsonObject = {
    "bundles": {"boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"], "numBundles": 4},
    "message_ttl_in_seconds": 3600,
    "retention_policies": {"retentionTimeInMinutes": 600, "retentionSizeInMB": 1000},
    "max_producers_per_topic": 11,
    "max_consumers_per_topic": 12,
    "max_consumers_per_subscription": 13,
    "max_unacked_messages_per_consumer": 14,
    "max_subscriptions_per_topic": 16,
    "max_topics_per_namespace": 170,
    "deduplicationEnabled": True,
    "is_allow_auto_update_schema": False,
    "schema_compatibility_strategy": "FULL",
    "delayed_delivery_policies": {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 10_000},
    "auth_policies": {"namespace_auth": ROLES, "destination_auth": {}, "subscription_auth_roles": {}},
}


class Recording(BrokerHttp):
    """Notes every call, so that it can be made again by a bare client."""

    def __init__(self, connection: ClusterConnection) -> None:
        super().__init__(connection)
        self.made: list[tuple[str, str, dict[str, str], Json, bool, str]] = []

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """The call as it is, noted."""
        query = {key: str(value).lower() for key, value in (options.get("params") or {}).items()}
        body, content_type = options.get("body"), options.get("content_type", "application/json")
        self.made.append((method, path, query, body, options.get("has_body") or body is not None, content_type))
        return await super().call(method, path, **options)


def test_apply(green: ClusterConnection, records: Path) -> None:
    for title, existing in (("missing namespaces", False), ("existing namespaces", True)):
        # The first round is the broker's: until its code is compiled, whoever comes first looks slow.
        _, *rounds = [asyncio.run(_measure(green, records, existing=existing)) for _ in range(1 + ROUNDS)]
        ours, floor, calls = sorted(rounds, key=lambda measured: measured[0] / measured[1])[ROUNDS // 2]
        print(f"\n{title}: {calls:,} calls, bare aiohttp {floor:.2f} s (floor), apply {ours:.2f} s")
        print(f"ratios to the floor: {', '.join(f'{ours / floor:.2f}' for ours, floor, _ in rounds)}")


async def _measure(green: ClusterConnection, records: Path, *, existing: bool) -> tuple[float, float, int]:
    """Seconds of ours, seconds of the floor, and calls; each on a tenant of its own."""
    first, second = (f"bench-{uuid.uuid4().hex[:8]}" for _ in range(2))
    calls, ours = await _ours(green, records, first, existing=existing)
    again = json.loads(json.dumps(calls).replace(first, second))
    async with AdminClient(green) as admin:
        await _prepare(admin, second, existing=existing)
    return ours, await _floor(green, again), len(calls)


async def _ours(green: ClusterConnection, records: Path, tenant: str, *, existing: bool) -> tuple[list[Any], float]:
    async with AdminClient(green) as admin:
        await _prepare(admin, tenant, existing=existing)
        plan = await _plan(admin, tenant)
        await admin.http.__aexit__(None, None, None)
        recording = admin.http = Recording(green)
        ledger = Ledger.open()
        began = time.perf_counter()
        applied = await apply_plan(
            plan, admin, ledger, tenant, redactor=REDACTOR, allow=[change.id for change in plan.changes]
        )
        seconds = time.perf_counter() - began
        assert applied.complete, applied.not_in_place()[:3]
        return recording.made, seconds


async def _prepare(admin: AdminClient, tenant: str, *, existing: bool) -> None:
    await admin.put(f"/tenants/{tenant}", {"adminRoles": ["owner"], "allowedClusters": ["green"]})
    if existing:
        await asyncio.gather(*(admin.put(f"/namespaces/{tenant}/n-{number}") for number in range(NAMESPACES)))


async def _plan(admin: AdminClient, tenant: str) -> Plan:
    target = await collect(admin, Selection(tenants=frozenset({tenant})), redactor=REDACTOR)
    document = {"replication_clusters": ["blue"], **POLICIES}
    source = Snapshot(
        cluster="blue",
        began="",
        ended="",
        key_id=REDACTOR.key_id,
        tenants=(TenantState(tenant, ("owner",), ("blue",)),),
        namespaces=tuple(NamespaceState(f"{tenant}/n-{number}", document) for number in range(NAMESPACES)),
    )
    return plan_changes(source, target)


async def _floor(green: ClusterConnection, calls: list[Any]) -> float:
    """The same calls: as many at once as ours, those of a namespace one after the other."""
    groups: dict[str, list[Any]] = {}
    for call in calls:
        # /admin/v2/namespaces/{tenant}/{namespace}/…
        groups.setdefault("/".join(call[1].split("/")[4:6]), []).append(call)
    waiting = list(groups.values())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=green.max_connections)) as session:

        async def work() -> None:
            while waiting:
                for method, path, query, body, has_body, kind in waiting.pop():
                    content = json.dumps(body).encode() if has_body else None
                    async with session.request(
                        method, green.admin_url + path, params=query, data=content, headers={"Content-Type": kind}
                    ) as answer:
                        await answer.read()
                        assert answer.status < 500, (answer.status, method, path)

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(green.max_connections)))
        return time.perf_counter() - began
