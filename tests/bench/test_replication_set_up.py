"""100 namespaces between three clusters: calls and seconds of each step, beside the writing calls alone."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from tests.support.data_centres import make_origin, opened, plan, request_of
from tests.support.fleets import connection

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.replication import steps
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_sandbox import Sandbox

Result = TypeVar("Result")
NAMES = ("east", "north", "west")
NAMESPACES = 100
AT_ONCE = 8


def test_set_up_of_a_mesh_of_three(tmp_path: Path, records: Path) -> None:
    with Sandbox.start(tmp_path / "clusters", clusters=NAMES) as sandbox:
        asyncio.run(_measure({cluster.name: connection(cluster) for cluster in sandbox}))


async def _measure(clusters: dict[str, ClusterConnection]) -> None:
    # The first, small run compiles the brokers' code and creates the clusters' data.
    await _run(clusters, 5)
    stored, rows = await _run(clusters, NAMESPACES)
    for step, calls, seconds, cpu in rows:
        print(f"\n{step:16}{calls:7,} calls {seconds:7.1f} s  {cpu:6.2f} CPU-seconds", end="")
    writes = sum(plans.calls for plans in stored.plans)
    floor = await _floor(clusters, stored)
    ours = sum(seconds for step, _, seconds, _ in rows if step in ("apply_contents", "start_links"))
    print(f"\nthe {writes:,} writing calls alone {floor:.1f} s (floor), with reads before and after {ours:.1f} s")
    print(f"ratio to the floor: {ours / floor:.2f}")


async def _run(
    clusters: dict[str, ClusterConnection], count: int
) -> tuple[ReplicationPlan, list[tuple[str, int, float, float]]]:
    tenant = f"bench-{uuid.uuid4().hex[:8]}"
    async with AdminClient(clusters["east"]) as admin:
        for number in range(count):
            await make_origin(admin, NamespaceName(tenant, f"n{number:03}"))
    request = request_of(*NAMES, namespaces=[tenant])
    rows = []

    async def step(name: str, work: Awaitable[Result]) -> Result:
        calls, began, cpu = opened_clusters.calls, time.monotonic(), time.process_time()
        result = await work
        rows.append((name, opened_clusters.calls - calls, time.monotonic() - began, time.process_time() - cpu))
        return result

    async with opened(clusters, request) as opened_clusters:
        done = await plan(clusters, request, f"warm-{tenant}")
        planned = await step("plan", steps.plan(opened_clusters, request))
        await step("apply_contents", steps.apply_contents(opened_clusters, planned, request, done.run))
        await step("start_links", steps.start_links(opened_clusters, planned, request, done.run))
        await step("confirm_links", steps.confirm(opened_clusters, planned, seconds=300))
    return planned.plan, rows


async def _floor(clusters: dict[str, ClusterConnection], stored: ReplicationPlan) -> float:
    """Seconds of the same writing calls for another tenant, eight at once on each cluster, stage by stage."""
    tenant, other = stored.namespaces[0].partition("/")[0], f"floor-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        admins = {
            name: await stack.enter_async_context(AdminClient(connection)) for name, connection in clusters.items()
        }
        for namespace in stored.namespaces:
            await make_origin(admins["east"], NamespaceName.parse(namespace.replace(tenant, other)))
        began = time.monotonic()
        for stage in range(2):
            await asyncio.gather(
                *(
                    _send_all(admins[name], [_renamed(call, tenant, other) for call in _calls(plans.stages[stage])])
                    for name, plans in stored.clusters.items()
                )
            )
        return time.monotonic() - began


def _calls(stage: Plan) -> list[Call]:
    return [call for change in stage.changes for call in change.calls]


async def _send_all(admin: AdminClient, calls: list[Call]) -> None:
    by_depth: dict[int, list[Call]] = {}
    for call in calls:
        by_depth.setdefault(call.path.count("/"), []).append(call)
    for _, group in sorted(by_depth.items()):
        for first in range(0, len(group), AT_ONCE):
            await asyncio.gather(*(admin.send(call) for call in group[first : first + AT_ONCE]))


def _renamed(call: Call, tenant: str, other: str) -> Call:
    return Call.from_json(json.loads(json.dumps(call.to_json()).replace(tenant, other)))
