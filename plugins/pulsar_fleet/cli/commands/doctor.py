"""`pulsar-fleet doctor`: which replicators do not replicate, why, and what heals them."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach_all
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, Select, Yes
from pulsar_fleet.cli.runs import new_run_id, recorded_run
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.replication.doctor.model import Examination
from pulsar_fleet.replication.doctor.remedies import RemedyResult, chosen_calls
from pulsar_fleet.replication.doctor.request import BEHIND_SECONDS, Request
from pulsar_fleet.replication.doctor.steps import examine, heal
from pulsar_fleet.replication.doctor.text import examination_text

CLUSTERS_HELP = "At least two clusters: admin URLs or Airflow connection ids."


def doctor(
    clusters: Annotated[list[str], typer.Argument(help=CLUSTERS_HELP)],
    select: Select = None,
    receive_only: Annotated[
        list[str] | None,
        typer.Option(help="A cluster, by its own name, that is meant only to receive; repeat it for more."),
    ] = None,
    remedy: Annotated[
        list[str] | None,
        typer.Option(help="Id of a diagnosis whose calls are sent; repeat it for more. Default: nothing is changed."),
    ] = None,
    behind_seconds: Annotated[
        float, typer.Option(help="A replicator that needs longer for its backlog is behind.")
    ] = BEHIND_SECONDS,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Diagnose replication between clusters; loads the topics that replicate. Exits with 3 if there is a fault."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        if len(clusters) < 2:
            raise UsageError(f"Only {clusters[0]!r} is given: name at least two clusters.")
        conf: JsonObject = {
            "selection": list(parse_selection(select or ()).texts()),
            "receive_only": list(receive_only or ()),
            "remedies": list(remedy or ()),
            "behind_seconds": behind_seconds,
        }
        with usage_errors():
            request = Request.of(conf)
        if request.remedies:
            require_consent("clusters", yes=yes)
        document, state = _run(terminal, clusters, request, conf, ask=not yes)
        terminal.finish(document, state)


def _run(
    terminal: Terminal, clusters: list[str], request: Request, conf: JsonObject, *, ask: bool
) -> tuple[JsonObject, ExitState]:
    sides = [named_cluster(name, Side.TARGET if at else Side.SOURCE) for at, name in enumerate(clusters)]
    with terminal.status(f"Reading {', '.join(side.name for side in sides)}"):
        connections = run_interruptibly(reach_all(sides))
        examination = run_interruptibly(examine(connections, request))
    calls = chosen_calls(examination, request.remedies)
    (terminal.show if ask and calls else terminal.say)(examination_text(examination))
    if not calls:
        if request.remedies:
            terminal.note("No diagnosis of this run has such a remedy. Nothing has been changed.", style="yellow")
        return {**examination.to_json(), "remedy": None}, _state(examination)
    listed = "\n".join(call.text() for call in calls)
    if ask and not terminal.confirm(f"{listed}\nSend {counted(len(calls), 'call')}?"):
        raise PreconditionFailed("The remedy was not approved. Nothing has been changed.")
    with recorded_run(new_run_id("doctor"), "doctor", {**conf, "clusters": clusters}) as run:
        result: RemedyResult = run_interruptibly(heal(connections, examination, request, run))
    terminal.say(result.text())
    return {**examination.to_json(), "run": run.id, "remedy": result.to_json()}, _state(result.after)


def _state(examination: Examination) -> ExitState:
    if examination.has_fault:
        return ExitState.DIFFERENT
    return ExitState.DONE if examination.is_complete else ExitState.INCONCLUSIVE
