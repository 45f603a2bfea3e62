"""`pulsar-fleet doctor`, as a shell starts it, on real clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from tests.support.replication import know_each_other, replicate, wait_linked
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.replication.doctor.steps import examine, heal

pytestmark = pytest.mark.long

DONE, _, USAGE, DIFFERENT = range(4)


@pytest.fixture
def shell(records: Path, blue: ClusterConnection, green: ClusterConnection) -> Shell:
    return Shell.between(records, blue, green)


async def listed(name: NamespaceName, lists: dict[AdminClient, list[str] | None]) -> None:
    """A namespace with these lists on clusters that know each other, and whose tenants allow both."""
    await know_each_other(*lists)
    for admin, clusters in lists.items():
        await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})
        if clusters:
            await admin.put_namespace(name, {"replication_clusters": clusters})


async def test_a_fault_is_named_with_its_remedy_and_healed_on_request(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    name = new_namespace()
    topic = TopicName(name, "events")
    await know_each_other(on_blue, on_green)
    await replicate(on_blue, on_green, name)
    await on_blue.create_topic(topic)
    await wait_linked(on_blue, [topic], "green")
    doctor = ("doctor", *shell.sides, "--select", str(name))
    warned, intended = shell.at_once(doctor, (*doctor, "--receive-only", "green", "--json"))
    assert (warned.state, "WARNING one-way" in warned.out) == (DONE, True), warned.err
    assert (intended.state, intended.document["diagnoses"]) == (DONE, [])
    assert intended.document["counts"] == {"healthy": 2}

    other = new_namespace()
    await listed(other, {on_blue: ["blue", "green"], on_green: ["blue"]})
    await on_blue.create_topic(TopicName(other, "events"))
    doctor = ("doctor", *shell.sides, "--select", str(other))
    examined, refused = shell.at_once(doctor, (*doctor, "--remedy", "partitions-differ", "--yes"))
    assert examined.state == DIFFERENT, examined.err
    assert "--remedy own-cluster-missing" in examined.out
    assert (refused.state, "is for a person" in refused.err) == (USAGE, True)
    healed = shell.run(*doctor, "--remedy", "own-cluster-missing", "--yes", "--json")
    assert healed.document["remedy"]["after"]["diagnoses"] == []
    assert sorted((await on_green.namespace(other) or {})["replication_clusters"]) == ["blue", "green"]


OWN = "own-cluster-missing"


@pytest.mark.parametrize(
    ("ours", "theirs", "receive_only", "cluster", "healed"),
    [
        (["green"], ["green"], "green", "blue", ["blue", "green"]),
        (["green"], ["blue", "green"], "", "blue", ["blue", "green"]),
        (["blue", "green"], ["blue"], "green", "green", ["green"]),
        (["green"], None, "green", "blue", ["blue", "green"]),
    ],
    ids=["source", "member", "receiver", "without a target"],
)
async def test_a_list_without_its_own_cluster_is_the_first_fault_in_any_role(
    shell: Shell,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    ours: list[str],
    theirs: list[str] | None,
    receive_only: str,
    cluster: str,
    healed: list[str],
) -> None:
    name, admins = new_namespace(), {"blue": on_blue, "green": on_green}
    await listed(name, {on_green: theirs, on_blue: ours})
    doctor = ("doctor", *shell.sides, "--select", str(name), "--json")
    doctor += ("--receive-only", receive_only) if receive_only else ()
    examined = shell.run(*doctor)
    first = examined.document["diagnoses"][0]
    assert (examined.state, first["id"], first["severity"]) == (DIFFERENT, OWN, "fault"), examined.document
    assert (first["source"], first["target"]) == (cluster, cluster)
    assert [row.split(": ")[1] for row in examined.document["unread"]] == [f"topics of {name}"]

    after = shell.run(*doctor, "--remedy", OWN, "--yes").document["remedy"]["after"]
    assert OWN not in {row["id"] for row in after["diagnoses"]}, after
    assert sorted((await admins[cluster].namespace(name) or {})["replication_clusters"]) == healed


async def test_a_list_that_has_changed_since_the_examination_stays(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    """An operator has stored a list in between: what the remedy was made from is not sent."""
    name = new_namespace()
    await listed(name, {on_blue: ["blue", "green"], on_green: ["blue"]})
    run = Run.open("doctor/late")
    request = Request(selection=Selection(namespaces=frozenset({name})), remedies=frozenset({OWN}))
    before = await examine([blue, green], request)
    assert [call.text().partition(" ")[2] for row in before.faults if row.id == OWN for call in row.calls] == [
        f'POST /admin/v2/namespaces/{name.path}/replication ["blue", "green"]'
    ]
    await on_green.post(f"/namespaces/{name.path}/replication", ["green"])
    healed = await heal([blue, green], before, request, run)
    assert [sent.error.partition(" replaces ")[2].partition(".")[0] for sent in healed.failed] == [
        "a list that was blue, and is green now"
    ]
    assert (await on_green.namespace(name) or {})["replication_clusters"] == ["green"]


async def test_all_missing_schemas_are_registered_in_their_order(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    """After the newest alone, the one before it would be refused for good: it lacks a field without a default."""
    name = new_namespace()
    topic = TopicName(name, "events")
    await know_each_other(on_blue, on_green)
    await replicate(on_blue, on_green, name)
    versions = [{"type": "AVRO", "schema": _record(fields), "properties": {}} for fields in ("a", "ab", "abc")]
    await on_blue.create_topic(topic)
    await wait_linked(on_blue, [topic], "green")
    for admin, count in ((on_blue, 3), (on_green, 1)):
        await admin.put(f"/namespaces/{name.path}/schemaCompatibilityStrategy", "FORWARD")
        for version in versions[:count]:
            await admin.post_schema(topic, version)
        await admin.post(f"/namespaces/{name.path}/isAllowAutoUpdateSchema", False)
    client = open_client(blue)
    try:
        schema = pulsar.schema.AvroSchema(None, schema_definition=json.loads(_record("abc")))
        producer = await asyncio.to_thread(client.create_producer, str(topic), schema=schema)
        await asyncio.to_thread(producer.send, {field: field for field in "abc"})
    finally:
        client.close()
    request = Request(selection=Selection(namespaces=frozenset({name})), remedies=frozenset({"schema-update-refused"}))
    before = await examine([blue, green], request)
    (held,) = before.faults
    assert (held.id, "green lacks schema version 1, 2 of blue" in held.evidence) == ("schema-update-refused", True), (
        held
    )
    healed = await heal([blue, green], before, request, Run.open("doctor/schemas"))
    assert (healed.failed, healed.after.faults) == ((), ())
    assert [row["data"] for row in await on_green.schemas(topic)] == [row["schema"] for row in versions]


def _record(fields: str) -> str:
    row = {"type": "record", "name": "Order", "fields": [{"name": name, "type": "string"} for name in fields]}
    return json.dumps(row, separators=(",", ":"))


async def test_a_cluster_that_is_only_allowed_serves_and_replicates_nothing(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    name = new_namespace()
    topic = TopicName(name, "events")
    await know_each_other(on_blue, on_green)
    await replicate(on_blue, on_green, name)
    await on_blue.create_topic(topic)
    await on_blue.post(f"/namespaces/{name.path}/allowedClusters", ["blue", "green"])
    await on_blue.post(f"/namespaces/{name.path}/replication", ["green"])
    # A replicator that exists goes on until its topic is loaded again.
    await on_blue.put(f"/{topic.path}/unload")
    doctor = ("doctor", *shell.sides, "--select", str(name), "--receive-only", "green", "--json")
    examined = shell.run(*doctor)
    assert [row["id"] for row in examined.document["diagnoses"]] == ["own-cluster-not-listed"], examined.document
    assert (examined.state, examined.document["unread"]) == (DIFFERENT, [])
    assert {row["causes"][0] for row in examined.document["replicators"]} == {"own-cluster-not-listed"}
    for remedy in examined.document["diagnoses"][0]["calls"]:
        await on_blue.post(remedy["call"]["path"], remedy["call"]["body"])
    await wait_linked(on_blue, [topic], "green")
    assert shell.run(*doctor).document["diagnoses"] == []
