"""`pulsar-fleet restore`: restore on a cluster what a run that died left overridden."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, Yes
from pulsar_fleet.cli.terminal import ExitState, Terminal, require_consent
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import parse_namespaces
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.prepare.dead_runs import LeftOverrides, Restored, find_overrides, restore_overrides


def restore(
    cluster: Annotated[str, typer.Argument(help="The cluster: admin URL or Airflow connection id.")],
    ended: Annotated[
        str, typer.Option("--ended", metavar="RUN", help="This run has ended, though it still has a lease.")
    ] = "",
    namespaces: Annotated[
        list[str] | None, typer.Option("--namespaces", help="Also these namespaces, whose run has ended.")
    ] = None,
    delete_inactive_topics: Annotated[
        bool,
        typer.Option(
            "--delete-inactive-topics",
            help="Restore the deletion of inactive topics in migrated namespaces too: consumers that subscribe by "
            "pattern were restarted against the other cluster.",
        ),
    ] = False,
    end_replication: Annotated[
        bool, typer.Option("--end-replication", help="End the replication that a dead run began: it is given up.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is overridden.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Restore what a dead run left: throttled producers, policies and settings of brokers. Live runs are not touched.

    The cluster itself has the records, so no ledger is needed.
    """
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        connection = run_interruptibly(reach(named_cluster(cluster, Side.SOURCE))).connection
        names = list(map(str, parse_namespaces(namespaces))) if namespaces else []
        left = run_interruptibly(_find(connection, ended, names))
        terminal.say(left.text())
        if dry_run or not left.needs_restoration:
            terminal.finish({"left": left.to_json()}, ExitState.DONE)
        require_consent("a cluster", yes=yes)
        if not yes and not terminal.confirm(f"Restore what {_runs(left)} left on {left.cluster}?"):
            terminal.finish({"left": left.to_json()}, ExitState.REFUSED)
        restored = run_interruptibly(
            _restore(
                connection,
                ended=ended,
                namespaces=names,
                stop_replication=end_replication,
                delete_inactive_topics=delete_inactive_topics,
            )
        )
        terminal.say(restored.text())
        terminal.finish({"left": left.to_json(), **restored.to_json()}, ExitState.DONE)


async def _find(connection: ClusterConnection, ended: str, namespaces: list[str]) -> LeftOverrides:
    async with AdminClient(connection) as admin:
        return await find_overrides(admin, ended=ended, namespaces=namespaces)


async def _restore(connection: ClusterConnection, **options: Any) -> Restored:
    async with AdminClient(connection) as admin:
        return await restore_overrides(admin, **options)


def _runs(left: LeftOverrides) -> str:
    return ", ".join(dict.fromkeys(namespace.run for namespace in left.dead)) or "a dead run"
