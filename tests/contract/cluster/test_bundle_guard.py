"""A namespace keeps its bundles, whichever call writes the document that holds them, and whichever broker it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.proxy import Proxy

from pulsar_fleet.cluster import polling
from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.versions import Redirect, release_of
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.snapshot.collect import collect

pytestmark = pytest.mark.versions

NewNamespace = Callable[[], NamespaceName]
REDACTOR = Redactor(b"a key of the tests")
BUNDLES = 32
FAST = {"bookkeeperAffinityGroupPrimary": "fast", "bookkeeperAffinityGroupSecondary": ""}


@pytest.fixture
async def namespace(on_green: AdminClient, new_namespace: NewNamespace) -> NamespaceName:
    """A namespace of many bundles on green that nobody has used."""
    return await create(on_green, new_namespace())


async def create(admin: AdminClient, name: NamespaceName) -> NamespaceName:
    own = await admin.cluster_name()
    await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
    await admin.put_namespace(name, {"replication_clusters": [own], "bundles": {"numBundles": BUNDLES}})
    return name


async def bundles(admin: AdminClient, name: NamespaceName) -> Json:
    return await admin.get(f"/namespaces/{name.path}/bundles")


def setting(name: NamespaceName, which: str) -> Call:
    path = f"/namespaces/{name.path}"
    return {
        "anti-affinity": with_body("POST", f"{path}/antiAffinity", "a"),
        "bookie-affinity": with_body("POST", f"{path}/persistence/bookieAffinity", FAST),
        "bookie-affinity-unset": bare("DELETE", f"{path}/persistence/bookieAffinity"),
    }[which]


@pytest.mark.parametrize("which", ["anti-affinity", "bookie-affinity", "bookie-affinity-unset"])
async def test_a_new_namespace_keeps_its_bundles(on_green: AdminClient, namespace: NamespaceName, which: str) -> None:
    before = await bundles(on_green, namespace)
    assert before["numBundles"] == BUNDLES
    await on_green.send(setting(namespace, which))
    assert await bundles(on_green, namespace) == before


async def test_a_namespace_keeps_its_bundles_when_it_is_flagged(
    on_blue: AdminClient, new_namespace: NewNamespace
) -> None:
    if (release := release_of(await on_blue.version())) and Redirect.NAMESPACE not in release.redirects:
        pytest.skip(f"Pulsar {release.line} flags no namespace")
    namespace = await create(on_blue, new_namespace())
    before = await bundles(on_blue, namespace)
    for migrated in (True, False):
        await set_flag(on_blue, namespace, migrated=migrated)
        assert await bundles(on_blue, namespace) == before


async def test_a_namespace_keeps_bundles_that_were_split(on_green: AdminClient, namespace: NamespaceName) -> None:
    await on_green.create_topic(TopicName(namespace, "events"))
    await on_green.put(f"/namespaces/{namespace.path}/0x00000000_0x08000000/split")
    before = await bundles(on_green, namespace)
    assert before["numBundles"] == BUNDLES + 1
    await on_green.send(setting(namespace, "anti-affinity"))
    assert await bundles(on_green, namespace) == before


@pytest.mark.usefixtures("records")
async def test_a_copy_with_affinities_has_the_bundles_of_its_source(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace
) -> None:
    namespace = await create(on_blue, new_namespace())
    for which in ("anti-affinity", "bookie-affinity"):
        await on_blue.send(setting(namespace, which))
    selection = Selection(namespaces=frozenset({namespace}))
    sides = [await collect(admin, selection, redactor=REDACTOR) for admin in (on_blue, on_green)]
    applied = await apply_plan(plan_changes(*sides), on_green, Ledger.open(), "run", redactor=REDACTOR)
    assert [(result.change.label, result.detail) for result in applied.not_in_place()] == []
    assert await bundles(on_green, namespace) == await bundles(on_blue, namespace)


async def test_brokers_are_not_asked_for_bundles_of_a_missing_namespace(
    blue: ClusterConnection, on_blue: AdminClient, proxy: Proxy, namespace: NamespaceName
) -> None:
    """They would remember a single bundle, also after its creation."""
    async with AdminClient(replace(blue, admin_url=proxy.url), retry_seconds=0) as behind:
        await behind.send(setting(namespace, "anti-affinity"))
    assert not [request.target for request in proxy.seen if request.target.startswith("/lookup/")]


async def test_a_call_is_refused_where_a_broker_has_loaded_other_bundles(
    on_green: AdminClient, new_namespace: NewNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "KEPT_SECONDS", 0.5)
    namespace = new_namespace()
    assert await on_green.bundle(TopicName(namespace, "events")) == "0x00000000_0xffffffff"
    before = await bundles(on_green, await create(on_green, namespace))
    with pytest.raises(PreconditionFailed, match=r"has 32 bundles, and a broker has loaded 0x00000000_0xffffffff"):
        await on_green.send(setting(namespace, "anti-affinity"))
    assert await bundles(on_green, namespace) == before
