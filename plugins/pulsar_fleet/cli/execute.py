"""Carry out one plan under the operator's eyes: show it, ask, apply, say what became of it."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cli.text import applied_text, nothing_text, question
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.onboarding.steps import apply_onboarding
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_text

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A plan that is to be carried out.

    :param run_id: where it is recorded; that of an attempt that was cut off, where there was one.
    :param conf: what was asked for, without secrets.
    :param allow: ids of the irreversible and destructive changes that may be made.
    :param undoes: the run that it takes back, if it does.
    """

    run_id: str
    command: str
    plan: Plan
    source: ClusterConnection
    target: ClusterConnection
    conf: JsonObject
    allow: tuple[str, ...] = ()
    undoes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What became of a plan: changes by outcome, the first problems, and the state to exit with."""

    counts: Mapping[str, int]
    problems: tuple[str, ...]
    state: ExitState
    message: str = ""


def carry_out(terminal: Terminal, work: Work, *, ask: bool) -> NoReturn:
    """Show the plan, ask, apply, and exit; what is in place already is left as it is.

    :raises Refused: the operator said no, or nothing of the plan may be made; nothing was sent.
    """
    if work.plan.empty:
        terminal.say(plan_text(work.plan) if work.undoes is None else nothing_text(work.undoes, work.plan))
        terminal.finish(_document(work, Ending(counts={}, problems=(), state=ExitState.DONE)), ExitState.DONE)
    (terminal.show if ask else terminal.say)(plan_text(work.plan))
    _require_agreement(terminal, work, ask=ask)
    ending = _apply(terminal, work)
    complete = ending.state is ExitState.DONE
    terminal.say(f"\n{applied_text(work.plan.target, ending.counts, ending.problems, complete=complete)}")
    if ending.message:
        terminal.note(ending.message, style="red")
    if work.undoes is None and ending.counts.get(Outcome.APPLIED.value):
        terminal.say(f"Undo it with: {shlex.join(['pulsar-fleet', 'undo', work.run_id])}")
    terminal.finish(_document(work, ending), ending.state)


def _require_agreement(terminal: Terminal, work: Work, *, ask: bool) -> None:
    unknown = sorted(set(work.allow) - {change.id for change in work.plan.needing_permission()})
    if unknown:
        terminal.note(f"--allow {', '.join(unknown)}: no such change in this plan needs permission.", style="yellow")
    asked = question(work.plan, work.allow)
    if not asked:
        raise PreconditionFailed(
            "Every change of this plan needs permission: name them with --allow. Nothing has been changed."
        )
    if ask and not terminal.confirmed(asked):
        raise PreconditionFailed("You did not agree. Nothing has been changed.")


def _apply(terminal: Terminal, work: Work) -> Ending:
    """Apply under the run's records; a failure on the way is an ending as well, once anything was recorded."""
    run = Run.open(work.run_id)
    run.ledger.start_run(run.id, work.command, work.conf)
    recorded_before = len(run.ledger.changes(run.id))
    try:
        with terminal.counting(f"Changing {work.plan.target}", "changes") as progress:
            applied = asyncio.run(_step(work, run, progress))
        ending = _ending(applied)
    except KeyboardInterrupt:
        ending = _cut_off(run, recorded_before, "Interrupted. Run the same command again to go on from here.")
    except FleetError as error:
        ending = _cut_off(run, recorded_before, str(error))
        if not ending.counts:
            run.ledger.finish_run(run.id, "failed")
            raise
    run.ledger.finish_run(run.id, "succeeded" if ending.state is ExitState.DONE else "failed")
    if work.undoes and ending.state is ExitState.DONE:
        run.ledger.finish_run(work.undoes, "undone")
    return ending


async def _step(work: Work, run: Run, progress: Callable[[int, int], None]) -> JsonObject:
    planned = {"plan": run.artefacts.write_json(run.id, "plan.json", work.plan.to_json()).to_json()}
    return await apply_onboarding(
        work.source,
        work.target,
        planned,
        run.artefacts,
        run.ledger,
        run.id,
        allow=work.allow,
        progress=progress,
    )


def _ending(applied: JsonObject) -> Ending:
    missed = {outcome for outcome, count in applied["counts"].items() if count and not Outcome(outcome).in_place}
    state = ExitState.PARTLY if missed else ExitState.DONE
    if missed == {Outcome.REFUSED.value}:
        state = ExitState.REFUSED
    return Ending(counts=applied["counts"], problems=tuple(applied["problems"]), state=state)


def _cut_off(run: Run, recorded_before: int, message: str) -> Ending:
    """What the ledger says of an attempt that did not come to its end."""
    rows = run.ledger.changes(run.id)[recorded_before:]
    missed = [row for row in rows if not Outcome(row.outcome).in_place]
    return Ending(
        counts=Counter(row.outcome for row in rows),
        problems=tuple(f"{row.resource}: {row.outcome}: {row.detail}" for row in missed[:_MOST_SHOWN]),
        state=ExitState.PARTLY,
        message=message,
    )


def _document(work: Work, ending: Ending) -> JsonObject:
    return {
        "run": work.run_id,
        "plan": work.plan.id,
        "target": work.plan.target,
        "counts": dict(ending.counts),
        "problems": list(ending.problems),
    }
