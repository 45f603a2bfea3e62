"""Retention and backlog quota limit each other: brokers accept every call of a plan and of its undo."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome, PlanResult
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.diff import diff
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.target_values import read_target_values
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")
Limits = tuple[tuple[int, int] | None, int | None, int | None]
"""Retention in minutes and MB, quota in MB, quota in minutes; None is not set."""
CASES: list[tuple[Limits, Limits]] = [
    (((60, 1000), 500, None), ((600, 100), 50, None)),
    (((60, 100), 50, None), ((600, 1000), 500, None)),
    (((600, 1000), 500, None), ((60, 100), 50, None)),
    (((600, -1), 5000, 300), ((-1, 100), 50, 900)),
    (((-1, 100), 50, 900), ((60, -1), 500, 30)),
    ((None, 500, None), ((600, 100), 50, None)),
    (((600, 100), 50, 300), (None, 500, 900)),
    (((0, 0), 500, None), ((60, 100), 50, None)),
]


async def set_limits(admin: AdminClient, path: str, limits: Limits) -> None:
    """Set a retention after the quotas are gone, and the quotas after it."""
    retention, megabytes, minutes = limits
    if retention is not None:
        body = {"retentionTimeInMinutes": retention[0], "retentionSizeInMB": retention[1]}
        await admin.post(f"{path}/retention", body)
        assert await is_kept(lambda: is_stored(admin, f"{path}/retention", body))
    sections: tuple[tuple[str, int, int], ...] = ()
    sections += (("destination_storage", megabytes << 20, -1),) if megabytes is not None else ()
    sections += (("message_age", -1, minutes * 60),) if minutes is not None else ()
    for kind, size, seconds in sections:
        quota = {"limitSize": size, "limitTime": seconds, "policy": "producer_exception"}
        await admin.post(f"{path}/backlogQuota", quota, backlogQuotaType=kind)


async def is_stored(admin: AdminClient, path: str, value: Json) -> bool:
    return bool(await admin.get(path) == value)


async def plan(source: AdminClient, target: AdminClient, namespace: NamespaceName) -> Plan:
    sides = [await state(admin, namespace) for admin in (source, target)]
    return plan_changes(*sides)


async def state(admin: AdminClient, namespace: NamespaceName) -> Snapshot:
    return await collect(admin, Selection(namespaces=frozenset({namespace})), redactor=REDACTOR)


async def apply(plan: Plan, target: AdminClient, run: str = "run", *, allow: bool = True) -> PlanResult:
    allowed = [change.id for change in plan.needing_permission()] if allow else []
    return await apply_plan(plan, target, Ledger.open(), run, redactor=REDACTOR, allow=allowed)


def failures(applied: PlanResult) -> list[tuple[str, str]]:
    return [(result.change.label, result.detail) for result in applied.not_in_place()]


@pytest.fixture
async def both(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[[AdminClient, NamespaceName], Awaitable[None]],
    records: Path,
) -> NamespaceName:
    """A namespace that both clusters have, with one topic."""
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
        await admin.create_topic(TopicName(name, "events"))
    return name


@pytest.mark.parametrize("level", ["namespace", "topic"])
@pytest.mark.parametrize(("ours", "theirs"), [CASES[0], CASES[5]])
async def test_without_permission_for_the_retention_nothing_is_sent(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName, level: str, ours: Limits, theirs: Limits
) -> None:
    """Neither a raised retention that would stay nor a quota that the broker refuses."""
    path = f"/namespaces/{both.path}" if level == "namespace" else f"/{TopicName(both, 'events').path}"
    await set_limits(on_blue, path, ours)
    await set_limits(on_green, path, theirs)
    before = await state(on_green, both)
    planned = await plan(on_blue, on_green, both)
    applied = await apply(planned, on_green, allow=False)
    assert {result.outcome for result in applied.results} == {Outcome.REFUSED, Outcome.SKIPPED}
    assert diff(before, await state(on_green, both)) == ()
    assert failures(await apply(planned, on_green)) == []


@pytest.mark.parametrize("level", ["namespace", "topic"])
@pytest.mark.parametrize(("ours", "theirs"), CASES)
async def test_one_apply_and_one_undo_suffice(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName, level: str, ours: Limits, theirs: Limits
) -> None:
    path = f"/namespaces/{both.path}" if level == "namespace" else f"/{TopicName(both, 'events').path}"
    await set_limits(on_blue, path, ours)
    await set_limits(on_green, path, theirs)
    before = await state(on_green, both)
    planned = await plan(on_blue, on_green, both)
    assert failures(await apply(planned, on_green)) == []
    assert (await plan(on_blue, on_green, both)).empty
    assert {result.outcome for result in (await apply(planned, on_green, "again")).results} == {Outcome.ALREADY}
    values = await read_target_values(plan_undo(Ledger.open(), "run"), on_green, REDACTOR)
    undo = plan_undo(Ledger.open(), "run", values)
    assert failures(await apply(undo, on_green, "undo")) == []
    assert diff(before, await state(on_green, both)) == ()
