"""`pulsar-fleet apply|undo`: the commands that change a cluster, after the operator's approval."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach, reach_two, require_cluster
from pulsar_fleet.cli.commands.plans import make_plan
from pulsar_fleet.cli.execute import PlanExecution, execute_plan
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import Allow, AsJson, DryRun, Select, Subscriptions, Waivers, Yes
from pulsar_fleet.cli.plan_file import PlanFile
from pulsar_fleet.cli.runs import new_run_id
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent
from pulsar_fleet.cli.text import findings_text
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.planning.hazards import EffectiveValues
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.target_values import read_target_values
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.preflight.findings import blockers

STDIN = "-"


def apply(
    first: Annotated[str, typer.Argument(metavar="PLAN|SOURCE", help="A stored plan (- is stdin), or the source.")],
    target: Annotated[
        str | None, typer.Argument(help="The target, if the first argument is a source: plan, then apply.")
    ] = None,
    select: Select = None,
    subscriptions: Subscriptions = True,
    waivers: Waivers = None,
    allow: Allow = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Apply a plan. Changes in place are skipped; after Ctrl-C the same command continues."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes or dry_run)
        if target is None:
            file = _stored_plan(first, narrowed=bool(select or waivers) or not subscriptions)
        else:
            line, file = make_plan(
                terminal, first, target, parse_selection(select or ()), subscriptions=subscriptions, waivers=waivers
            )
            terminal.say(line)
        if blockers(file.findings):
            terminal.say(findings_text(file.findings))
            document = {"plan": file.plan.id, "findings": [finding.to_json() for finding in file.findings]}
            terminal.finish(document, ExitState.REFUSED)
        execute_plan(terminal, _work(file, tuple(allow or ())), ask=not yes, dry_run=dry_run)


def undo(
    run: Annotated[
        str, typer.Argument(help="Id of the run, from the output of `apply`, or of a DAG run: dag_id/run_id.")
    ],
    target: Annotated[
        str | None, typer.Option(help="The cluster that it changed; default: as recorded by the run.")
    ] = None,
    allow: Allow = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Undo the changes of a run, last change first; each deletion of a created resource needs --allow."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes or dry_run)
        ledger = Ledger.open()
        plan = plan_undo(ledger, run)
        record = ledger.run(run)
        name = target or (record.conf.get("target") if record else None)
        if not name:
            raise UsageError(f"The run {run!r} did not record which cluster it changed: name it with --target.")
        reached = run_interruptibly(reach(named_cluster(str(name), Side.TARGET)))
        require_cluster(reached, plan.target, f"The run {run!r}")
        plan = plan_undo(ledger, run, run_interruptibly(_target_values(plan, reached.connection)))
        work = PlanExecution(
            run_id=new_run_id("undo"),
            command="undo",
            plan=plan,
            source=reached.connection,
            target=reached.connection,
            conf={"run": run, "target": name, "allow": list(allow or ())},
            allow=tuple(allow or ()),
            undoes=run,
        )
        execute_plan(terminal, work, ask=not yes, dry_run=dry_run)


async def _target_values(plan: Plan, connection: ClusterConnection) -> EffectiveValues:
    async with AdminClient(connection) as admin:
        return await read_target_values(plan, admin, open_redactor())


def _stored_plan(name: str, *, narrowed: bool) -> PlanFile:
    if narrowed:
        raise UsageError("A stored plan is applied without changes: use its options with 'plan'.")
    if name == STDIN:
        return PlanFile.from_text(sys.stdin.read(), "stdin")
    try:
        return PlanFile.from_text(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"There is no plan {name!r}: give a file written by 'plan --out', or a source and a target."
        ) from error


def _work(file: PlanFile, allow: tuple[str, ...]) -> PlanExecution:
    """The execution of the plan; both connections must lead to the clusters of the plan."""
    sides = named_cluster(file.source, Side.SOURCE), named_cluster(file.target, Side.TARGET)
    source, target = run_interruptibly(reach_two(*sides))
    for reached, name in ((source, file.plan.source), (target, file.plan.target)):
        require_cluster(reached, name, f"The plan {file.plan.id}")
    return PlanExecution(
        run_id=_run_id(file),
        command="apply",
        plan=file.plan,
        source=source.connection,
        target=target.connection,
        conf={
            "source": file.source,
            "target": file.target,
            "selection": list(file.selection),
            "subscriptions": file.subscriptions,
            "plan": file.plan.id,
            "allow": list(allow),
        },
        allow=allow,
    )


def _run_id(file: PlanFile) -> str:
    """The unfinished run of an earlier attempt, which is then completed; else a new run."""
    run_id = f"cli/apply-{file.run.rpartition('/plan-')[2]}"
    record = Ledger.open().run(run_id)
    return new_run_id("apply") if record and record.over else run_id
