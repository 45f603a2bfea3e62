"""Apply one stage of a plan on the clusters, each under a run id of its own, so that it can be undone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.replication.clusters import Clusters

PROCEDURE = "replicate_namespaces"


class Stage:
    """The changes of one stage, and what they cost since it was created."""

    def __init__(self, clusters: Clusters, run: Run, name: str) -> None:
        self._clusters = clusters
        self._run = run
        self._name = name
        self._began = time.monotonic()
        self._calls = clusters.calls
        self._changes = 0
        self.kept: list[str] = []

    @property
    def has_begun(self) -> bool:
        """Whether an earlier try of this run, or this one, has written on a cluster."""
        return len(self._run.ledger.runs_below(f"{self._run.id}/{self._name}")) > 0

    async def apply(self, plans: Mapping[str, Plan]) -> None:
        """Apply plans on all clusters at once; the calls to one namespace of one cluster are serial.

        A failure on one cluster does not stop the others; the first is raised when all are done.
        """
        names = [name for name in self._clusters.admins if name in plans]
        outcomes = await asyncio.gather(*(self.apply_one(name, plans[name]) for name in names), return_exceptions=True)
        for error in filter(None, outcomes):
            raise error

    async def apply_one(self, name: str, plan: Plan, *, checked: bool = False) -> None:
        """Apply a plan on one cluster; a second call skips changes that are in place.

        :param checked: this run has checked what the hazards of these changes are about, so they need no permission.
        :raises Unavailable: a change failed, and a second call may succeed.
        :raises InvalidRequest: a change failed, was refused, or found another value than the plan was made from.
        """
        if plan.empty:
            return
        clusters, redactor, admin = self._clusters, open_redactor(), self._clusters.admins[name]
        data = {peer: other.connection.cluster_data() for peer, other in clusters.admins.items()}
        secrets = redactor.secrets(data)
        for other in clusters.admins.values():
            if other is not admin:
                secrets |= await read_secrets(plan, other, redactor)
        run_id, ledger = f"{self._run.id}/{self._name}/{name}", self._run.ledger
        ledger.start_run(run_id, PROCEDURE, {"target": admin.connection.argument, "plan": plan.id})
        allow = frozenset(change.id for change in plan.changes) if checked else frozenset()
        applied = await apply_plan(plan, admin, ledger, run_id, redactor=redactor, allow=allow, secrets=secrets)
        ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
        self._changes += len(plan.changes)
        applied.require_in_place()

    def result(self) -> StepResult:
        """What was done so far, with the admin calls on all clusters."""
        return StepResult(
            changes=self._changes,
            calls=self._clusters.calls - self._calls,
            seconds=round(time.monotonic() - self._began, 1),
            kept=tuple(self.kept),
        )
