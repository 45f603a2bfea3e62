"""`pulsar-fleet export`: the desired state as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, Cluster, Select, Topics
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.policy_sync.reconcile.desired_state_files import Exported, export_cluster


def export(
    cluster: Cluster,
    folder: Annotated[Path, typer.Argument(help="Folder of the files; their comments and order are kept.")],
    select: Select = None,
    topics: Topics = True,
    as_json: AsJson = False,
) -> None:
    """Write the resources of a cluster as YAML, one file per tenant and namespace; no file is deleted."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        connection, selection = named_cluster(cluster, Side.SOURCE), parse_selection(select or ())
        with terminal.status(f"Reading {connection.name}"):

            async def read() -> Exported:
                reached = await reach(connection)
                return await export_cluster(reached.connection, selection, folder, topics=topics)

            exported = run_interruptibly(read())
    terminal.say(f"{counted(len(exported.written), 'file')} written, {exported.unchanged} unchanged, in {folder}")
    for name in exported.stale:
        terminal.say(f"  {name}: the cluster has no such resource; delete the file if it is obsolete")
    terminal.finish(exported.to_json(), ExitState.DONE)
