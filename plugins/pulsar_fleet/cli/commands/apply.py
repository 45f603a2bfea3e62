"""`pulsar-fleet apply|undo`: what changes a cluster, after the operator said yes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach, reach_two, require_cluster
from pulsar_fleet.cli.commands.onboard import AsJson, Select, Subscriptions, make_plan
from pulsar_fleet.cli.execute import Work, carry_out
from pulsar_fleet.cli.plan_file import PlanFile
from pulsar_fleet.cli.runs import new_run_id
from pulsar_fleet.cli.terminal import ExitState, Terminal, Usage, require_consent
from pulsar_fleet.cli.text import findings_text
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.preflight.findings import blockers

STDIN = "-"
Allow = Annotated[
    list[str] | None,
    typer.Option(help="Id of an irreversible or destructive change that may be made; again for more."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where nobody can be asked.")]


def apply(
    first: Annotated[str, typer.Argument(metavar="PLAN|SOURCE", help="A stored plan (- is stdin), or the source.")],
    target: Annotated[str | None, typer.Argument(help="The target, after a source: plan, then apply.")] = None,
    select: Select = None,
    subscriptions: Subscriptions = True,
    allow: Allow = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Carry out a plan. What is in place is left as it is; after Ctrl-C the same command goes on."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes)
        if target is None:
            file = _stored_plan(first, narrowed=bool(select) or not subscriptions)
        else:
            line, file = make_plan(terminal, first, target, parse_selection(select or ()), subscriptions=subscriptions)
            terminal.say(line)
        if blockers(file.findings):
            terminal.say(findings_text(file.findings))
            document = {"plan": file.plan.id, "findings": [finding.to_json() for finding in file.findings]}
            terminal.finish(document, ExitState.REFUSED)
        carry_out(terminal, _work(file, tuple(allow or ())), ask=not yes)


def undo(
    run: Annotated[str, typer.Argument(help="Id of the run, as `apply` said it, or of a DAG: dag_id/run_id.")],
    target: Annotated[str | None, typer.Option(help="The cluster that it changed; else as the run named it.")] = None,
    allow: Allow = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take back what a run changed, last change first; deleting what it created needs --allow for each."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes)
        ledger = Ledger.open()
        plan = plan_undo(ledger, run)
        known = ledger.run(run)
        name = target or (known.conf.get("target") if known else None)
        if not name:
            raise Usage(f"The run {run!r} did not record which cluster it changed: say it with --target.")
        reached = asyncio.run(reach(named_cluster(str(name), Side.TARGET)))
        require_cluster(reached, plan.target, f"The run {run!r}")
        work = Work(
            run_id=new_run_id("undo"),
            command="undo",
            plan=plan,
            source=reached.connection,
            target=reached.connection,
            conf={"run": run, "target": name, "allow": list(allow or ())},
            allow=tuple(allow or ()),
            undoes=run,
        )
        carry_out(terminal, work, ask=not yes)


def _stored_plan(name: str, *, narrowed: bool) -> PlanFile:
    if narrowed:
        raise Usage("A stored plan is applied as it is: --select and --no-subscriptions belong to 'plan'.")
    if name == STDIN:
        return PlanFile.from_text(sys.stdin.read(), "stdin")
    try:
        return PlanFile.from_text(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(
            f"There is no plan {name!r}: give a file that 'plan --out' wrote, or a source and a target."
        ) from error


def _work(file: PlanFile, allow: tuple[str, ...]) -> Work:
    """The plan with both clusters, which must still be the ones that it was made for."""
    sides = named_cluster(file.source, Side.SOURCE), named_cluster(file.target, Side.TARGET)
    source, target = asyncio.run(reach_two(*sides))
    for reached, name in ((source, file.plan.source), (target, file.plan.target)):
        require_cluster(reached, name, f"The plan {file.plan.id}")
    return Work(
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
    """The run that an earlier attempt left open, so that it is finished as one; else a new one."""
    run_id = f"cli/apply-{file.run.rpartition('/plan-')[2]}"
    known = Ledger.open().run(run_id)
    return new_run_id("apply") if known and known.over else run_id
