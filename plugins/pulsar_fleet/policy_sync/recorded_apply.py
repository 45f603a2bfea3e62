"""Apply a plan as a run of its own in the ledger (client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.redaction import Redactor, fingerprints
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import ChangeResult, Outcome, PlanResult, creates_resource, dependencies
from pulsar_fleet.planning.plan import Change, Plan
from pulsar_fleet.policy_sync.deletions import without_used_topics


async def apply_recorded(
    plan: Plan,
    target: AdminClient,
    sources: Sequence[AdminClient],
    ledger: Ledger,
    run_id: str,
    procedure: str,
    *,
    redactor: Redactor,
    allow: frozenset[str] = frozenset(),
    behind: Mapping[str, str] | None = None,
) -> PlanResult:
    """Apply a plan as a run of its own in the ledger, so that it can be undone separately.

    An allowed deletion of a topic that somebody uses is refused. A change whose secret cannot be read now is left to a
    second attempt; if nothing else is to be made, there is no run.

    :param sources: the clusters from which secrets are read: those of other clusters only while one is missing.
    :param behind: connection → why its cluster does not answer: it may hold a secret too.
    """
    secrets, unread = await _secrets(plan, sources, redactor)
    why = "; ".join([*unread, *(behind or {}).values()])
    waiting = _without_secrets(plan, secrets, why) if why else ()
    later = {result.change.id for result in waiting}
    unused, refused = await without_used_topics(plan, target, allow)
    unused = replace(unused, changes=tuple(change for change in unused.changes if change.id not in later))
    if unused.empty and not refused and waiting:
        return PlanResult(plan.id, plan.target, waiting)
    ledger.start_run(run_id, procedure, {"target": target.connection.name, "plan": plan.id})
    applied = await apply_plan(unused, target, ledger, run_id, redactor=redactor, allow=allow, secrets=secrets)
    applied = replace(applied, plan_id=plan.id, results=(*applied.results, *refused, *waiting))
    ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
    return applied


async def _secrets(plan: Plan, sources: Sequence[AdminClient], redactor: Redactor) -> tuple[dict[str, str], list[str]]:
    """The secrets that a plan writes, and why clusters that may have a missing one do not answer."""
    needed = {text for change in plan.changes for text in _fingerprints(change)}
    secrets: dict[str, str] = {}
    unread: list[str] = []
    for admin in sources:
        if needed <= secrets.keys():
            break
        try:
            secrets |= await read_secrets(plan, admin, redactor)
        except Unavailable as error:
            unread.append(str(error))
    return secrets, unread


def _without_secrets(plan: Plan, secrets: Mapping[str, str], why: str) -> tuple[ChangeResult, ...]:
    """The changes that lack a secret, and those that need what they create: a second attempt may make them."""
    lacking = [change for change in plan.changes if not _fingerprints(change) <= secrets.keys()]
    absent = {(change.resource, change.name) for change in lacking if creates_resource(change)}
    detail = f"its secret cannot be read now: {why}"
    failed = [ChangeResult(change, Outcome.FAILED, detail, passing=True) for change in lacking]
    skipped = [
        ChangeResult(change, Outcome.SKIPPED, f"{min(missing)[1]} was not made", passing=True)
        for change in plan.changes
        if change not in lacking and (missing := dependencies(change) & absent)
    ]
    return (*failed, *skipped)


def _fingerprints(change: Change) -> frozenset[str]:
    return frozenset(text for call in change.calls for text in fingerprints(call.body))
