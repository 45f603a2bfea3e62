"""`pulsar-fleet reconcile|export`: clusters kept equal, and the state that they should have as files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach
from pulsar_fleet.cli.commands.onboard import AsJson, Select
from pulsar_fleet.cli.runs import new_run_id, recorded
from pulsar_fleet.cli.terminal import ExitState, Terminal, Usage, require_consent
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity
from pulsar_fleet.policy_sync.reconcile.desired_state_files import export_cluster
from pulsar_fleet.policy_sync.reconcile.request import Mode, Request
from pulsar_fleet.policy_sync.reconcile.steps import find_drift, read_plans, repair
from pulsar_fleet.report.reconciliation import headline, remaining

Topics = Annotated[bool, typer.Option("--topics/--no-topics", help="The policies of topics too.")]


def export(
    cluster: Annotated[str, typer.Argument(help="Admin URL or Airflow connection id; credentials as of a source.")],
    folder: Annotated[Path, typer.Argument(help="Where the files are; comments and order in them survive.")],
    select: Select = None,
    topics: Topics = True,
    as_json: AsJson = False,
) -> None:
    """Write what a cluster holds as YAML, a file for each tenant and namespace; no file is deleted."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        connection, selection = named_cluster(cluster, Side.SOURCE), parse_selection(select or ())
        with terminal.working(f"Reading {connection.name}"):

            async def read() -> JsonObject:
                reached = await reach(connection)
                return await export_cluster(reached.connection, selection, folder, topics=topics)

            found = asyncio.run(read())
    terminal.say(f"{len(found['written'])} files written, {found['unchanged']} were right, in {folder}")
    for name in found["stale"]:
        terminal.say(f"  {name}: the cluster has no such resource; delete the file if it is not wanted")
    terminal.finish(found, ExitState.DONE)


def reconcile(
    clusters: Annotated[list[str], typer.Argument(help="Two clusters or more: admin URL or Airflow connection id.")],
    select: Select = None,
    mode: Annotated[Mode, typer.Option(help="How far to go.")] = Mode.REPORT,
    authority: Annotated[str, typer.Option(help="merge, cluster:<its own name> or file:<folder>.")] = "merge",
    tie_break: Annotated[TieBreak, typer.Option(help="Whose value wins when nobody can tell.")] = TieBreak.SMALLER,
    granularity: Annotated[Granularity, typer.Option(help="What wins as a whole.")] = Granularity.FIELD,
    topics: Topics = True,
    propagate_deletes: Annotated[bool, typer.Option(help="Plan to delete what is gone elsewhere.")] = False,
    allow: Annotated[list[str] | None, typer.Option(help="Id of a dangerous change that may be made.")] = None,
    choose: Annotated[list[str] | None, typer.Option(help="CONFLICT=CLUSTER: take its value after all.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where nobody can be asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what drifted apart between clusters, and repair it with --mode repair. Exits with 3 if drift is left."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        if len(clusters) < 2:
            raise Usage(f"{clusters[0]!r} alone is equal to itself: name two clusters or more.")
        if mode is Mode.REPAIR:
            require_consent("clusters", yes=yes)
        conf: JsonObject = {
            "selection": list(parse_selection(select or ()).texts()),
            "mode": mode.value,
            "authority": authority,
            "tie_break": tie_break.value,
            "granularity": granularity.value,
            "topics": topics,
            "propagate_deletes": propagate_deletes,
            "allow_changes": list(allow or ()),
            "choose": list(choose or ()),
            "skew_seconds": Request().skew_seconds,
        }
        request = _request(conf)
        sides = [named_cluster(name, Side.TARGET if at else Side.SOURCE) for at, name in enumerate(clusters)]
        with recorded(new_run_id("reconcile"), "reconcile", {**conf, "clusters": clusters}) as run:
            document, state = _run(terminal, sides, request, run, ask=not yes)
        terminal.finish(document, state)


def _run(
    terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run, *, ask: bool
) -> tuple[JsonObject, ExitState]:
    with terminal.working(f"Reading {', '.join(side.name for side in sides)}"):
        connections = asyncio.run(reach_all(sides))
        found = asyncio.run(find_drift(connections, request, run))
    plans = read_plans(found, run)
    (terminal.show if ask else terminal.say)("\n\n".join([found["headline"], *map(plan_text, plans.values())]))
    repaired: JsonObject | None = None
    if request.mode is Mode.REPAIR and found["drift"]:
        if ask and not terminal.confirmed("Write this?"):
            raise PreconditionFailed("You did not agree. Nothing has been changed.")
        with terminal.working(f"Changing {', '.join(plans) or 'nothing'}"):
            repaired = asyncio.run(repair(connections, found, request, run))
        terminal.say("\n".join([headline(found, repaired), *(f"  ! {one}" for one in repaired["problems"])]))
        for cluster in repaired["changed"]:
            terminal.say(f"Undo it on {cluster} with: pulsar-fleet undo {run.id}/{cluster}")
    return {"run": run.id, **found, "repaired": repaired}, _state(found, repaired)


def _state(found: JsonObject, repaired: JsonObject | None) -> ExitState:
    if repaired is None:
        return ExitState.DIFFERENT if found["drifting"] else ExitState.DONE
    if repaired["failed"] or repaired["unreached"]:
        return ExitState.PARTLY
    return ExitState.DIFFERENT if remaining(found, repaired) else ExitState.DONE


def _request(conf: JsonObject) -> Request:
    try:
        return Request.of(conf)
    except InvalidRequest as error:
        raise Usage(str(error)) from error


async def reach_all(sides: Sequence[ClusterConnection]) -> list[ClusterConnection]:
    """The connections with what their clusters tell about themselves; one that does not answer as it was given."""
    return list(await asyncio.gather(*map(_reached, sides)))


async def _reached(side: ClusterConnection) -> ClusterConnection:
    try:
        return (await reach(side)).connection
    except Unavailable:
        # One that does not answer is named by the run, and the others go on.
        return side
