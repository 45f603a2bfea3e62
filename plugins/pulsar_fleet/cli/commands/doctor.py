"""`pulsar-fleet doctor`: which replicators do not replicate, why, and what heals them."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach_all
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import Yes
from pulsar_fleet.cli.runs import recorded_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import ExitState, Terminal, require_consent, usage_errors
from pulsar_fleet.clients.store import returnable_groups
from pulsar_fleet.cluster.connection import require_two
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.replication.doctor.model import Examination
from pulsar_fleet.replication.doctor.remedies import RemedyResult, chosen_calls
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.replication.doctor.steps import examine, heal
from pulsar_fleet.replication.doctor.text import examination_text
from pulsar_fleet.settings.replication import WATCH_REPLICATION

CLUSTERS_HELP = "At least two clusters: admin URLs or Airflow connection ids."


@with_settings(WATCH_REPLICATION.declared, arguments={"clusters": CLUSTERS_HELP})
def doctor(terminal: Terminal, conf: JsonObject, yes: Yes = False) -> None:
    """Diagnose replication between clusters; loads the topics that replicate. Exits with 3 if there is a fault."""
    clusters = conf["clusters"]
    with usage_errors():
        require_two(clusters)
        conf["selection"] = list(parse_selection(conf["selection"]).texts())
        request = Request.of(conf)
    request = replace(request, moved=returnable_groups(Ledger.open()))
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
    if ask:
        terminal.require_answer(f"{listed}\nSend {counted(len(calls), 'call')}?", "remedy")
    with recorded_run(terminal, "doctor", "doctor", conf) as run:
        result: RemedyResult = run_interruptibly(heal(connections, examination, request, run))
    terminal.say(result.text())
    return {**examination.to_json(), "run": run.id, "remedy": result.to_json()}, _state(result.after)


def _state(examination: Examination) -> ExitState:
    if examination.has_fault:
        return ExitState.DIFFERENT
    return ExitState.DONE if examination.is_complete else ExitState.INCONCLUSIVE
