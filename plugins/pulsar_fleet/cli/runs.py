"""The run of a command: its id, its records, and the plan for two clusters."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from socket import gethostname

from pulsar_fleet.cli.clusters import ReachedCluster
from pulsar_fleet.cli.terminal import Terminal, UsageError
from pulsar_fleet.cli.text import compared_line
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.ledger.approval import APPROVED, REJECTED, ApprovalRules, store_approval
from pulsar_fleet.ledger.run import Run, this_user
from pulsar_fleet.onboarding.steps import plan_onboarding, probe_target_schemas, take_snapshot
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver
from pulsar_fleet.procedures.procedure import Permission
from pulsar_fleet.procedures.reconciliation import permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPair:
    """The result of planning two clusters.

    :param line: what was compared, and the missing permissions of the roles, if any.
    """

    plan: Plan
    findings: tuple[Finding, ...]
    line: str


def new_run_id(command: str) -> str:
    """`cli/plan-20261121T160000-9f3c`: the time, and a suffix for runs that start in the same second."""
    return f"cli/{command}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def begin_run(
    terminal: Terminal, run: Run, procedure: str, conf: JsonObject, *, command: str = "", continues: Run | None = None
) -> None:
    """Record that a run begins, and print its id: a process that is killed prints nothing any more.

    :param command: continues the run with --resume; empty if none does.
    :param continues: the run whose requester has asked for this one too.
    """
    by = (continues and continues.requester) or f"{this_user()} on {gethostname()}"
    ApprovalRules.of().require_request(conf, by)
    run.ledger.start_run(run.id, procedure, conf, by)
    continued = f" Should this process die: {command_line(command, '--resume', run.id)}" if command else ""
    terminal.note(f"Run {run.id}.{continued}")


@contextmanager
def recorded_run(terminal: Terminal, command: str, procedure: str, conf: JsonObject) -> Iterator[Run]:
    """The records of a new run of a command; the ledger stores the request and whether the block succeeded."""
    run = Run.open(new_run_id(command))
    begin_run(terminal, run, procedure, conf)
    try:
        yield run
    except BaseException:
        run.ledger.finish_run(run.id, "failed")
        raise
    run.ledger.finish_run(run.id, "succeeded")


def resumable_run(run_id: str, procedure: str, process: str = "") -> tuple[Run, JsonObject, bool]:
    """The records and the settings of an earlier attempt, and whether it has ended.

    :param process: see `Run`.
    :raises FleetError: there is no such run, it is of another procedure or of Airflow, or it was undone.
    """
    run = Run.open(run_id, process)
    record = run.ledger.require_run(run_id)
    if record.procedure != procedure:
        raise UsageError(f"The run {run_id!r} is not a run of {procedure}, but of {record.procedure}.")
    if record.state == "undone":
        raise PreconditionFailed(f"The run {run_id!r} was undone: there is nothing to continue.")
    if not run_id.startswith("cli/") and not record.over:
        raise PreconditionFailed(f"The run {run_id!r} belongs to Airflow: clear its failed task there.")
    return run, dict(record.conf), record.over


def require_approval(
    terminal: Terminal,
    run: Run,
    about: str,
    question: str | None,
    *,
    yes: bool,
    subject: str = "",
    changed: bool = False,
) -> None:
    """Ask the operator, and store the answer with the run.

    :param question: None if there is nothing to decide: that counts as approved.
    :param yes: `--yes` was given: it is approved without a question.
    :param subject: what was rejected, for the error; `about` by default.
    :param changed: an earlier attempt of the run may have changed something.
    :raises PreconditionFailed: it was rejected, or this installation wants another person to answer.
    """
    rules = ApprovalRules.of()
    if question:
        if yes:
            rules.require_unasked("--yes")
        rules.require_approver([this_user()], run.requester)
    approved = yes or question is None or terminal.confirm(question)
    by = f"{this_user()} with --yes" if yes else f"{this_user()} on the terminal"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    store_approval(run, about, APPROVED if approved else REJECTED, by=by, at=at)
    if not approved:
        state = "What an earlier attempt has changed stays" if changed else "Nothing has been changed"
        raise PreconditionFailed(f"The {subject or about} was not approved. {state}.")


def require_permitted(*, yes: bool, by_another: bool = True) -> None:
    """Refuse a change that the operator of a command decides alone, where this installation wants another person's yes.

    :param yes: `--yes` was given.
    :param by_another: whether a rule counts that wants another person than the one who asks.
    """
    rules = ApprovalRules.of()
    if yes:
        rules.require_unasked("--yes")
    rules = rules if by_another else replace(rules, other_person=False)
    rules.require_approver([this_user()], this_user())


def approve_deletions(
    terminal: Terminal,
    run: Run,
    waiting: Mapping[str, PendingDeletions],
    allowed: Collection[str],
    *,
    ask: bool,
) -> frozenset[str]:
    """Ask once for the deletions of each cluster that no id allows yet; the answer is stored with the run.

    :param ask: False with `--yes`: then only what `--allow` names is deleted.
    :returns: the ids of the approved batches.
    """
    return grant(terminal, run, permissions(waiting, allowed)) if ask else frozenset()


def grant(terminal: Terminal, run: Run, wanted: Iterable[Permission]) -> frozenset[str]:
    """Ask for each permission on its own, and store the answers with the run; returns the ids that were granted."""
    answers: dict[str, bool] = {}
    rules = ApprovalRules.of()
    for permission in wanted:
        rules.require_approver([this_user()], run.requester)
        terminal.show(permission.text)
        answers[permission.id] = terminal.confirm(permission.question)
    granted = frozenset(name for name, answer in answers.items() if answer)
    if answers:
        about, at = f"the deletions {', '.join(answers)}", datetime.now(UTC).isoformat(timespec="seconds")
        answer = f"{APPROVED} {', '.join(sorted(granted))}" if granted else REJECTED
        store_approval(run, about, answer, by=f"{this_user()} on the terminal", at=at)
    return granted


async def plan_pair(
    source: ReachedCluster,
    target: ReachedCluster,
    selection: Selection,
    run: Run,
    *,
    subscriptions: bool = True,
    lag_hours: int = 0,
    waivers: Sequence[Waiver] = (),
) -> PlannedPair:
    """Read both clusters, check and plan with the same steps as the DAG; nothing is changed."""
    began = time.monotonic()
    ours, theirs = await asyncio.gather(
        take_snapshot(
            source.connection,
            selection,
            run.artefacts,
            run.id,
            name="source",
            must_exist=not selection.everything,
            subscriptions=subscriptions,
        ),
        take_snapshot(target.connection, selection, run.artefacts, run.id, name="target", subscriptions=subscriptions),
    )
    planned = plan_onboarding(
        ours,
        theirs,
        run.artefacts,
        subscriptions=subscriptions,
        lag_seconds=lag_hours * 3600,
        answers=await probe_target_schemas(target.connection, ours, theirs, run.artefacts),
        waivers=waivers,
    )
    compared = compared_line(ours, theirs, time.monotonic() - began)
    return PlannedPair(
        plan=planned.plan,
        findings=planned.findings,
        line="\n\n".join(text for text in (compared, ours.rights, theirs.rights) if text),
    )
