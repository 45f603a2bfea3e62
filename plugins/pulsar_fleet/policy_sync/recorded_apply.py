"""Apply a plan as a run of its own in the ledger (client)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.apply.secrets import read_secrets
from pulsar_fleet.planning.plan import Plan
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
) -> PlanResult:
    """Apply a plan as a run of its own in the ledger, so that it can be undone separately.

    An allowed deletion of a topic that somebody uses is refused.

    :param sources: the clusters from which secrets are read.
    """
    ledger.start_run(run_id, procedure, {"target": target.connection.name, "plan": plan.id})
    secrets: dict[str, str] = {}
    for admin in sources:
        secrets |= await read_secrets(plan, admin, redactor)
    unused, refused = await without_used_topics(plan, target, allow)
    applied = await apply_plan(unused, target, ledger, run_id, redactor=redactor, allow=allow, secrets=secrets)
    applied = replace(applied, plan_id=plan.id, results=(*applied.results, *refused))
    ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
    return applied
