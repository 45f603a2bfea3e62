"""A role that is no superuser: it does what it may, says what it cannot see, and never takes that for absent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.issuer import issuing
from tests.support.kinds import StartClusters
from tests.support.proxy import Proxy, redirect
from tests.support.replication import make_alone
from tests.support.snapshot_equality import verify_equal

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import measure_peer_clock_skew
from pulsar_fleet.cluster.admin.partial_reads import Area
from pulsar_fleet.cluster.admin.permissions import Right, find_rights, rights_markdown
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    BrokerCredentials,
    NotAllowed,
    PermissionDenied,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.messages.credentials import Side, credentials_environment
from pulsar_fleet.messages.engines.engines import Engines
from pulsar_fleet.messages.ranges import EngineName
from pulsar_fleet.onboarding.steps import apply_onboarding, plan_onboarding, take_snapshot
from pulsar_fleet.report.onboard import onboarding_report
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot
from pulsar_fleet.verification.messages.compare import judge
from pulsar_fleet.verification.messages.local_backend import LocalBackend
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict
from pulsar_fleet.verification.request import ChosenEngine, VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds
from pulsar_sandbox import Cluster, Sandbox

pytestmark = [pytest.mark.versions, pytest.mark.long]

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
ESTATE = NamespaceName("team", "orders")
FOREIGN = NamespaceName("strangers", "orders")
SELECTED = Selection(tenants=frozenset({"team"}))
REDACTOR = Redactor(b"0123456789abcdef")
SUPERUSERS_ONLY = (
    Area.TENANTS,
    Area.CLUSTERS,
    Area.BROKERS,
    Area.RESOURCE_GROUPS,
    Area.BOOKIE_AFFINITY,
    Area.ISOLATION,
)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """Two clusters with tokens and authorization."""
    with start_clusters(tmp_path_factory.mktemp("secure"), clusters=("east", "west"), secure=True) as sandbox:
        yield sandbox


def reach(cluster: Cluster, role: str) -> ClusterConnection:
    return ClusterConnection(
        name=f"{cluster.name}_as_{role}",
        admin_url=cluster.admin_url,
        service_url=cluster.service_url,
        token=cluster.token(role),
    )


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_broker_that_denies_a_call_tells_its_time(secure: Sandbox, over_tls: bool) -> None:
    east, west = secure["east"], secure["west"]
    trusting = replace(reach(east, "admin"), tls_trust_file=west.trust_file)
    skew = await measure_peer_clock_skew(trusting, west.admin_url_tls if over_tls else west.admin_url)
    assert abs(skew.ahead) <= 2 * skew.uncertainty < 4
    with pytest.raises(Unavailable, match="does not tell its time"):
        await measure_peer_clock_skew(trusting, "http://localhost:1")


async def test_a_credential_and_a_trust_file_of_another_cluster_are_refused(secure: Sandbox) -> None:
    own, theirs = reach(secure["east"], "admin"), secure["west"]
    async with AdminClient(replace(own, token=theirs.token("admin"))) as admin:
        with pytest.raises(Unauthenticated):
            await admin.cluster_name()
    over_tls = replace(own, admin_url=secure["east"].admin_url_tls, tls_trust_file=theirs.trust_file)
    async with AdminClient(over_tls) as admin:
        with pytest.raises(PermissionDenied, match="is not trusted"):
            await admin.cluster_name()


@pytest.fixture
async def estate(secure: Sandbox, make_estate: Make) -> Sandbox:
    """Tenant `team` on both clusters with our role as its administrator, an estate on east; strangers beside it."""
    for cluster in secure:
        async with AdminClient(reach(cluster, "admin")) as admin:
            if await admin.tenant(ESTATE.tenant):
                continue
            for name, roles in ((ESTATE.tenant, ["tenant-admin"]), (FOREIGN.tenant, ["others"])):
                await admin.put(f"/tenants/{name}", {"adminRoles": roles, "allowedClusters": [cluster.name]})
            await admin.put_namespace(FOREIGN, {"replication_clusters": [cluster.name]})
            if cluster.name == "east":
                await make_estate(_keeping_tenants(admin), ESTATE)
    return secure


def _keeping_tenants(admin: AdminClient) -> AdminClient:
    """The estate's builder makes its tenant; ours is there already, with our role."""
    put = admin.put

    async def keep(path: str, body: object = None, **params: str | int | bool) -> None:
        if path != f"/tenants/{ESTATE.tenant}":
            await put(path, body, **params)

    admin.put = keep  # type: ignore[method-assign]
    return admin


async def snapshot(cluster: Cluster, role: str, selection: Selection = SELECTED) -> Snapshot:
    async with AdminClient(reach(cluster, role)) as admin:
        return await collect(admin, selection, redactor=REDACTOR)


