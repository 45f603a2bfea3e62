"""A dry run says what a command would do, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.migration import Migration, make, migration
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import MOVES
from pulsar_fleet.migration.model import Phase

DONE, DIFFERENT = 0, 3


async def test_a_dry_run_of_apply_and_undo_changes_nothing(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    name = new_namespace()
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    pair = (*shell.sides, "--select", name.tenant)
    planned = said(shell, DIFFERENT, "apply", *pair, "--dry-run")
    assert planned["dry_run"]
    assert await on_green.tenant(name.tenant) is None
    applied = said(shell, DONE, "apply", *pair, "--yes")
    assert applied["next"] == [f"pulsar-fleet undo {applied['run']}"]
    assert said(shell, DIFFERENT, "undo", applied["run"], "--dry-run")["counts"] == {}
    assert await on_green.tenant(name.tenant) is not None


async def test_a_dry_run_of_an_abort_says_whether_it_would_be_refused(
    shell: Shell,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Any,
) -> None:
    name = new_namespace()
    await make(blue, green, name)
    planned: Migration = migration(blue, green, name, tmp_path / "planned")
    run = Run.open("cli/migrate-1")
    run.ledger.start_run(run.id, "migrate_namespaces", {"blue": blue.admin_url, "green": green.admin_url})
    run.artefacts.write_json(run.id, MOVES, planned.moves.to_json())
    run.ledger.enter_phase(run.id, str(name), Phase.FROZEN)
    assert said(shell, DONE, "abort", run.id, "--dry-run")["namespaces"] == [str(name)]
    assert run.ledger.last_phase(str(name)) == Phase.FROZEN


def test_a_dry_run_of_a_prepared_failover_is_its_forecast(shell: Shell) -> None:
    done = shell.run("prepare-failover", *shell.sides, "--select", "public", "--dry-run", "--json")
    assert "prepared" not in done.document
    assert done.document["run"].startswith("cli/forecast-failover")


def said(shell: Shell, state: int, *words: str) -> dict[str, Any]:
    """What the command writes as JSON."""
    done = shell.run(*words, "--output", "json")
    assert done.state == state, done.err
    return dict(done.document)
