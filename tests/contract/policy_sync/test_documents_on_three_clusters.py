"""Reconciliation of three clusters by whole documents, and by desired state in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.desired_state import DIFFERENT, DONE, Shell
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, Reconciler, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity

Admins = dict[str, AdminClient]
Connections = tuple[ClusterConnection, ...]
FIELDS = (MAX_PRODUCERS[1], MAX_CONSUMERS[1])


pytestmark = pytest.mark.long


@pytest.fixture
def admins(on_blue: AdminClient, on_green: AdminClient, on_red: AdminClient) -> Admins:
    return {"blue": on_blue, "green": on_green, "red": on_red}


@pytest.fixture
async def shared(admins: Admins, new_namespace: Callable[[], NamespaceName], records: Path) -> NamespaceName:
    name = new_namespace()
    await make_namespaces([name], *admins.values())
    return name


@pytest.fixture
def connections(blue: ClusterConnection, green: ClusterConnection, red: ClusterConnection) -> Connections:
    return blue, green, red


async def test_a_whole_document_wins_on_three_clusters_and_the_lost_edit_counts(
    admins: Admins, connections: Connections, shared: NamespaceName
) -> None:
    keeper = Reconciler.of(shared.tenant, *connections, granularity=Granularity.DOCUMENT)
    await keeper.cycle()
    await set_policy(admins["red"], shared, MAX_PRODUCERS[0], 3)
    drift, _ = await keeper.cycle()
    assert drift.lost == 0
    for admin in admins.values():
        assert await held(admin, shared, FIELDS) == {MAX_PRODUCERS[1]: 3, MAX_CONSUMERS[1]: None}
    await set_policy(admins["green"], shared, MAX_PRODUCERS[0], 5)
    await set_policy(admins["red"], shared, MAX_CONSUMERS[0], 7)
    drift, repaired = await keeper.cycle()
    assert drift.lost == 1
    assert repaired is not None
    assert repaired.complete
    sides = [await held(admin, shared, FIELDS) for admin in admins.values()]
    assert sides[0] == sides[1] == sides[2]
    # Their order is unknown, so the smaller name wins, with all that it has.
    assert sides[0] == {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: None}
    assert (await keeper.find()).drifting == 0


async def test_desired_state_in_files_is_brought_to_all_three(
    admins: Admins, connections: Connections, shared: NamespaceName, records: Path
) -> None:
    await set_policy(admins["blue"], shared, MAX_PRODUCERS[0], 3)
    await set_policy(admins["red"], shared, MAX_CONSUMERS[0], 9)
    shell = Shell(records, shared.tenant, *connections)
    shell.export()
    file = records / "fleet" / f"{shared}.yaml"
    file.write_text(file.read_text().replace(f"{MAX_PRODUCERS[1]}: 3", f"{MAX_PRODUCERS[1]}: 4"))
    state, planned = shell.reconcile("--mode", "dry_run")
    assert (state, sorted(planned["plans"])) == (DIFFERENT, ["blue", "green", "red"])
    _, repaired = shell.reconcile("--mode", "repair", "--yes")
    assert repaired["repaired"]["problems"] == []
    for admin in admins.values():
        assert await held(admin, shared, FIELDS) == {MAX_PRODUCERS[1]: 4, MAX_CONSUMERS[1]: None}
    state, planned = shell.reconcile("--mode", "dry_run")
    assert (state, planned["plans"]) == (DONE, {})