async def rights(cluster: Cluster, role: str) -> tuple[Right, ...]:
    async with AdminClient(reach(cluster, role)) as admin:
        return await find_rights(admin, Selection(tenants=frozenset({"team", "strangers"})))


async def test_a_superuser_may_see_and_set_everything(estate: Sandbox) -> None:
    permissions = await rights(estate["east"], "admin")
    assert {right.may_read for right in permissions} == {True}
    assert {right.may_write for right in permissions if right.resource != Area.CLIENTS} == {True}
    assert rights_markdown("east", permissions) == ""


async def test_a_tenant_administrator_may_see_and_set_its_tenant_alone(estate: Sandbox) -> None:
    assert set(await rights(estate["east"], "tenant-admin")) == {
        *(Right(area.value, False, False) for area in SUPERUSERS_ONLY),
        Right(Area.CLIENTS, False, None),
        Right("tenant team", True, True),
        Right("namespaces of team", True, True),
        Right("tenant strangers", False, False),
        Right("namespaces of strangers", False, False),
    }


async def test_asking_for_rights_changes_nothing(estate: Sandbox) -> None:
    async def everything() -> list[object]:
        async with AdminClient(reach(estate["east"], "admin")) as admin:
            paths = ("/clusters", "/tenants", "/resourcegroups", "/brokers/configuration/values", "/tenants/team")
            return [await admin.get(path) for path in paths] + [await admin.namespaces("team")]

    before = await everything()
    await rights(estate["east"], "admin")
    await rights(estate["east"], "tenant-admin")
    assert await everything() == before


async def test_a_tenant_administrator_sees_all_of_its_tenant(estate: Sandbox) -> None:
    ours = await snapshot(estate["east"], "tenant-admin")
    full = await snapshot(estate["east"], "admin")
    visible = tuple(
        NamespaceState(
            namespace.name, {key: value for key, value in namespace.policies.items() if key != "bookie_affinity"}
        )
        for namespace in full.namespaces
    )
    for table in ("tenants", "topics", "schemas", "subscriptions", "topic_policies"):
        assert getattr(ours, table) == getattr(full, table), table
    assert (ours.namespaces, len(ours.topics), ours.complete) == (visible, 3, True)


async def test_what_a_tenant_administrator_may_not_see_is_noted_as_hidden(estate: Sandbox) -> None:
    taken = await snapshot(estate["east"], "tenant-admin")
    assert {Area(note.resource) for note in taken.hidden} == {*Area} - {Area.ISOLATION}
    assert (taken.cluster, taken.oldest_version()) == ("east", estate["east"].version)


async def test_a_tenant_that_is_not_ours_is_unreadable_and_never_absent(estate: Sandbox) -> None:
    taken = await snapshot(estate["east"], "tenant-admin", Selection(tenants=frozenset({"strangers", "nowhere"})))
    assert [note.resource for note in taken.unreadable] == ["nowhere", "strangers"]
    assert not taken.complete


async def test_a_role_that_may_not_list_tenants_is_told_to_name_them(estate: Sandbox) -> None:
    with pytest.raises(NotAllowed, match=r"may not list the tenants.*: name tenants or namespaces in the selection\.$"):
        await snapshot(estate["east"], "tenant-admin", Selection())


async def test_a_tenant_administrator_onboards_its_tenant(estate: Sandbox, records: Path) -> None:
    east, west = (reach(estate[name], "tenant-admin") for name in ("east", "west"))
    artefacts, ledger = Artefacts.open(), Ledger.open()
    source = await take_snapshot(east, SELECTED, artefacts, "r", name="source", must_exist=True)
    target = await take_snapshot(west, SELECTED, artefacts, "r", name="target")
    planned = plan_onboarding(source, target, artefacts)
    applied = await apply_onboarding(east, west, planned.plan, artefacts, ledger, "r")
    verified = await verify_equal(source, west, SELECTED, artefacts, "r")
    plan, findings = planned.plan, planned.findings
    assert (verified.equal, applied.problems) == (True, ()), verified.text
    named = {finding.resource for finding in findings if finding.id in ("not-visible", "not-settable")}
    assert {f"{Area.BROKERS} of east", f"{Area.BROKERS} of west", f"{Area.RESOURCE_GROUPS} of west"} <= named
    report = onboarding_report(source, target, plan, findings, applied, verified).markdown()
    assert f"| {Area.BOOKIE_AFFINITY} | **no** | **no** |" in report


