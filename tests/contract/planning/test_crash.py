"""An apply that is killed with SIGKILL at any moment is finished by the next, which nobody has to tell anything."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import signal
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.support.proxy import Proxy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot

REDACTOR = Redactor(b"a key of the tests")
# More points by environment; each number is another moment.
FIRST = int(os.environ.get("PULSAR_FLEET_CRASH_FIRST", "0"))
POINTS = range(FIRST, FIRST + int(os.environ.get("PULSAR_FLEET_CRASH_POINTS", "4")))
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
POLICIES: tuple[tuple[str, Json], ...] = (
    ("messageTTL", 60),
    ("maxProducersPerTopic", 5),
    ("maxConsumersPerTopic", 6),
    ("deduplication", True),
    ("subscriptionAuthMode", "Prefix"),
    ("antiAffinity", "a"),
    ("permissions/a", ["produce"]),
    ("permissions/b", ["consume"]),
)


class Killer(Proxy):
    """Kills a process with its n-th request: before the broker gets it, before it is answered, or a moment later."""

    def __init__(self, upstream: str, *, at: int, dice: random.Random) -> None:
        super().__init__(upstream)
        self.pid = 0
        self._at, self._count = at, 0
        self._moment = dice.choice(["before", "unanswered", "later"])
        self._seconds = dice.uniform(0, 0.03)

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        self._count += 1
        if self._count != self._at:
            return await super()._forward(head, body)
        if self._moment == "before":
            self._kill()
            return b""
        answered = await super()._forward(head, body)
        if self._moment == "unanswered":
            self._kill()
        else:
            asyncio.get_running_loop().call_later(self._seconds, self._kill)
        return answered

    def _kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def renamed(value: Any, old: str, new: str) -> Any:
    """The same estate under another tenant's name."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {renamed(key, old, new): renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(renamed(item, old, new) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [member.name for member in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: renamed(getattr(value, name), old, new) for name in fields})
    return value


@dataclasses.dataclass(frozen=True)
class Estate:
    """What is carried over at each point, and how many requests that takes when nobody is killed."""

    source: Snapshot
    requests: int


@pytest.fixture(scope="module")
def estate(
    blue: ClusterConnection, green: ClusterConnection, make_estate: Make, tmp_path_factory: pytest.TempPathFactory
) -> Estate:
    """A full namespace, and one whose policies are set one by one since the target has it."""
    source = asyncio.run(fill(blue, make_estate))
    return Estate(source, asyncio.run(count_requests(source, green, tmp_path_factory.mktemp("counted") / "ledger.db")))


async def fill(blue: ClusterConnection, make_estate: Make) -> Snapshot:
    name = NamespaceName(fresh_tenant(), "orders")
    other = NamespaceName(name.tenant, "audit")
    async with AdminClient(blue) as admin:
        await make_estate(admin, name)
        await admin.put(f"/namespaces/{other.path}")
        for path, body in POLICIES:
            await admin.post(f"/namespaces/{other.path}/{path}", body)
        return await collect(admin, Selection(tenants=frozenset({name.tenant})), redactor=REDACTOR)


async def count_requests(source: Snapshot, green: ClusterConnection, ledger: Path) -> int:
    async with AdminClient(green) as admin:
        _, plan = await prepared(source, admin)
    killer = Killer(green.admin_url, at=0, dice=random.Random(0))
    assert await run_and_kill(plan, green, f"sqlite:///{ledger}", killer) == 0
    return len(killer.seen)


def fresh_tenant() -> str:
    return f"test-{uuid.uuid4().hex[:10]}"


async def prepared(estate: Snapshot, on_green: AdminClient) -> tuple[Snapshot, Plan]:
    """The estate under a new name, of which the target has one namespace without policies, and the plan for it."""
    tenant = fresh_tenant()
    source = renamed(estate, estate.tenants[0].name, tenant)
    await on_green.put(f"/tenants/{tenant}", {"adminRoles": ["owner"], "allowedClusters": ["green"]})
    await on_green.put(f"/namespaces/{tenant}/audit")
    target = await collect(on_green, Selection(tenants=frozenset({tenant})), redactor=REDACTOR)
    return source, plan_changes(source, target)


async def apply(plan: Plan, admin: AdminClient, ledger: Ledger) -> Any:
    allow = [change.id for change in plan.needing_permission()]
    return await apply_plan(plan, admin, ledger, "run", redactor=REDACTOR, allow=allow)


def in_a_process(plan: str, connection: ClusterConnection, ledger: str) -> None:
    async def run() -> None:
        async with AdminClient(connection) as admin:
            await apply(Plan.from_json(json.loads(plan)), admin, Ledger.open(ledger))

    asyncio.run(run())


async def run_and_kill(plan: Plan, green: ClusterConnection, ledger: str, killer: Killer) -> int:
    """The exit code of a process that applies the plan and is killed by `killer`."""
    async with killer:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__, "pulsar", "fastavro"])
        proxied = dataclasses.replace(green, admin_url=killer.url)
        process = context.Process(target=in_a_process, args=(json.dumps(plan.to_json()), proxied, ledger))
        process.start()
        killer.pid = process.pid or 0
        await asyncio.to_thread(process.join, 60)
        return process.exitcode or 0


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_apply_is_finished_by_the_next_with_each_change_made_once(
    point: int,
    estate: Estate,
    green: ClusterConnection,
    on_green: AdminClient,
    tmp_path: Path,
) -> None:
    dice = random.Random(point)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger.open(url)
    source, plan = await prepared(estate.source, on_green)
    killer = Killer(green.admin_url, at=dice.randint(1, estate.requests), dice=dice)
    assert await run_and_kill(plan, green, url, killer) == -signal.SIGKILL
    ledger = Ledger.open(url)
    applied = await apply(plan, on_green, ledger)
    assert [(result.change.label, result.detail) for result in applied.not_in_place()] == []
    target = await collect(on_green, Selection(tenants=frozenset({source.tenants[0].name})), redactor=REDACTOR)
    assert plan_changes(source, target).changes == ()
    applied_ids = Counter(change.change_id for change in ledger.changes("run") if change.outcome == "applied")
    assert applied_ids == Counter(change.id for change in plan.changes)
