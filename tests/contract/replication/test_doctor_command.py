"""`pulsar-fleet doctor`, as a shell starts it, on real clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.replication import know_each_other, replicate, wait_linked
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName

pytestmark = pytest.mark.long

DONE, _, USAGE, DIFFERENT = range(4)


@pytest.fixture
def shell(records: Path, blue: ClusterConnection, green: ClusterConnection) -> Shell:
    return Shell.between(records, blue, green)


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
    for admin in (on_blue, on_green):
        await admin.put(f"/tenants/{other.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})
        await admin.put_namespace(other, {"replication_clusters": ["blue"]})
    await on_blue.create_topic(TopicName(other, "events"))
    await on_blue.post(f"/namespaces/{other.path}/replication", ["blue", "green"])
    doctor = ("doctor", *shell.sides, "--select", str(other))
    examined, refused = shell.at_once(doctor, (*doctor, "--remedy", "partitions-differ", "--yes"))
    assert examined.state == DIFFERENT, examined.err
    assert "--remedy own-cluster-missing" in examined.out
    assert (refused.state, "is for a person" in refused.err) == (USAGE, True)
    healed = shell.run(*doctor, "--remedy", "own-cluster-missing", "--yes", "--json")
    assert healed.document["remedy"]["after"]["diagnoses"] == []
    assert sorted((await on_green.namespace(other) or {})["replication_clusters"]) == ["blue", "green"]
