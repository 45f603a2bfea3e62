"""What a plan leaves out and names: topics that no call can create; what it never writes down: passwords in URLs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pulsar
import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot

REDACTOR = Redactor(b"a key of the tests")
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
NAMES = (
    *("m-partition--1", "m-partition-+1", "m-partition-0", "m-partition-01", "m-partition-7-partition-2"),
    *("m-partition-", "m-partition-x", "m-partition-1x", "m-partition-3-partition-x", "m", "-partition-x"),
)


async def state(admin: AdminClient, namespace: NamespaceName) -> Snapshot:
    return await collect(admin, Selection(namespaces=frozenset({namespace})), redactor=REDACTOR, load_topics=True)


@pytest.mark.needs_pulsar("4.2", "older brokers follow other rules")
@pytest.mark.parametrize("partitions", [0, 2])
async def test_brokers_refuse_the_names_that_are_known_to_be_refused(
    on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, partitions: int
) -> None:
    name = new_namespace()
    await make_namespace(on_green, name)
    refused = set[str]()
    for local in NAMES:
        topic = TopicName(name, local)
        try:
            await (on_green.create_partitioned_topic(topic, 2) if partitions else on_green.create_topic(topic))
        except (Conflict, InvalidRequest):
            refused.add(local)
    assert refused == {local for local in NAMES if TopicName(name, local).has_refused_name(partitions)}


@pytest.mark.needs_pulsar("4.2", "older brokers follow other rules")
async def test_a_topic_that_no_call_creates_is_named_and_the_rest_is_copied(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    client = pulsar.Client(on_blue.connection.service_url)
    odd, plain = (TopicName(name, local) for local in ("m-partition--1", "plain"))
    for topic in (odd, plain):
        client.create_producer(str(topic)).send(b"1")
    client.close()
    ours, theirs = await state(on_blue, name), await state(on_green, name)
    findings = [(row.id, row.resource) for row in check_compatibility(ours, theirs) if row.resource == str(odd)]
    assert findings == [("topic-name-refused", str(odd))]
    planned = plan_changes(ours, theirs)
    assert {row.name for row in planned.left_alone} == {str(odd)}
    applied = await apply_plan(planned, on_green, Ledger.open(), "run", redactor=REDACTOR)
    assert applied.not_in_place() == ()
    assert plain in await on_green.topics(name)


async def test_a_password_in_an_address_is_neither_shown_nor_stored(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    peer = f"peer-{name.tenant}"
    await make_namespace(on_blue, name)
    addresses = {"serviceUrl": "http://red.example:8080", "brokerServiceUrl": "pulsar://red.example:6650"}
    secret = {"proxyServiceUrl": "pulsar://ops:very-hush@proxy.example:6650", "proxyProtocol": "SNI"}
    await on_blue.put_cluster(peer, addresses | secret)
    try:
        await on_blue.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", peer]})
        await on_blue.post(f"/namespaces/{name.path}/replication", ["blue", peer])
        ours = await state(on_blue, name)
    finally:
        await on_blue.post(f"/namespaces/{name.path}/replication", ["blue"])
        await on_blue.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        await on_blue.delete(f"/clusters/{peer}")
    (data,) = (cluster.data for cluster in ours.clusters if cluster.name == peer)
    assert data["proxyServiceUrl"].endswith("@proxy.example:6650")
    planned = plan_changes(ours, await state(on_green, name))
    assert [(row.name, "secrets" in row.reason) for row in planned.left_alone if row.name == peer] == [(peer, True)]
    shown = (str(ours), json.dumps(planned.to_json()), plan_text(planned), str(check_compatibility(ours, ours)))
    assert not [text for text in shown if "very-hush" in text or "ops:" in text]


async def test_a_password_in_the_address_of_an_offload_store_is_copied_unseen(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
    offload = {
        "managedLedgerOffloadDriver": "aws-s3",
        "s3ManagedLedgerOffloadBucket": "bucket",
        "s3ManagedLedgerOffloadRegion": "eu-west-1",
        "s3ManagedLedgerOffloadServiceEndpoint": "http://ops:very-hush@store.example:9000",
        "managedLedgerOffloadThresholdInBytes": 100_000,
    }
    await on_blue.post(f"/namespaces/{name.path}/offloadPolicies", offload)
    planned = plan_changes(await state(on_blue, name), await state(on_green, name))
    assert "very-hush" not in json.dumps(planned.to_json())
    secrets = await read_secrets(planned, on_blue, REDACTOR)
    applied = await apply_plan(planned, on_green, Ledger.open(), "run", redactor=REDACTOR, secrets=secrets)
    assert applied.not_in_place() == ()
    written = (await on_green.namespace(name) or {})["offload_policies"]
    assert written["s3ManagedLedgerOffloadServiceEndpoint"] == offload["s3ManagedLedgerOffloadServiceEndpoint"]
    assert "very-hush" not in str(Ledger.open().changes("run"))
