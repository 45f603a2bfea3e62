"""Every procedure, end to end on the terminal, on clusters as real fleets have them, with live traffic.

Tokens, client certificates or an issuer over TLS, several brokers, and one proxy in front of brokers that our processes
cannot reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.support.fleets import FLEETS, Fleet, build_redirectable
from tests.support.leaks import leaking, texts_below
from tests.support.outcomes import DONE, check, done, ended, windows
from tests.support.shell import Said, Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.workload import EstateSpec, Traffic, build_estate

pytestmark = pytest.mark.fleet

NewNamespace = Callable[[], NamespaceName]
RATE = 20.0


@pytest.fixture(scope="module", params=FLEETS)
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two clusters."""
    with FLEETS[request.param](tmp_path_factory.mktemp(request.param)) as fleet:
        yield fleet


@pytest.fixture
def shell(fleet: Fleet, records: Path) -> Iterator[Shell]:
    """A shell in a folder of its own; at its end no secret is in the ledger or in an artefact."""
    yield fleet.shell(records)
    assert leaking(texts_below(records), fleet.secrets) == []


@pytest.fixture
async def old(fleet: Fleet) -> AsyncIterator[AdminClient]:
    async with AdminClient(fleet.blue) as admin:
        yield admin


@pytest.fixture
async def new(fleet: Fleet) -> AsyncIterator[AdminClient]:
    async with AdminClient(fleet.green) as admin:
        yield admin


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_tenant_is_onboarded_and_equal(fleet: Fleet, shell: Shell, new_namespace: NewNamespace) -> None:
    live = new_namespace()
    await build_estate(fleet.blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=3, history=20))
    pair = (*shell.sides, "--select", live.tenant)
    assert "0 blockers" in shell.run("check", *pair).out
    done(shell.run("apply", *pair, "--yes", "--json"))
    assert done(shell.run("diff", *pair, "--json"))["equal"]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_namespace_with_stored_messages_is_migrated_under_traffic(
    fleet: Fleet, shell: Shell, new_namespace: NewNamespace
) -> None:
    live = new_namespace()
    await build_estate(fleet.blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=1, history=60))
    with Traffic.start(fleet.blue, namespace=live, folder=shell.folder / "traffic", rate=RATE) as traffic:
        # Of unloaded topics nothing can be compared.
        run = ended(await migrate(shell, live, "--no-unload-terminated-topics"))
        tally = await asyncio.to_thread(traffic.stop)
    check(tally, windows(run, live))
    verified = done(await asyncio.to_thread(shell.run, "verify", *shell.sides, "--namespace", live, "--json"))
    assert verified["verdict"] == "equal", verified


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_namespace_is_redirected_and_comes_back_under_traffic(
    fleet: Fleet, shell: Shell, new_namespace: NewNamespace, old: AdminClient, new: AdminClient
) -> None:
    live = new_namespace()
    await build_redirectable(fleet.blue, live)
    with applications(fleet, live, shell.folder / "traffic") as traffic:
        ended(await migrate(shell, live, "--strategy", "redirect"))
        assert await flags(live, old, new) == [True, False]
        back = ("fail-back", *shell.sides, "--namespaces", live, "--strategy", "redirect", "--allow-removal")
        async with asyncio.timeout(90):
            # Blue remembers for a minute that the applications were connected to it.
            while (await asyncio.to_thread(shell.run, *back, "--dry-run")).state != DONE:
                await asyncio.sleep(5)
        returning = asyncio.create_task(asyncio.to_thread(shell.run, *back, "--yes", "--json"))
        async with asyncio.timeout(120):
            while await flags(live, old, new) != [False, True] and not returning.done():
                await asyncio.sleep(0.5)
        tally = await asyncio.to_thread(traffic.stop)
    # Producers that were sent there and back over one connection have to be restarted, as the run says.
    with applications(fleet, live, shell.folder / "restarted") as restarted:
        ended(await returning)
        again = await asyncio.to_thread(restarted.stop)
    assert (tally.unreceived, tally.order_breaks) == (0, 0), tally.text()
    check(again, {})


def applications(fleet: Fleet, live: NamespaceName, folder: Path) -> Traffic:
    """They enter through blue."""
    return Traffic.start(fleet.blue, namespace=live, folder=folder, rate=RATE, restart_seconds=8)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_policies_are_reconciled_and_their_changes_published(
    fleet: Fleet, shell: Shell, new_namespace: NewNamespace, old: AdminClient, new: AdminClient
) -> None:
    name = new_namespace()
    for admin in (old, new):
        own = await admin.cluster_name()
        await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        await admin.put_namespace(name, {"replication_clusters": [own]})
    pair = (*shell.sides, "--select", name.tenant, "--yes", "--json")
    done(shell.run("reconcile", *pair, "--mode", "repair"))
    await old.post(f"/namespaces/{name.path}/maxConsumersPerTopic", 5)
    done(shell.run("reconcile", *pair, "--mode", "repair"))
    assert (await new.namespace(name) or {})["max_consumers_per_topic"] == 5

    done(shell.run("sync-metadata", *pair))
    await new.post(f"/namespaces/{name.path}/maxProducersPerTopic", 7)
    done(shell.run("sync-metadata", *pair))
    assert (await old.namespace(name) or {})["max_producers_per_topic"] == 7


async def migrate(shell: Shell, name: NamespaceName, *more: str) -> Said:
    return await asyncio.to_thread(shell.run, "migrate", *shell.sides, "--namespaces", name, *more, "--yes", "--json")


async def flags(name: NamespaceName, *clusters: AdminClient) -> list[bool]:
    return [bool((await admin.namespace(name) or {}).get("migrated")) for admin in clusters]
