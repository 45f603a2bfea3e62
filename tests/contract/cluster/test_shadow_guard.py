"""A call that would let a shadow topic delete its source's ledgers is refused, whichever procedure sends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.reconciler import Reconciler
from tests.support.replication import FOREVER, make_alone
from tests.support.shadows import NOTHING_KEPT, STORED, Shadowed, make_shadowed

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.versions import version_numbers
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.prepare.overrides import override
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.policy_sync.reconcile.request import Authority
from pulsar_fleet.read_only.pair import topic_deletion
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_sandbox import Sandbox

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")


@pytest.fixture
async def shadowed(on_blue: AdminClient, clusters: Sandbox, new_namespace: Callable[[], NamespaceName]) -> Shadowed:
    return await make_shadowed(on_blue, clusters["blue"], new_namespace().tenant)


async def keeps_sources(admin: AdminClient) -> bool:
    """Whether brokers of this release keep the ledgers of a source (measured: those of 4.2.4 do not, of 5.0.1 do)."""
    return version_numbers(await admin.version()) >= (5,)


def endangering(shadowed: Shadowed) -> dict[str, Call]:
    namespace, topic = f"/namespaces/{shadowed.shadow.namespace.path}", f"/{shadowed.shadow.path}"
    return {
        "namespace": with_body("POST", f"{namespace}/retention", NOTHING_KEPT),
        "namespace-unset": bare("DELETE", f"{namespace}/retention"),
        "local": with_body("POST", f"{topic}/retention", NOTHING_KEPT),
        "global": with_body("POST", f"{topic}/retention", NOTHING_KEPT, isGlobal="true"),
        "truncate": bare("DELETE", f"{topic}/truncate"),
        "delete": bare("DELETE", topic, force="true"),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["namespace", "namespace-unset", "local", "global", "truncate", "delete"])
async def test_past_the_guard_a_source_loses_everything_before_5_0(shadowed: Shadowed, name: str) -> None:
    call = endangering(shadowed)[name]
    with pytest.raises(PreconditionFailed, match=f"data of {shadowed.source} would be deleted") as refused:
        await shadowed.admin.send(call)
    assert str(refused.value).rstrip(".").count(". ") == 0
    await shadowed.trim()
    assert await shadowed.delivered() == STORED
    await shadowed.past_the_guard(call.method, call.path, call.body, **dict(call.params))
    if name != "delete":
        await shadowed.trim()
    assert await shadowed.delivered() == (STORED if await keeps_sources(shadowed.admin) else 0)


@pytest.mark.parametrize("partitions", [0, 2])
async def test_an_unused_shadow_is_deleted_only_where_its_source_stays(
    on_blue: AdminClient, clusters: Sandbox, new_namespace: Callable[[], NamespaceName], partitions: int
) -> None:
    """A broker that has not loaded it deletes it by its stored list."""
    shadowed = await make_shadowed(on_blue, clusters["blue"], new_namespace().tenant, partitions)
    shadow = shadowed.shadow
    await on_blue.delete(f"/{shadowed.source.path}/shadowTopics")
    assert await shadowed.delivered() == STORED
    await on_blue.put(f"/{shadow.path}/unload")
    deletion = topic_deletion(shadow, partitions)
    if await keeps_sources(on_blue):
        await on_blue.send(deletion)
        assert await on_blue.topics(shadow.namespace) == ()
    else:
        with pytest.raises(PreconditionFailed, match=f"data of {shadowed.source} would be deleted"):
            await on_blue.send(deletion)
    assert await shadowed.delivered() == STORED


async def test_every_method_of_the_client_passes_the_guard(shadowed: Shadowed) -> None:
    admin, shadow = shadowed.admin, shadowed.shadow
    unprotected = NamespaceName(shadow.namespace.tenant, "other")
    await admin.put_namespace(unprotected, {"replication_clusters": ["blue"]})
    name, properties = shadow.namespace.path, {SHADOW_SOURCE: str(shadowed.source)}
    calls = {
        "post": lambda: admin.post(f"/namespaces/{name}/retention", NOTHING_KEPT),
        "part": lambda: admin.post(
            f"/namespaces/{shadow.namespace.path}/retention", {**FOREVER, "retentionSizeInMB": 5}
        ),
        "delete": lambda: admin.delete(f"/namespaces/{shadow.namespace.path}/retention"),
        "property": lambda: admin.delete(f"/{shadow.path}/properties", key=SHADOW_SOURCE),
        "other source": lambda: admin.put(f"/{shadow.path}/properties", {SHADOW_SOURCE: "persistent://a/b/c"}),
        "plain": lambda: admin.create_topic(TopicName(unprotected, "plain"), properties),
        "partitioned": lambda: admin.create_partitioned_topic(TopicName(unprotected, "parts"), 2, properties),
        "namespace": lambda: admin.delete(f"/namespaces/{shadow.namespace.path}", force=True),
    }
    for send in calls.values():
        with pytest.raises(PreconditionFailed, match=r"data of persistent://.* would be deleted"):
            await send()
    assert await admin.topics(unprotected) == ()
    assert await shadowed.delivered() == STORED


async def test_what_keeps_everything_and_what_concerns_no_shadow_is_sent(
    shadowed: Shadowed, on_blue: AdminClient
) -> None:
    namespace, source = shadowed.shadow.namespace, shadowed.source
    await on_blue.post(f"/namespaces/{namespace.path}/retention", FOREVER)
    await on_blue.post(f"/{shadowed.shadow.path}/retention", FOREVER)
    await on_blue.delete(f"/{shadowed.shadow.path}/retention")
    await on_blue.post(f"/namespaces/{source.namespace.path}/retention", {**FOREVER, "retentionTimeInMinutes": 5})
    await on_blue.delete(f"/namespaces/{source.namespace.path}/retention")
    own = TopicName(namespace, "own")
    await on_blue.create_topic(own)
    await on_blue.post(f"/{own.path}/retention", NOTHING_KEPT)
    await on_blue.delete(f"/{own.path}")
    assert await shadowed.delivered() == STORED


async def test_a_partitioned_shadow_is_protected_too(
    on_blue: AdminClient, clusters: Sandbox, new_namespace: Callable[[], NamespaceName]
) -> None:
    shadowed = await make_shadowed(on_blue, clusters["blue"], new_namespace().tenant, partitions=2)
    for call in [
        *endangering(shadowed).values(),
        bare("DELETE", f"/{shadowed.shadow.path}/partitions", force="true"),
        bare("DELETE", f"/{shadowed.shadow.partition(1).path}/truncate"),
    ]:
        with pytest.raises(PreconditionFailed, match=f"data of {shadowed.source} would be deleted"):
            await on_blue.send(call)


async def of(admin: AdminClient, namespace: NamespaceName) -> Snapshot:
    return await collect(admin, Selection(namespaces=frozenset({namespace})), redactor=REDACTOR)


async def apply(plan: Plan, admin: AdminClient, run: str) -> list[tuple[Outcome, str]]:
    allow = [change.id for change in plan.needing_permission()]
    applied = await apply_plan(plan, admin, Ledger.open(), run, redactor=REDACTOR, allow=allow)
    return [(result.outcome, result.detail) for result in applied.not_in_place()]


async def test_a_plan_that_copies_a_lower_retention_is_refused(
    shadowed: Shadowed, on_blue: AdminClient, on_green: AdminClient, records: Path
) -> None:
    namespace = shadowed.shadow.namespace
    await make_alone(on_green, namespace)
    await on_green.post(f"/namespaces/{namespace.path}/retention", {**FOREVER, "retentionTimeInMinutes": 5})
    ((outcome, detail),) = await apply(
        plan_changes(await of(on_green, namespace), await of(on_blue, namespace)), on_blue, "onboarding"
    )
    assert outcome is Outcome.REFUSED
    assert f"data of {shadowed.source} would be deleted" in detail
    assert await shadowed.delivered() == STORED


async def test_an_undo_that_lowers_the_retention_is_refused(
    on_blue: AdminClient,
    on_green: AdminClient,
    clusters: Sandbox,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    tenant = new_namespace().tenant
    namespace = NamespaceName(tenant, "readers")
    for admin in (on_blue, on_green):
        await make_alone(admin, namespace)
    await on_blue.post(f"/namespaces/{namespace.path}/retention", {**FOREVER, "retentionTimeInMinutes": 5})
    assert await apply(plan_changes(await of(on_green, namespace), await of(on_blue, namespace)), on_blue, "run") == []
    await on_blue.delete(f"/namespaces/{namespace.path}")
    shadowed = await make_shadowed(on_blue, clusters["blue"], tenant)
    ((outcome, detail),) = await apply(plan_undo(Ledger.open(), "run"), on_blue, "undo")
    assert outcome is Outcome.REFUSED
    assert f"data of {shadowed.source} would be deleted" in detail


@pytest.mark.long
async def test_a_reconciliation_that_lowers_the_retention_is_refused(
    shadowed: Shadowed,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    records: Path,
) -> None:
    namespace = shadowed.shadow.namespace
    await make_alone(on_green, namespace)
    reconciler = Reconciler.of(namespace.tenant, blue, green, authority=Authority.parse("cluster:green"))
    await reconciler.cycle()
    await on_green.post(f"/namespaces/{namespace.path}/retention", {**FOREVER, "retentionTimeInMinutes": 5})
    drift, _ = await reconciler.cycle()
    planned = reconciler.run.artefacts.read_json(drift.plans["blue"].plan)["changes"]
    _, repaired = await reconciler.cycle(allow=frozenset(change["id"] for change in planned))
    assert repaired is not None
    assert any(f"data of {shadowed.source} would be deleted" in problem for problem in repaired.problems)
    assert await shadowed.delivered() == STORED


async def test_an_override_of_a_migration_is_refused(shadowed: Shadowed) -> None:
    for owner in (shadowed.shadow, shadowed.shadow.namespace):
        with pytest.raises(PreconditionFailed, match=f"data of {shadowed.source} would be deleted"):
            await override(shadowed.admin, owner, "retention", NOTHING_KEPT)


async def test_a_topic_that_is_missing_is_answered_by_the_broker(
    shadowed: Shadowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = TopicName(shadowed.shadow.namespace, "missing")
    with pytest.raises(NotFound):
        await shadowed.admin.delete(f"/{missing.path}")
    reads = shadowed.admin.http.call

    async def as_an_old_broker(method: str, path: str, **options: Any) -> Any:
        """Pulsar 3.0 says 0 partitions of a missing topic too."""
        try:
            return await reads(method, path, **options)
        except NotFound:
            if not path.endswith("/partitions"):
                raise
            return await reads(method, path.replace(missing.path, shadowed.shadow.path), **options)

    monkeypatch.setattr(shadowed.admin.http, "call", as_an_old_broker)
    with pytest.raises(NotFound):
        await shadowed.admin.delete(f"/{missing.path}")


async def test_where_nobody_knows_whether_a_topic_is_a_shadow_nothing_is_sent(
    shadowed: Shadowed, on_blue: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = on_blue.http.call

    async def unanswered(method: str, path: str, **options: object) -> object:
        if path.endswith("/internal-info"):
            raise TimeoutError
        return await reads(method, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(on_blue.http, "call", unanswered)
    with pytest.raises(TimeoutError):
        await on_blue.delete(f"/namespaces/{shadowed.shadow.namespace.path}/retention")
    monkeypatch.undo()
    assert (await on_blue.namespace(shadowed.shadow.namespace) or {})["retention_policies"] == FOREVER