async def test_what_one_side_hides_is_neither_set_nor_unset(estate: Sandbox, records: Path) -> None:
    """East's superuser sees a bookie affinity that west's tenant administrator may not even ask for."""
    artefacts = Artefacts.open()
    source = await take_snapshot(reach(estate["east"], "admin"), SELECTED, artefacts, "r", name="source")
    target = await take_snapshot(reach(estate["west"], "tenant-admin"), SELECTED, artefacts, "r", name="target")
    for pair in ((source, target), (target, source)):
        plan = plan_onboarding(*pair, artefacts).plan
        calls = [call.path for change in plan.changes for call in change.calls]
        assert [path for path in calls if "bookieAffinity" in path] == []
    plan = plan_onboarding(source, target, artefacts).plan
    assert "bookie_affinity" in {entry.field for entry in plan.left_alone}


async def test_the_three_refusals_are_three_sentences(estate: Sandbox) -> None:
    """The broker answers 401 to all of them."""
    east, sentences = estate["east"], []
    async with AdminClient(replace(reach(east, "admin"), token="bad")) as stranger:
        with pytest.raises(Unauthenticated) as unknown:
            await stranger.tenants()
    async with AdminClient(reach(east, "tenant-admin")) as limited:
        with pytest.raises(NotAllowed) as forbidden:
            await limited.tenants()
    async with AdminClient(reach(east, "admin")) as admin:
        await admin.create_partitioned_topic(events := TopicName(FOREIGN, "events"), 2)
        keys = estate.folder / "security" / "east" / "broker.jwt"
        good = keys.read_text()
        keys.write_text("bad")
        try:
            with pytest.raises(BrokerCredentials) as broken:
                await admin.create_subscription(events, "billing")
            taken = await collect(admin, Selection(namespaces=frozenset({FOREIGN})), redactor=REDACTOR)
        finally:
            keys.write_text(good)
    sentences = [str(raised.value) for raised in (unknown, forbidden, broken)]
    assert [sentence.partition(":")[0] for sentence in sentences] == [
        "east_as_admin does not accept our credentials (401)",
        "east_as_tenant-admin answered 401 to GET /admin/v2/tenants",
        "east_as_admin accepts our credentials, but its brokers cannot log in to each other (401)",
    ]
    assert "its role may not do this" in sentences[1]
    assert [note.detail for note in taken.unreadable if "cannot log in to each other" not in note.detail] == []
    assert taken.unreadable != ()


async def test_a_bad_token_ends_a_run_before_anything_is_read(estate: Sandbox, records: Path) -> None:
    with pytest.raises(Unauthenticated, match="does not accept our credentials"):
        await take_snapshot(
            replace(reach(estate["east"], "admin"), token="bad"), SELECTED, Artefacts.open(), "r", name="source"
        )


async def test_a_connection_must_give_a_cluster_name_that_the_cluster_knows(estate: Sandbox) -> None:
    limited = reach(estate["west"], "tenant-admin")
    async with AdminClient(replace(limited, cluster_name="west")) as named:
        assert await named.cluster_name() == "west"
    async with AdminClient(replace(limited, cluster_name="elsewhere")) as wrong:
        with pytest.raises(NotAllowed, match=r"the connection has 'elsewhere': write the name in \"cluster_name\""):
            await wrong.cluster_name()


async def test_brokers_that_a_role_may_not_list_are_named_in_the_connection(estate: Sandbox) -> None:
    east = estate["east"]
    async with Proxy(east.admin_url) as proxy, Proxy(east.admin_url, host="127.0.0.9") as second:
        limited = replace(reach(east, "tenant-admin"), admin_url=proxy.url)
        proxy.otherwise = redirect(f"{second.url}/admin/v2/clusters")
        async with AdminClient(limited) as admin:
            with pytest.raises(PreconditionFailed, match=r"name it in \"broker_hosts\" of the connection"):
                await admin.clusters()
        async with AdminClient(replace(limited, broker_hosts=("127.0.0.9",))) as admin:
            assert await admin.clusters() == ("east",)


# What a verification cannot read.

Break = Callable[[ClusterConnection, Cluster], ClusterConnection]
UNREADABLE: dict[str, tuple[Break, str]] = {
    "wrong token": (lambda reach, _: replace(reach, token="e30.e30.bad"), "credentials are not accepted"),
    "no permission": (lambda reach, cluster: replace(reach, token=cluster.token("nobody")), "grant it consume"),
    "unreachable broker": (lambda reach, _: replace(reach, service_url="pulsar://127.0.0.1:9"), "127.0.0.1:9"),
}


@pytest.fixture(scope="module")
def orders(secure: Sandbox) -> VerifyRequest:
    """A topic that is equal on both clusters, its bounds frozen."""
    return asyncio.run(_orders(secure))


async def _orders(secure: Sandbox) -> VerifyRequest:
    topic = TopicName(NamespaceName("verified", "orders"), "events")
    async with AdminClient(reach(secure["east"], "admin")) as east, AdminClient(reach(secure["west"], "admin")) as west:
        for admin in (east, west):
            await make_alone(admin, topic.namespace)
            await admin.create_topic(topic)
            client = open_client(admin.connection)
            producer = client.create_producer(str(topic), producer_name="checkout", batching_enabled=False)
            for number in range(10):
                producer.send(b"%d" % number)
            client.close()
        return await freeze_bounds(east, west, [topic.namespace])


