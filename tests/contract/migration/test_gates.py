"""The gates of a migration on real clusters: every seeded fault in one report, none in clean estates, all unchanged."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from tests.support.balancer import Balancer
from tests.support.brokers import serve_from
from tests.support.migration import LATE, forget_migrations, make, migration
from tests.support.remedies import KNOWN_DEFECTS
from tests.support.snapshots import record

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.protocol import frames
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.migration.artefacts import CUT_OVER, FINDINGS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import unterminated_partitions
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.lease import held as held_by
from pulsar_fleet.migration.prepare.target import prepare
from pulsar_fleet.migration.scope import resolve
from pulsar_fleet.migration.steps import check_gates
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, TABLES
from pulsar_sandbox.sandbox.clusters import Cluster
from pulsar_sandbox.sandbox.jars import jars_for
from pulsar_sandbox.sandbox.java import find_java
from pulsar_sandbox.workload import EstateSpec, build_estate

pytestmark = pytest.mark.cluster

REDACTOR = Redactor(b"0123456789abcdef")
STRICT = Expectations(prepares_green=False)
OFF = {"clusterMigrationCheckDurationSeconds": "0", "clusterMigrationAutoResourceCreation": "true"}
TRANSACTIONS = {"transactionCoordinatorEnabled": "true"}
FIVE_BOOKIES = {
    "bookkeeperEnsemble": 5,
    "bookkeeperWriteQuorum": 3,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 0,
}
MINUTES = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 100}
SEEDED = (
    "blocker abandoned-subscription persistent://T/idle/events archive",
    "blocker auto-resource-creation-on broker {second} of wide",
    "blocker client-cannot-follow T/clients",
    "blocker flag-left-elsewhere T/elsewhere",
    "blocker green-namespace-missing T/alone",
    "blocker green-not-in-list T/foreign",
    "blocker green-policies-differ T/far",
    "blocker green-policies-differ T/rights",
    "blocker green-schemas-missing T/paid",
    "blocker green-tenant-differs tenant T",
    "blocker green-topic-policies-differ T/rate",
    "blocker migration-check-off broker {second} of wide",
    "blocker namespace-migrated T/flagged",
    "blocker namespace-missing T/absent",
    "blocker not-readable T/foreign of green",
    "blocker partitions-grow persistent://T/shape/events",
    "blocker peer-address-missing cluster gone",
    "blocker reader-stalls T/clients",
    "blocker redirect-kind-missing cluster green",
    "blocker redirect-not-green brokerServiceUrl {third}",
    "blocker redirect-to-another-cluster cluster wide",
    "blocker replicator-disconnected T/far",
    "blocker retention-shorter-than-lag T/short",
    "warning retained-messages-stay T/short",
    "blocker role-missing-on-green T/rights",
    "blocker schema-incompatible persistent://T/schema/events",
    "blocker security-differs cluster green",
    "blocker transactions-in-use persistent://T/paid/events",
    "warning client-may-hang T/clients",
    "warning client-may-hang T/idle",
    "warning non-durable-consumer T/clients",
    "warning transactions-off cluster green",
)
"""All that is wrong with the namespaces of `Faults`, whose tenant is T; green has no TLS and no tokens besides."""


@pytest.fixture(scope="module")
def wide(secured: Cluster) -> Iterator[Cluster]:
    """A cluster of two brokers with tokens; the second one was configured by somebody else."""
    secured.restart(1, settings=OFF)
    yield secured
    secured.restart(1, settings={})


def reach(cluster: Cluster, role: str = "admin") -> ClusterConnection:
    return ClusterConnection(
        name="wide",
        admin_url=cluster.admin_url,
        service_url=cluster.service_url,
        token=cluster.token(role),
        tls_trust_file=cluster.trust_file,
    )


async def held(admin: AdminClient, names: Sequence[NamespaceName]) -> set[str]:
    """All that a cluster holds of these, without clients and the topics that a broker makes when it loads others."""
    snapshot = await collect(admin, Selection(namespaces=frozenset(names)), redactor=REDACTOR)
    rows = [row for table in TABLES for row in getattr(snapshot, table)]
    return {repr(row) for row in rows if getattr(row, "kind", "") not in ("client", SYSTEM_TOPIC)}


def findings(run: Run) -> list[Finding]:
    reference = run.artefacts.find(run.id, FINDINGS)
    assert reference is not None
    return [Finding.from_json(document) for document in run.artefacts.read_json(reference)]


class Faults:
    """Namespaces of one tenant on blue and green, each with something wrong in it."""

    def __init__(self, tenant: str, blue: AdminClient, green: AdminClient) -> None:
        self.tenant = tenant
        self.blue = blue
        self.green = green

    def name(self, local: str) -> NamespaceName:
        return NamespaceName(self.tenant, local)

    def topic(self, local: str) -> TopicName:
        return TopicName(self.name(local), "events")

    async def seed(self) -> list[NamespaceName]:
        """Make all of it; the names that a run is asked to move, one of which is not there."""
        own, nobody = await self.green.cluster_name(), {"serviceUrl": "http://localhost:1"}
        for side, name in ((self.blue, "gone"), (self.green, "wide")):
            if await side.cluster_data(name) is None:
                await side.put_cluster(name, {**nobody, "brokerServiceUrl": "pulsar://localhost:1"})
        await self.blue.put(f"/tenants/{self.tenant}", {"adminRoles": [], "allowedClusters": ["wide", "gone"]})
        await self.green.put(f"/tenants/{self.tenant}", {"adminRoles": [], "allowedClusters": [own, "wide"]})
        both = ("shape", "schema", "rights", "short", "idle", "rate", "clients", "paid", "far")
        for local in (*both, "alone", "flagged", "foreign", "elsewhere"):
            await self.blue.put(f"/namespaces/{self.name(local).path}", {"replication_clusters": ["wide"]})
        for local in (*both, "flagged"):
            await self.green.put(f"/namespaces/{self.name(local).path}", {"replication_clusters": [own]})
        await self.green.put(f"/namespaces/{self.name('foreign').path}", {"replication_clusters": ["wide"]})
        for local in both[1:]:
            await asyncio.gather(*(side.create_topic(self.topic(local)) for side in (self.blue, self.green)))
        await self._topics()
        await self._policies()
        return [self.name(local) for local in (*both, "alone", "flagged", "foreign", "absent")]

    async def _topics(self) -> None:
        blue, green = self.blue, self.green
        await blue.create_partitioned_topic(self.topic("shape"), 4)
        await green.create_partitioned_topic(self.topic("shape"), 2)
        for side, kind in ((blue, "string"), (green, "long")):
            schema = {"type": "AVRO", "schema": record(("id", kind)), "properties": {}}
            await side.post_schema(self.topic("schema"), schema)
        await blue.create_topic(self.topic("alone"))
        for side in (blue, green):
            await side.create_subscription(self.topic("idle"), "archive")

    async def _policies(self) -> None:
        blue, green = self.blue, self.green
        await blue.post(f"/namespaces/{self.name('rights').path}/permissions/billing", ["consume"])
        for side in (blue, green):
            await side.post(f"/namespaces/{self.name('short').path}/retention", MINUTES)
            rate = {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1}
            await side.post(f"/{self.topic('rate').path}/publishRate", rate)
        for local in ("flagged", "elsewhere"):
            await blue.post(f"/namespaces/{self.name(local).path}/migration", True)
        await blue.post(f"/namespaces/{self.name('far').path}/replication", ["wide", "gone"])
        third = {key: "pulsar://localhost:1" for key in ("brokerServiceUrl", "brokerServiceUrlTls")}
        third |= {"serviceUrl": "http://localhost:1", "serviceUrlTls": "https://localhost:1"}
        await blue.post("/clusters/wide/migrate", third, migrated=False)


@pytest.fixture(autouse=True)
async def nothing_left_from_before(on_blue: AdminClient, on_green: AdminClient) -> None:
    """Forget what migrations leave behind on purpose; the gates rightly speak of it."""
    await forget_migrations(on_blue, on_green)


@asynccontextmanager
async def clients(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Someone who left a backlog, a Python reader, and a client with the version string of Java 2.11."""
    where = faults.blue.connection
    client = pulsar.Client(
        where.require_service_url(),
        authentication=pulsar.AuthenticationToken(where.read_token()),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    client.create_producer(str(faults.topic("idle"))).send(b"unread")
    client.create_reader(str(faults.topic("clients")), pulsar.MessageId.earliest, reader_name="look")
    monkeypatch.setattr(frames, "CLIENT", "2.11.4")
    brokers = Brokers(where, timeout_seconds=10)
    old = brokers.serving(str(faults.topic("clients")))
    request = old.next_id()
    start = frames.Position(0, 0)
    old.ask(
        request,
        frames.subscribe(request, 1, str(faults.topic("clients")), "old", start),
        about=str(faults.topic("clients")),
    )
    try:
        yield
    finally:
        brokers.close()
        client.close()


async def transact(wide: Cluster, topic: TopicName) -> None:
    """A real Java client commits a transaction."""
    cluster, program = wide, Path(__file__).with_name("Transact.java")
    command = [find_java().path, "-cp", f"{jars_for(cluster.version)}/*", str(program), cluster.name]
    command += [f"zk:127.0.0.1:{cluster.layout.zookeeper_port}", cluster.service_url, cluster.token(), str(topic)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=90)


async def test_all_seeded_faults_are_in_one_report_and_nothing_is_changed(
    wide: Cluster,
    blue: ClusterConnection,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run.open("migrate_namespaces/faults")
    # The address of green leads to a third cluster.
    sides = Sides(reach(wide), replace(on_green.connection, service_url=blue.service_url))
    async with AdminClient(reach(wide)) as on_wide:
        faults = Faults(new_namespace().tenant, on_wide, on_green)
        names = await faults.seed()
        await transact(wide, faults.topic("paid"))
        # The counts of a topic begin with its load; what transactions wrote is still stored.
        await on_wide.put(f"/{faults.topic('paid').path}/unload")
        async with clients(faults, monkeypatch):
            before = await asyncio.gather(held(on_wide, names), held(on_green, names))
            with pytest.raises(PreconditionFailed, match="Nothing has been changed"):
                await check_gates(sides, run, names, Strategy.REDIRECT, expected=STRICT)
            after = await asyncio.gather(held(on_wide, names), held(on_green, names))
    lines = {
        f"{finding.severity} {finding.id} {finding.resource}".replace(faults.tenant, "T") for finding in findings(run)
    }
    second = urlsplit(wide.admin_urls[1]).netloc
    assert lines == {line.format(second=second, third=blue.service_url) for line in SEEDED}
    assert [rows ^ later for rows, later in zip(before, after, strict=True)] == [set(), set()]


async def test_a_role_without_superuser_and_a_dead_address_are_named(
    wide: Cluster, on_green: AdminClient, new_namespace: Callable[[], NamespaceName], records: Path
) -> None:
    name = new_namespace()
    async with AdminClient(reach(wide)) as on_wide:
        rights = {"adminRoles": ["tenant-admin"], "allowedClusters": ["wide"]}
        await on_wide.put(f"/tenants/{name.tenant}", rights)
        await on_wide.put(f"/namespaces/{name.path}", {"replication_clusters": ["wide"]})
    async with held_by(Sides(on_green.connection, on_green.connection), Run.open("another"), [new_namespace()]):
        pass  # green has a record of runs, which the wrong address hides
    run = Run.open("migrate_namespaces/role")
    limited = replace(reach(wide, "tenant-admin"), cluster_name="wide")
    sides = Sides(limited, replace(on_green.connection, service_url="pulsar://localhost:1"))
    with pytest.raises(PreconditionFailed):
        await check_gates(sides, run, [name], None)
    lines = {f"{finding.id} {finding.resource}" for finding in findings(run)}
    assert {"superuser-needed cluster wide", "redirect-unreachable brokerServiceUrl pulsar://localhost:1"} <= lines
    assert {"redirect-unknown cluster wide", "flags-unknown cluster wide"} <= lines


@pytest.mark.long
async def test_clean_estates_of_twenty_shapes_give_no_alarm(
    blue: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    """But for known defects of the version: some namespaces compact."""
    live = new_namespace()
    spec = EstateSpec(
        live=str(live),
        tenants=5,
        namespaces_per_tenant=4,
        topics_per_namespace=2,
        messages_per_topic=0,
        history=0,
        prefix=f"{live.tenant}-",
    )
    built = await build_estate(blue, spec)
    tenants = sorted({entry.name.tenant for entry in built.namespaces})
    names = await resolve(on_blue, [f"re:{live.tenant}.*/.*"])
    assert (len(names), len(tenants)) == (20, 5)
    run, sides = Run.open("migrate_namespaces/clean"), Sides(on_blue.connection, on_green.connection)
    reference, alarms = await check_gates(sides, run, names, None)
    assert [entry.text() for entry in alarms if entry.id not in KNOWN_DEFECTS] == []
    waiver = Waiver(id="transactions-in-use", resource="persistent://acme/moved/events", who="Ada", why="it is gone")
    with pytest.raises(InvalidRequest, match="'transactions-in-use of persistent://acme/moved/events' matches no"):
        await check_gates(sides, run, names, None, waivers=[waiver])
    # An earlier wave of the same plan has moved what it was for.
    await check_gates(sides, run, names, None, waivers=[waiver], expected=Expectations(continues=True))
    await prepare(sides, run, Moves.from_json(run.artefacts.read_json(reference)))
    _, alarms = await check_gates(sides, run, names, None, expected=STRICT)
    assert [entry.text() for entry in alarms if entry.id not in KNOWN_DEFECTS] == []


@pytest.mark.long
async def test_a_check_that_is_off_on_one_broker_is_found_behind_a_load_balancer(
    wide: Cluster, on_green: AdminClient, new_namespace: Callable[[], NamespaceName], records: Path
) -> None:
    name = new_namespace()
    async with AdminClient(reach(wide)) as on_wide:
        await on_wide.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["wide"]})
        await on_wide.put(f"/namespaces/{name.path}", {"replication_clusters": ["wide"]})
    second = urlsplit(wide.admin_urls[1]).netloc
    async with Balancer(wide.admin_urls_tls) as balancer:
        sides = Sides(replace(reach(wide), admin_url=balancer.url), on_green.connection)
        for number in range(5):
            run = Run.open(f"migrate_namespaces/balanced-{number}")
            with pytest.raises(PreconditionFailed):
                await check_gates(sides, run, [name], None)
            off = {finding.resource for finding in findings(run) if finding.id == "migration-check-off"}
            assert off == {f"broker {second} of wide"}


async def test_bundles_on_a_broker_that_does_not_check_move_to_one_that_does(
    wide: Cluster, green: ClusterConnection, new_namespace: Callable[[], NamespaceName], tmp_path: Path
) -> None:
    moving = migration(reach(wide), green, new_namespace(), tmp_path)
    (move,) = moving.moves.moves
    checking, other = (urlsplit(url).netloc for url in wide.admin_urls)
    await make(reach(wide), green, move.namespace)
    async with AdminClient(reach(wide)) as on_wide:
        for partition in move.partitions:
            await serve_from(on_wide, partition, other)
        await moving.freeze_blue()
        await moving.switch()
        bundles = {f"{move.namespace.path}/{await on_wide.bundle(partition)}" for partition in move.partitions}
        assert bundles <= set(await on_wide.owned_bundles(checking))
        assert await unterminated_partitions(on_wide, move) == ()
        assert (await on_wide.namespace(move.namespace) or {})["migrated"]
        await moving.restore_blue()
    moved = moving.run.stored(CUT_OVER)[str(move.namespace)]["moved_bundles"]
    assert {f"{move.namespace.path}/{bundle}" for bundle in moved} == bundles


@pytest.mark.long
async def test_a_topic_that_cannot_be_loaded_where_its_bundle_moves_is_left(
    wide: Cluster, green: ClusterConnection, new_namespace: Callable[[], NamespaceName], tmp_path: Path
) -> None:
    """It needs more bookies for its next ledger than there are."""
    moving = migration(reach(wide), green, new_namespace(), tmp_path)
    (move,) = moving.moves.moves
    await make(reach(wide), green, move.namespace)
    late = moving.topic(LATE)
    async with AdminClient(reach(wide), retry_seconds=1) as on_wide:
        for partition in move.partitions:
            await serve_from(on_wide, partition, urlsplit(wide.admin_urls[1]).netloc)
        # Its bundle may have moved for another topic: it must be loaded before no broker can load it.
        await on_wide.stats(late)
        await on_wide.post(f"/{late.path}/persistence", FIVE_BOOKIES)
        await moving.freeze_blue()
        await moving.switch()
        assert await unterminated_partitions(on_wide, move) == (late,)
        await moving.restore_blue()
        left = moving.run.stored(CUT_OVER)[str(move.namespace)]["unterminated"]
        assert list(left) == [str(late)]
