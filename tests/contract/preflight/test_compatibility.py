"""The checks on real clusters: seeded faults are named, clean estates are not, and nothing is written by looking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.support.snapshots import record

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import body_for_creation, translate
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.onboarding.steps import plan_onboarding, take_snapshot
from pulsar_fleet.preflight.schema_probe import probe_schema, probe_schemas
from pulsar_fleet.preflight.schema_rules import SchemaFit, check_schema
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import SchemaState, Snapshot
from pulsar_sandbox.workload import EstateSpec, build_estate
from pulsar_sandbox.workload.live import live_topics

pytestmark = pytest.mark.versions

NewNamespace = Callable[[], NamespaceName]
REDACTOR = Redactor(b"0123456789abcdef")


@dataclass(frozen=True)
class Estates:
    """An estate of four namespaces on blue; green has nothing of it at first."""

    blue: AdminClient
    green: AdminClient
    live: NamespaceName
    spaces: tuple[NamespaceName, ...]

    @property
    def selection(self) -> Selection:
        """The tenants of the estate."""
        return Selection(tenants=frozenset(name.tenant for name in (self.live, *self.spaces)))

    async def snapshots(self) -> list[Snapshot]:
        """Both clusters as they are, without what differs from one reading to the next."""
        taken = [await collect(admin, self.selection, redactor=REDACTOR) for admin in (self.blue, self.green)]
        return [replace(snapshot, began="", ended="", calls=0) for snapshot in taken]

    async def copy_namespace(self, name: NamespaceName) -> None:
        """Make the same namespace on green, without its topics."""
        tenant = await self.blue.tenant(name.tenant)
        if await self.green.tenant(name.tenant) is None:
            await self.green.put(f"/tenants/{name.tenant}", {**(tenant or {}), "allowedClusters": ["green"]})
        document = translate(await self.blue.namespace(name) or {}, "blue", "green").document
        await self.green.put_namespace(name, body_for_creation(document))

    async def findings(self) -> set[str]:
        """What a run of the procedure says, by its own steps."""
        artefacts = Artefacts.open()
        source = await take_snapshot(self.blue.connection, self.selection, artefacts, "r", name="source")
        target = await take_snapshot(self.green.connection, self.selection, artefacts, "r", name="target")
        findings = plan_onboarding(source, target, artefacts).findings
        # Tests that run beside this one override dynamic settings of the shared clusters for a while.
        mine = [finding for finding in findings if finding.resource not in ("cluster blue", "cluster green")]
        return {f"{finding.severity} {finding.id}: {finding.resource}" for finding in mine}


@pytest.fixture
async def estates(
    blue: ClusterConnection, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> Estates:
    """Tenants of the test's own."""
    live = new_namespace()
    spec = EstateSpec(
        live=str(live),
        tenants=2,
        namespaces_per_tenant=2,
        topics_per_namespace=4,
        messages_per_topic=0,
        history=0,
        prefix=f"{live.tenant}-",
    )
    built = await build_estate(blue, spec)
    spaces = tuple(namespace.name for namespace in built.namespaces if namespace.name != live)
    return Estates(on_blue, on_green, live, spaces)


@pytest.fixture
async def unknown_peer(on_blue: AdminClient, estates: Estates) -> AsyncIterator[str]:
    """A cluster that blue knows and replicates a namespace to, and green has never heard of.

    Its data has a secret, so a plan does not create it.
    """
    name, space = f"peer-{estates.live.tenant}", estates.spaces[0]
    data = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"}
    await on_blue.put_cluster(name, {**data, "authenticationParameters": "token:hush"})
    tenant = await on_blue.tenant(space.tenant) or {}
    await on_blue.post(f"/tenants/{space.tenant}", {**tenant, "allowedClusters": ["blue", name]})
    await on_blue.post(f"/namespaces/{space.path}/replication", ["blue", name])
    yield name
    await on_blue.post(f"/namespaces/{space.path}/replication", ["blue"])
    await on_blue.post(f"/tenants/{space.tenant}", tenant)
    await on_blue.delete(f"/clusters/{name}")


async def test_a_clean_estate_has_no_findings_and_looking_writes_nothing(estates: Estates) -> None:
    before = await estates.snapshots()
    assert len(before[0].topics) == 14
    assert await estates.findings() == set()
    assert await estates.snapshots() == before


