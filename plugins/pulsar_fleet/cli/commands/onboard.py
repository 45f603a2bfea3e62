"""`pulsar-fleet onboard`: the procedure of the DAG with the same steps, settings and records."""

from __future__ import annotations

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach_two
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.onboarding_run import OnboardingRun
from pulsar_fleet.cli.options import SOURCE_HELP, TARGET_HELP, Resume, Yes
from pulsar_fleet.cli.runs import begin_run, new_run_id, resumable_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.onboarding.steps import PROCEDURE
from pulsar_fleet.preflight.waivers import parse_waivers
from pulsar_fleet.settings.onboard import SETTINGS


@with_settings(SETTINGS, arguments={"source": SOURCE_HELP, "target": TARGET_HELP}, required=False)
def onboard(terminal: Terminal, conf: JsonObject, resume: Resume = None, yes: Yes = False) -> None:
    """Copy everything but messages to another cluster, and verify it. After Ctrl-C --resume continues."""
    if not conf["dry_run"]:
        require_consent("a cluster", yes=yes)
    conf["selection"] = list(parse_selection(conf["selection"]).texts())
    run, conf = _resumed(resume, conf) if resume else _begun(terminal, conf)
    sides = named_cluster(conf["source"], Side.SOURCE), named_cluster(conf["target"], Side.TARGET)
    ours, theirs = run_interruptibly(reach_two(*sides))
    document, state = OnboardingRun(terminal, run, conf, yes=yes).execute(ours.connection, theirs.connection)
    terminal.finish(document, state)


def _begun(terminal: Terminal, conf: JsonObject) -> tuple[Run, JsonObject]:
    if not (conf["source"] and conf["target"]):
        raise UsageError("Name two clusters: pulsar-fleet onboard SOURCE TARGET.")
    with usage_errors():
        parse_waivers(conf["waivers"])
    run = Run.open(new_run_id("onboard"))
    begin_run(terminal, run, PROCEDURE, conf, command="onboard")
    return run, conf


def _resumed(run_id: str, conf: JsonObject) -> tuple[Run, JsonObject]:
    if conf["source"] or conf["selection"] or conf["waivers"] or conf["allow_changes"]:
        raise UsageError("--resume uses the recorded clusters and settings: give no other argument but --yes.")
    run, recorded = resumable_run(run_id, PROCEDURE)
    run.ledger.resume_run(run_id)
    return run, recorded
