"""The brokers of a read-only namespace are released when it is gone, and those of other namespaces are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.read_only.isolation import isolation_document, policy_name
from pulsar_fleet.read_only.removal import release_brokers

pytestmark = pytest.mark.cluster


async def test_an_isolation_policy_that_covers_other_namespaces_too_stays(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    name, run = new_namespace(), Run.open("serve_read_only/released")
    path = f"/clusters/{await on_blue.cluster_name()}/namespaceIsolationPolicies/{policy_name(name)}"
    own = isolation_document(name, ["127.0.0.9:8080"])
    await on_blue.post(path, {**own, "namespaces": [*own["namespaces"], f"{name.tenant}/other"]})
    assert not await release_brokers(on_blue, name, run)
    assert policy_name(name) in await on_blue.isolation_policies()
    await on_blue.post(path, own)
    assert await release_brokers(on_blue, name, run)
    assert policy_name(name) not in await on_blue.isolation_policies()
