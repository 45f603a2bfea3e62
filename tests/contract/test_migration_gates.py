"""The gates of a migration on real clusters: every seeded fault in one report, none in clean estates, all unchanged."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pulsar
import pytest
from tests.unit.estates import record

from pulsar_fleet.change.findings import Finding
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.secrets import Seal
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.snapshot import collect
from pulsar_fleet.cluster.states import Snapshot
from pulsar_fleet.migration.moves import Moves
from pulsar_fleet.migration.phases import Strategy
from pulsar_fleet.migration.preparation import prepare
from pulsar_fleet.migration.scope import resolve
from pulsar_fleet.migration.steps import FINDINGS, Sides, check
from pulsar_fleet.migration.surveyed import Expectations
from pulsar_fleet.reading import wire_frames
from pulsar_fleet.reading.wire_lookup import Brokers
from pulsar_fleet.records.run import Run
from pulsar_fleet.sandbox import Sandbox
from pulsar_fleet.sandbox.jars import jars_for
from pulsar_fleet.sandbox.java import find_java
from pulsar_fleet.sandbox.workload import EstateSpec, build_estate

SEAL = Seal(b"0123456789abcdef")
STRICT = Expectations(prepares_green=False)
OFF = {"clusterMigrationCheckDurationSeconds": "0", "clusterMigrationAutoResourceCreation": "true"}
TRANSACTIONS = {"transactionCoordinatorEnabled": "true"}
MINUTES = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 100}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster of two brokers with tokens; the second one was configured by somebody else."""
    settings = {"wide": TRANSACTIONS}
    with Sandbox.start(
        tmp_path_factory.mktemp("wide"), clusters=("wide",), brokers=2, secure=True, settings=settings
    ) as sandbox:
        sandbox["wide"].restart(1, settings=OFF)
        yield sandbox


def reach(sandbox: Sandbox, role: str = "admin") -> ClusterConnection:
    cluster = sandbox["wide"]
    return ClusterConnection(
        name="wide",
        admin_url=cluster.admin_url,
        service_url=cluster.service_url,
        token=cluster.token(role),
        tls_trust_file=cluster.trust_file,
    )


async def held(admin: AdminClient, names: Sequence[NamespaceName]) -> Snapshot:
    """What a cluster holds of these, without what differs from one reading to the next."""
    found = await collect(admin, Selection(namespaces=frozenset(names)), seal=SEAL)
    known = tuple(one for one in found.inventory if one.kind != "client")
    return replace(found, began="", ended="", calls=0, inventory=known)


def findings(run: Run) -> list[Finding]:
    found = run.artefacts.find(run.id, FINDINGS)
    assert found is not None
    return [Finding.from_json(one) for one in run.artefacts.read_json(found)]


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
        await self.blue.put_cluster("gone", {**nobody, "brokerServiceUrl": "pulsar://localhost:1"})
        await self.green.put_cluster("wide", nobody)
        await self.blue.put(f"/tenants/{self.tenant}", {"adminRoles": [], "allowedClusters": ["wide", "gone"]})
        await self.green.put(f"/tenants/{self.tenant}", {"adminRoles": [], "allowedClusters": [own, "wide"]})
        both = ("shape", "schema", "rights", "short", "idle", "rate", "clients", "paid", "far")
        for local in (*both, "alone", "flagged", "foreign"):
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
        await blue.post(f"/namespaces/{self.name('flagged').path}/migration", True)
        await blue.post(f"/namespaces/{self.name('far').path}/replication", ["wide", "gone"])
        third = {key: "pulsar://localhost:1" for key in ("brokerServiceUrl", "brokerServiceUrlTls")}
        third |= {"serviceUrl": "http://localhost:1", "serviceUrlTls": "https://localhost:1"}
        await blue.post("/clusters/wide/migrate", third, migrated=False)


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
    monkeypatch.setattr(wire_frames, "CLIENT", "2.11.4")
    brokers = Brokers(where, timeout_seconds=10)
    old = brokers.serving(str(faults.topic("clients")))
    request = old.next_id()
    start = wire_frames.Position(0, 0)
    old.ask(
        request,
        wire_frames.subscribe(request, 1, str(faults.topic("clients")), "old", start),
        about=str(faults.topic("clients")),
    )
    try:
        yield
    finally:
        brokers.close()
        client.close()


async def transact(faults: Faults) -> None:
    """A real Java client commits a transaction."""
    await faults.blue.create_partitioned_topic(
        TopicName(NamespaceName("pulsar", "system"), "transaction_coordinator_assign"), 1
    )
    where = faults.blue.connection
    command = [find_java().path, "-cp", f"{jars_for('4.2.4')}/*", str(Path(__file__).with_name("Transact.java"))]
    command += [where.require_service_url(), str(where.read_token()), str(faults.topic("paid"))]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, timeout=90)


async def test_all_seeded_faults_are_in_one_report_and_nothing_is_changed(
    wide: Sandbox,
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
        await transact(faults)
        async with clients(faults, monkeypatch):
            before = [await held(side, names) for side in (on_wide, on_green)]
            with pytest.raises(Refused, match="Nothing has been changed"):
                await check(sides, run, names, Strategy.REDIRECT, expected=STRICT)
            after = [await held(side, names) for side in (on_wide, on_green)]
    found = {(one.severity, one.id, one.resource) for one in findings(run)}
    for each in sorted(found):
        print(each)
    assert after == before


async def test_clean_estates_of_twenty_shapes_give_no_alarm(
    blue: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    live = new_namespace()
    spec = EstateSpec(
        live=str(live),
        tenants=5,
        namespaces_per_tenant=4,
        topics_per_namespace=3,
        messages_per_topic=0,
        history=0,
        prefix=f"{live.tenant}-",
    )
    built = await build_estate(blue, spec)
    tenants = sorted({one.name.tenant for one in built.namespaces})
    names = await resolve(on_blue, [f"re:{live.tenant}.*/.*"])
    assert (len(names), len(tenants)) == (20, 5)
    run, sides = Run.open("migrate_namespaces/clean"), Sides(on_blue.connection, on_green.connection)
    reference, found = await check(sides, run, names, None)
    assert [one.text() for one in found] == []
    await prepare(sides, run, Moves.from_json(run.artefacts.read_json(reference)))
    _, found = await check(sides, run, names, None, expected=STRICT)
    assert [one.text() for one in found] == []