@pytest.mark.cluster
async def test_seeded_faults_are_found_exactly_and_looking_writes_nothing(estates: Estates, unknown_peer: str) -> None:
    green, (_, second, third) = estates.green, estates.spaces
    for space in (estates.live, second):
        await estates.copy_namespace(space)
    events, audit = live_topics(estates.live)
    partitions = (await estates.blue.partition_metadata(events)).partitions
    await green.create_partitioned_topic(events, partitions + 2)
    await green.create_partitioned_topic(audit, 2)
    await green.post(f"/namespaces/{estates.live.path}/permissions/stranger", ["consume"])
    await green.post(f"/namespaces/{second.path}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    described = await _with_schema(estates, estates.live)
    await green.create_topic(described)
    await green.post_schema(described, {"type": "AVRO", "schema": record(("else", "long")), "properties": {}})
    await estates.blue.post(f"/namespaces/{third.path}/maxTopicsPerNamespace", 3)
    before = await estates.snapshots()
    assert await estates.findings() == {
        f"blocker partitions-differ: {events}",
        f"blocker partitioned-on-one-side: {audit}",
        f"warning role-only-on-target: {estates.live}",
        f"warning auto-subscription-differs: {second}",
        f"blocker schema-incompatible: {described}",
        f"blocker too-many-topics: {third}",
        f"warning cluster-unknown-to-target: cluster {unknown_peer}",
        f"warning peer-unreachable-from-here: cluster {unknown_peer}",
    }
    assert await estates.snapshots() == before
    source, target = before
    assert {schema.compatible for schema in await probe_schemas(green, source, target)} == {False}
    assert await estates.snapshots() == before


async def _with_schema(estates: Estates, namespace: NamespaceName) -> TopicName:
    """A plain topic of blue that has an Avro schema."""
    topic = TopicName(namespace, "described")
    await estates.blue.create_topic(topic)
    await estates.blue.post_schema(topic, {"type": "AVRO", "schema": record(("id", "string")), "properties": {}})
    return topic


ID, NUMBER = ("id", "string"), ("number", "int")
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
MORE = {**COLOUR, "symbols": ["RED", "BLUE", "GREEN"]}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]}
INNER_WIDER = {"type": "record", "name": "Inner", "fields": [*INNER["fields"], {"name": "b", "type": "int"}]}  # type: ignore[misc]
PAIRS: tuple[tuple[str, str], ...] = (
    (record(ID), record(ID, NUMBER)),
    (record(ID, NUMBER), record(ID)),
    (record(ID), record(ID, ("number", ("int", 0)))),
    (record(ID, ("number", ("int", 0))), record(ID)),
    (record(NUMBER), record(("number", "long"))),
    (record(("number", "long")), record(NUMBER)),
    (record(ID), record(("id", "bytes"))),
    (record(ID), record(("id", "long"))),
    (record(ID), record(("id", ["null", "string"]))),
    (record(("id", ["null", "string"])), record(ID)),
    (record(("id", ["null", "string"])), record(("id", ["string", "long"]))),
    (record(("colour", COLOUR)), record(("colour", MORE))),
    (record(("colour", MORE)), record(("colour", COLOUR))),
    (record(("inner", INNER)), record(("inner", INNER_WIDER))),
    (record(("list", {"type": "array", "items": "int"})), record(("list", {"type": "array", "items": "long"}))),
    (record(("map", {"type": "map", "values": "long"})), record(("map", {"type": "map", "values": "int"}))),
)
STRATEGIES = ("FULL", "BACKWARD", "FORWARD", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "BACKWARD_TRANSITIVE")


async def test_our_rules_say_of_schemas_what_the_broker_says(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Any
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    pairs: dict[TopicName, tuple[SchemaState, SchemaState]] = {}
    for index, (kind, (old, new)) in enumerate(product(("AVRO", "JSON"), PAIRS)):
        topic = TopicName(name, f"t{index}")
        await on_blue.create_topic(topic)
        await on_blue.post_schema(topic, {"type": kind, "schema": old, "properties": {}})
        pairs[topic] = (SchemaState(str(topic), 0, kind, old, {}, 0), SchemaState(str(topic), 1, kind, new, {}, 0))
    wrong, undecided = [], 0
    for strategy in STRATEGIES:
        await on_blue.put(f"/namespaces/{name.path}/schemaCompatibilityStrategy", strategy)
        for old_state, new_state in pairs.values():
            probe = await probe_schema(on_blue, new_state)
            ours = check_schema(strategy, new_state, [old_state])
            undecided += ours is SchemaFit.UNDECIDED
            if ours is not SchemaFit.UNDECIDED and probe.compatible != (ours is SchemaFit.COMPATIBLE):
                wrong.append(f"{strategy} {new_state.type} {probe.compatible}: {old_state.schema} → {new_state.schema}")
    assert ("\n".join(wrong), undecided) == ("", 0)
