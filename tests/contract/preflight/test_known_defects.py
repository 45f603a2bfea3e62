"""Known defects on real clusters: warned of where the estate meets them, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pulsar
import pytest
from tests.support.remedies import KNOWN_DEFECTS

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.defects.catalogue import DEFECTS
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.snapshot.collect import collect

NewNamespace = Callable[[], NamespaceName]
REDACTOR = Redactor(b"0123456789abcdef")
MET = frozenset(
    {
        "batch-acknowledgments-forgotten",
        "cursor-properties-forgotten",
        "shadow-deletes-source",
        "subscription-activity-forgotten",
    }
)


async def warned(on_blue: AdminClient, on_green: AdminClient, name: NamespaceName) -> dict[str, str]:
    """Id of each known defect of blue that the checks warn of → its evidence."""
    selection = Selection(namespaces=frozenset({name}))
    blue, green = [
        await collect(admin, selection, redactor=REDACTOR, load_topics=True) for admin in (on_blue, on_green)
    ]
    return {
        finding.id: finding.evidence
        for finding in check_compatibility(blue, green)
        if finding.id in KNOWN_DEFECTS and finding.resource == "cluster blue"
    }


def acknowledge_the_second(blue: ClusterConnection, topic: TopicName) -> None:
    """Three entries, of which a shared subscription acknowledges the second one."""
    with closing(open_client(blue)) as client:
        consumer = client.subscribe(str(topic), "shared", pulsar.ConsumerType.Shared)
        producer = client.create_producer(str(topic), batching_enabled=False)
        for number in range(3):
            producer.send(str(number).encode())
        messages = [consumer.receive(timeout_millis=10_000) for _ in range(3)]
        consumer.acknowledge(messages[1])
        consumer.close()


async def test_an_estate_is_warned_of_what_it_can_meet(
    blue: ClusterConnection, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace
) -> None:
    version = await on_blue.version()
    expected = {defect.id for defect in DEFECTS if defect.id in MET and defect.has(version)}
    if not expected:
        pytest.skip(f"Pulsar {version} has none of these defects")
    name = new_namespace()
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}})
    topic, shadow = TopicName(name, "events"), TopicName(name, "shadow")
    await on_blue.create_topic(topic)
    await on_blue.put(topic.subscription_path("idle"), "earliest")
    assert await warned(on_blue, on_green, name) == {}
    await asyncio.to_thread(acknowledge_the_second, blue, topic)
    await on_blue.put(topic.subscription_path("copied"), "latest", replicated=True)
    await on_blue.put(f"/namespaces/{name.path}/compactionThreshold", 1_000_000_000)
    await on_blue.put(f"/{shadow.path}", {SHADOW_SOURCE: str(topic)})
    evidence = await warned(on_blue, on_green, name)
    if (await on_blue.runtime_configuration()).get("acknowledgmentAtBatchIndexLevelEnabled") != "true":
        expected.discard("batch-acknowledgments-forgotten")
    assert {id_ for id_ in evidence if id_ in MET} == expected
    assert str(shadow) in evidence["shadow-deletes-source"]
    assert f"copied of {topic}" in evidence["subscription-activity-forgotten"]
    assert f"brokers run {version}" in evidence["cursor-properties-forgotten"]
