"""`pulsar-fleet onboard`: the procedure of the DAG with the same steps, settings and records."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach_two
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.onboarding_run import OnboardingRun
from pulsar_fleet.cli.options import (
    SOURCE_HELP,
    TARGET_HELP,
    Allow,
    AsJson,
    Resume,
    Select,
    Subscriptions,
    Waivers,
    Yes,
    waiver_documents,
)
from pulsar_fleet.cli.runs import new_run_id, resumable_run
from pulsar_fleet.cli.terminal import Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.onboarding.steps import PROCEDURE
from pulsar_fleet.preflight.waivers import parse_waivers


def onboard(
    source: Annotated[str | None, typer.Argument(help=SOURCE_HELP)] = None,
    target: Annotated[str | None, typer.Argument(help=TARGET_HELP)] = None,
    select: Select = None,
    subscriptions: Subscriptions = True,
    expected_lag_hours: Annotated[
        int, typer.Option(min=0, help="How long messages may wait on the source before they are copied later.")
    ] = 0,
    waivers: Waivers = None,
    allow: Allow = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show findings and plan; change nothing.")] = False,
    resume: Resume = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy everything but messages to another cluster, and verify it. After Ctrl-C --resume continues."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        if not dry_run:
            require_consent("a cluster", yes=yes)
        conf: JsonObject = {
            "source": source,
            "target": target,
            "selection": list(parse_selection(select or ()).texts()),
            "subscriptions": subscriptions,
            "expected_lag_hours": expected_lag_hours,
            "waivers": waiver_documents(waivers),
            "allow_changes": list(allow or ()),
            "dry_run": dry_run,
        }
        run, conf = _resumed(resume, conf) if resume else _begun(conf)
        sides = named_cluster(conf["source"], Side.SOURCE), named_cluster(conf["target"], Side.TARGET)
        ours, theirs = run_interruptibly(reach_two(*sides))
        document, state = OnboardingRun(terminal, run, conf, yes=yes).execute(ours.connection, theirs.connection)
    terminal.finish(document, state)


def _begun(conf: JsonObject) -> tuple[Run, JsonObject]:
    if not (conf["source"] and conf["target"]):
        raise UsageError("Name two clusters: pulsar-fleet onboard SOURCE TARGET.")
    with usage_errors():
        parse_waivers(conf["waivers"])
    run = Run.open(new_run_id("onboard"))
    run.ledger.start_run(run.id, PROCEDURE, conf)
    return run, conf


def _resumed(run_id: str, conf: JsonObject) -> tuple[Run, JsonObject]:
    if conf["source"] or conf["selection"] or conf["waivers"] or conf["allow_changes"]:
        raise UsageError("--resume uses the recorded clusters and settings: give no other argument but --yes.")
    run, recorded = resumable_run(run_id, PROCEDURE)
    run.ledger.resume_run(run_id)
    return run, recorded
