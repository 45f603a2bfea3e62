"""`pulsar-fleet reconcile|export`: reconcile clusters, and export the desired state as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach, reach_all
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, Cluster, Select, Topics, Yes
from pulsar_fleet.cli.runs import approve_deletions, recorded_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.policy_sync.reconcile.desired_state_files import Exported, export_cluster
from pulsar_fleet.policy_sync.reconcile.request import Mode, Request
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
from pulsar_fleet.policy_sync.reconcile.steps import find_drift, read_plans, repair
from pulsar_fleet.report.reconciliation import conflict_lines, deletion_lines, headline, remaining
from pulsar_fleet.settings.reconciliation import RECONCILE


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


@with_settings(
    RECONCILE.declared, arguments={"clusters": "At least two clusters: admin URLs or Airflow connection ids."}
)
def reconcile(terminal: Terminal, conf: JsonObject, yes: Yes = False) -> None:
    """Report drift between clusters, and repair it with --mode repair. Exits with 3 if drift remains."""
    clusters = conf["clusters"]
    if len(clusters) < 2:
        raise UsageError(f"Only {clusters[0]!r} is given: name at least two clusters.")
    if conf["mode"] == Mode.REPAIR:
        require_consent("clusters", yes=yes)
    conf["selection"] = list(parse_selection(conf["selection"]).texts())
    with usage_errors():
        request = Request.of(conf)
    sides = [named_cluster(name, Side.TARGET if at else Side.SOURCE) for at, name in enumerate(clusters)]
    with recorded_run(terminal, "reconcile", "reconcile", conf) as run:
        document, state = _run(terminal, sides, request, run, ask=not yes)
    terminal.finish(document, state)


def _run(
    terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run, *, ask: bool
) -> tuple[JsonObject, ExitState]:
    with terminal.status(f"Reading {', '.join(side.name for side in sides)}"):
        connections = run_interruptibly(reach_all(sides))
        drift = run_interruptibly(find_drift(connections, request, run))
    plans = read_plans(drift, run)
    lines = ("\n".join(part) for part in (conflict_lines(drift), deletion_lines(drift), drift.unmeasured))
    shown = [drift.headline, *filter(None, lines), *map(plan_text, plans.values())]
    commands = (waiting.command for waiting in drift.deletions.values())
    (terminal.show if ask else terminal.say)("\n\n".join(shown), *commands)
    repaired: RepairSummary | None = None
    if request.mode is Mode.REPAIR and drift.drift:
        if ask and not terminal.confirm("Write these changes?"):
            raise PreconditionFailed("The repair was not approved. Nothing has been changed.")
        if request.propagate_deletes is PropagateDeletes.APPROVE:
            allow = approve_deletions(terminal, run, drift.deletions, request.allow, ask=ask)
            request = replace(request, allow=request.allow | allow)
        with terminal.status(f"Changing {', '.join(plans) or 'nothing'}"):
            repaired = run_interruptibly(repair(connections, drift, request, run))
        terminal.say("\n".join([headline(drift, repaired), *(f"  ! {problem}" for problem in repaired.problems)]))
        for cluster in repaired.changed:
            undo = command_line("undo", f"{run.id}/{cluster}")
            terminal.say(f"Undo it on {cluster} with: {undo}", undo)
    document = {"run": run.id, **drift.to_json(), "repaired": repaired.to_json() if repaired else None}
    return document, _state(drift, repaired)


def _state(drift: DriftSummary, repaired: RepairSummary | None) -> ExitState:
    if repaired is None:
        return ExitState.DIFFERENT if drift.drifting else ExitState.DONE
    if repaired.failed or repaired.unreached:
        return ExitState.PARTLY
    return ExitState.DIFFERENT if remaining(drift, repaired) else ExitState.DONE
