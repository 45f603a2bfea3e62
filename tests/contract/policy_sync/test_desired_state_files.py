"""Desired state as files: exported, edited, compared and adopted, from a terminal and on real clusters."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.desired_state import DIFFERENT, REFUSED, Shell
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, held, make_namespaces

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName

pytestmark = pytest.mark.versions

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]


@pytest.mark.long
async def test_a_full_estate_is_exported_and_adopted_and_an_edit_is_one_change(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    make_estate: Make,
    records: Path,
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    await make_namespaces([name], on_green)
    shell = Shell(records, name.tenant, blue, green)
    exported = shell.export()
    assert set(exported["written"]) == {f"{name.tenant}.yaml", f"{name}.yaml"}
    state, document = shell.reconcile("--mode", "dry_run")
    assert (state, list(document["plans"])) == (DIFFERENT, ["green"])

    file = records / "fleet" / f"{name}.yaml"
    lines = file.read_text().splitlines()
    at = lines.index(f"  {MAX_PRODUCERS[1]}: 11")
    lines[at] = f"  {MAX_PRODUCERS[1]}: 12  # agreed with the team"
    file.write_text("\n".join(["# owned by billing", *lines]) + "\n")
    state, document = shell.reconcile("--mode", "dry_run")
    (change,) = json.loads(Path(document["plans"]["blue"]["plan"]["uri"]).read_text())["changes"]
    assert (change["field"], change["before"], change["after"]) == (MAX_PRODUCERS[1], 11, 12)

    state, document = shell.reconcile("--mode", "repair")
    assert (state, (await held(on_blue, name, (MAX_PRODUCERS[1],)))[MAX_PRODUCERS[1]]) == (REFUSED, 11)
    state, document = shell.reconcile("--mode", "repair", "--yes")
    assert document["repaired"]["failed"] == 0, document["repaired"]["problems"]
    for admin in (on_blue, on_green):
        assert (await held(admin, name, (MAX_PRODUCERS[1],)))[MAX_PRODUCERS[1]] == 12

    before = file.read_text()
    assert shell.export()["written"] == []
    await on_blue.post(f"/namespaces/{name.path}/{MAX_CONSUMERS[0]}", 99)
    assert shell.export()["written"] == [f"{name}.yaml"]
    assert file.read_text() == before.replace(f"{MAX_CONSUMERS[1]}: 12", f"{MAX_CONSUMERS[1]}: 99")


@pytest.mark.long
async def test_an_invalid_file_is_refused_with_its_name_and_changes_nothing(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    shell = Shell(records, name.tenant, blue, green)
    shell.export()
    file = records / "fleet" / f"{name}.yaml"
    for text, words in (
        (f"namespace: {name}\npolicies: {{max_producer_per_topic: 5}}\n", "did you mean 'max_producers_per_topic'?"),
        (f"namespace: {name}\npolicies: [\n", "is not valid YAML"),
        ("namespace: other/orders\n", "correct one of the two"),
    ):
        file.write_text(text)
        state, output = shell.reconcile("--mode", "repair", "--yes")
        message = output["error"]["message"]
        assert (state, f"{name}.yaml" in message, words in message) == (1, True, True), message


@pytest.mark.parametrize("listed", [["$self"], ["green", "$self"]])
def test_a_clusters_own_name_travels_as_itself(listed: list[str]) -> None:
    from pulsar_fleet.policy_sync.merge.fields import localised, neutral

    assert localised(listed, "blue") == sorted({"blue", *listed} - {"$self"})
    assert neutral(["blue"], ("blue", "green"), "blue") == ["$self"]
    assert neutral(["blue", "green"], ("blue", "green"), "blue") == ["blue", "green"]
