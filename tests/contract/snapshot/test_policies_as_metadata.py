"""Brokers that store the policies of topics as metadata (PIP-469): no event has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.collect import collect

pytestmark = [pytest.mark.long, pytest.mark.onboarding]
AS_METADATA = {
    "topicPoliciesServiceClassName": "org.apache.pulsar.broker.service.MetadataStoreTopicPoliciesService",
}


async def test_policies_that_no_event_has_are_named_as_not_read(tmp_path: Path, start_clusters: StartClusters) -> None:
    with start_clusters(tmp_path / "blue", clusters=("blue",), settings={"blue": AS_METADATA}) as sandbox:
        blue = sandbox["blue"]
        connection = ClusterConnection(name="blue", admin_url=blue.admin_url, service_url=blue.service_url)
        async with AdminClient(connection) as admin:
            namespace = NamespaceName("acme", "orders")
            await admin.put("/tenants/acme", {"adminRoles": [], "allowedClusters": ["blue"]})
            await admin.put_namespace(namespace, {"replication_clusters": ["blue"]})
            topic = TopicName(namespace, "events")
            await admin.create_topic(topic)
            await admin.post(f"/{topic.path}/maxConsumers", 9)
            assert f"persistent://{namespace}/__change_events" not in map(str, await admin.topics(namespace))
            snapshot = await collect(admin, Selection(tenants=frozenset({"acme"})), redactor=Redactor(b"a key"))
            notes = [note for note in snapshot.notes if "MetadataStoreTopicPoliciesService" in note.detail]
            assert [str(namespace) in note.resource for note in notes] == [True]