def judged(
    request: VerifyRequest, engine: EngineName, source: ClusterConnection, target: ClusterConnection
) -> TopicVerdict:
    request = replace(request, pairs=tuple(replace(pair, engine=ChosenEngine(engine)) for pair in request.pairs))
    impatient = {"retry_seconds": 2.0, "timeout_seconds": 3.0}
    with Engines(source, **impatient) as source_engines, Engines(target, **impatient) as target_engines:
        verification = judge(request, LocalBackend({Side.SOURCE: source_engines, Side.TARGET: target_engines}))
    ((topic,),) = (namespace.topics for namespace in verification.namespaces)
    return topic


@pytest.mark.parametrize("engine", list(EngineName))
@pytest.mark.parametrize("problem", UNREADABLE)
async def test_what_cannot_be_read_is_inconclusive_for_one_clear_reason(
    secure: Sandbox, orders: VerifyRequest, problem: str, engine: EngineName
) -> None:
    break_, words = UNREADABLE[problem]
    east, west = reach(secure["east"], "admin"), reach(secure["west"], "admin")
    verification = await asyncio.to_thread(judged, orders, engine, east, break_(west, secure["west"]))
    assert (verification.verdict, words in verification.reason, "\n" in verification.reason) == (
        Verdict.INCONCLUSIVE,
        True,
        False,
    ), verification.reason
    assert verification.target_messages == 0
    await nothing_is_left(secure)


async def test_what_can_be_read_by_both_engines_is_compared(secure: Sandbox, orders: VerifyRequest) -> None:
    east, west = reach(secure["east"], "admin"), reach(secure["west"], "admin")
    verification = await asyncio.to_thread(judged, orders, EngineName.MESSAGE, east, west)
    assert (verification.verdict, verification.source_messages) == (Verdict.EQUAL, 10)
    await nothing_is_left(secure)


@pytest.mark.parametrize("engine", list(EngineName))
async def test_tokens_of_an_issuer_open_what_a_token_opens(
    secure: Sandbox, orders: VerifyRequest, engine: EngineName, tmp_path: Path
) -> None:
    east, west = secure["east"], reach(secure["west"], "admin")
    with issuing(lambda: east.token("admin")) as issuer:
        here = replace(reach(east, "admin"), token=None, oauth2=OAuth2(key_file=issuer.key_file(tmp_path)))
        async with AdminClient(here) as admin:
            assert await admin.cluster_name() == "east"
        verification = await asyncio.to_thread(judged, orders, engine, here, west)
        assert (verification.verdict, verification.source_messages, len(issuer.asked)) == (Verdict.EQUAL, 10, 1), (
            verification.reason
        )
        environment = {**os.environ, **credentials_environment(Side.SOURCE, here)}
        words = ["snapshot", east.admin_url, "--select", "verified", "--out", str(tmp_path / "east")]
        command = [sys.executable, "-m", "pulsar_fleet.cli", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, len(issuer.asked)) == (0, 2), done.stderr


async def nothing_is_left(secure: Sandbox) -> None:
    for cluster in secure:
        async with AdminClient(reach(cluster, "admin")) as admin, asyncio.timeout(10):
            while (await admin.stats(TopicName.parse("persistent://verified/orders/events")))["subscriptions"]:
                await asyncio.sleep(0.1)


def test_the_command_line_ends_with_a_status_that_is_not_0(
    secure: Sandbox, monkeypatch: pytest.MonkeyPatch, records: Path
) -> None:
    for cluster in secure:
        extra = {"service_url": cluster.service_url}
        conn = {"conn_type": "pulsar", "host": cluster.admin_url, "password": cluster.token("admin"), "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{cluster.name.upper()}", json.dumps(conn))
    bad = {"conn_type": "pulsar", "host": secure["west"].admin_url, "password": "bad"}
    monkeypatch.setenv("AIRFLOW_CONN_BAD", json.dumps(bad))
    cases = [
        (["east", "west", "--namespace", "verified/none"], 1, "'verified/none' does not exist on east"),
        (["east", "bad", "--namespace", "verified/orders"], 1, "does not accept our credentials"),
        (["east", "http://127.0.0.1:9", "--namespace", "verified/orders"], 1, "127.0.0.1:9"),
    ]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda case: verify_command(case[0]), cases))
    for (_, status, words), completed in zip(cases, done, strict=True):
        assert (completed.returncode, words in completed.stdout + completed.stderr) == (status, True), (
            completed.stdout + completed.stderr
        )


def verify_command(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pulsar_fleet.cli", "verify", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
