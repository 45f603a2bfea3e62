"""Send calls and apply plans of a run, and record them in the ledger."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Collection, Sequence

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.rows import NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome, StepResult
from pulsar_fleet.planning.hazards import guard_call, risks_of_calls
from pulsar_fleet.planning.plan import Plan, worst

PROCEDURE = "serve_read_only"


async def send_recorded(
    admin: AdminClient, run: Run, call: Call, *, resource: str, before: Json = None, after: Json = None
) -> None:
    """Send one call past all guards, and record it with both values when the broker has answered.

    The ledger gets no intent, since `pulsar-fleet undo` could not take such a call back: *remove* does it.

    :param resource: what the call changes, for people: `shadow topics of persistent://acme/orders/events`.
    """
    own = await admin.cluster_name()
    guard_call(call, own)
    await admin.send(call)
    change = NewChange(
        change_id=hashlib.sha256(f"{call.text()} {before} {after}".encode()).hexdigest()[:12],
        cluster=own,
        resource=resource,
        action=call.method.lower(),
        hazard=worst(*(risk.hazard for risk in risks_of_calls([call], own))).value,
        before=before,
        after=after,
        outcome=Outcome.APPLIED.value,
    )
    await asyncio.to_thread(run.ledger.record, run.id, new_intents=[], new_changes=[change])


def step_result(admin: AdminClient, began: float, calls: int, changes: int, kept: Sequence[str] = ()) -> StepResult:
    """What a step did since `began` (monotonic seconds) and the admin client's count of `calls` then."""
    return StepResult(
        changes=changes, calls=admin.calls - calls, seconds=round(time.monotonic() - began, 1), kept=tuple(kept)
    )


async def apply_recorded(
    admin: AdminClient, plan: Plan, run: Run, part: str, *, allow: Collection[str] = frozenset()
) -> None:
    """Apply a plan as a run of its own, `RUN/part`, which `pulsar-fleet undo` takes back; a second call does the rest.

    :param allow: see `apply_plan`.
    :raises FleetError: a change is not in place.
    """
    run_id = f"{run.id}/{part}"
    run.ledger.start_run(run_id, PROCEDURE, {"target": admin.connection.argument, "plan": plan.id})
    applied = await apply_plan(plan, admin, run.ledger, run_id, redactor=open_redactor(), allow=allow)
    run.ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
    applied.require_in_place()
