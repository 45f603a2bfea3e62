"""`pulsar-fleet onboard` on the terminal: the steps of the DAG in its order, each with a line of progress."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from pulsar_fleet.cli.interrupts import run_step
from pulsar_fleet.cli.runs import require_approval
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cli.text import question
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import Conflict, FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.ledger.approval import APPROVED, read_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.onboarding import steps
from pulsar_fleet.onboarding.results import AppliedBatch, StoredPlan, TakenSnapshot
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.preflight.findings import Finding, findings_markdown, refusal_text
from pulsar_fleet.preflight.waivers import parse_waivers
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.onboard import onboarding_report
from pulsar_fleet.report.page import store_report
from pulsar_fleet.report.planned_run import unplanned_report
from pulsar_fleet.verification.snapshots.compare import (
    EqualityResult,
    compare_in_process,
    compare_snapshots,
    read_back,
)

Result = TypeVar("Result")
_PREPARED = "onboarding.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Document):
    """What the steps before the approval have stored; a resumed run begins with it."""

    SCHEMA_VERSION = 1

    source: TakenSnapshot
    target: TakenSnapshot
    planned: StoredPlan


class OnboardingRun:
    """One run; a resumed one whose plan was approved applies what is left of it.

    :param conf: the settings, by the names that the DAG has for them.
    :param yes: approve without a question.
    """

    def __init__(self, terminal: Terminal, run: Run, conf: JsonObject, *, yes: bool) -> None:
        self.terminal = terminal
        self.run = run
        self.conf = conf
        self.yes = yes
        self.selection = Selection.parse(conf["selection"])
        self.prepared: Prepared | None = None
        self.verified: EqualityResult | None = None
        self.current = ""

    def execute(self, source: ClusterConnection, target: ClusterConnection) -> tuple[JsonObject, ExitState]:
        """Run the steps that are left, write the report and end the run in the ledger.

        :raises FleetError: a step failed before anything was changed; the run has ended.
        """
        problem: FleetError | KeyboardInterrupt | None = None
        try:
            self._execute(source, target)
        except (FleetError, KeyboardInterrupt) as error:
            problem = error
        failed = {self.current: str(problem) or "interrupted"} if problem else {}
        report = self._report(failed)
        store_report(self.run, report)
        changed = bool(self.run.ledger.changes(self.run.id))
        self.run.ledger.finish_run(self.run.id, "failed" if failed else "succeeded")
        text = report.markdown()
        document: JsonObject = {"run": self.run.id, "failed": list(failed), "report": text}
        if problem is None:
            self.terminal.say(text)
            return document, ExitState.DONE
        if isinstance(problem, FleetError) and not changed:
            raise problem
        self.terminal.note(f"{self.current}: {str(problem) or 'interrupted.'}", style="red")
        resume, undo = command_line("onboard", "--resume", self.run.id), command_line("undo", self.run.id)
        self.terminal.note(f"Continue with: {resume}", resume)
        if changed:
            self.terminal.note(f"Undo it with:  {undo}", undo)
        return document, ExitState.PARTLY if changed else ExitState.INTERRUPTED

    def _execute(self, source: ClusterConnection, target: ClusterConnection) -> None:
        approval, stored = read_approval(self.run), self.run.stored(_PREPARED)
        if stored and approval and approval["answer"] == APPROVED:
            self.prepared = Prepared.from_json(stored)
        else:
            self.prepared = self._prepare(source, target)
            if not self._approve(self.prepared.planned):
                return
        for batch in self.prepared.planned.batches:
            self._apply(source, target, self.prepared.planned, batch)
        self.verified = self._step("verify_equal", self._verify(target, self.prepared.source))

    def _prepare(self, source: ClusterConnection, target: ClusterConnection) -> Prepared:
        must_exist = not self.selection.everything
        ours = self._step("snapshot_source", self._snapshot(source, "source", must_exist=must_exist))
        theirs = self._step("snapshot_target", self._snapshot(target, "target", must_exist=False))
        prepared = Prepared(
            source=ours, target=theirs, planned=self._step("plan_changes", self._plan(target, ours, theirs))
        )
        self.run.artefacts.write_json(self.run.id, _PREPARED, prepared.to_json())
        return prepared

    async def _snapshot(self, cluster: ClusterConnection, name: str, *, must_exist: bool) -> TakenSnapshot:
        subscriptions = self.conf["subscriptions"]
        return await steps.take_snapshot(
            cluster,
            self.selection,
            self.run.artefacts,
            self.run.id,
            name=name,
            must_exist=must_exist,
            subscriptions=subscriptions,
        )

    async def _plan(self, target: ClusterConnection, ours: TakenSnapshot, theirs: TakenSnapshot) -> StoredPlan:
        return steps.plan_onboarding(
            ours,
            theirs,
            self.run.artefacts,
            self.run.id,
            subscriptions=self.conf["subscriptions"],
            lag_seconds=self.conf["expected_lag_hours"] * 3600,
            answers=await steps.probe_target_schemas(target, ours, theirs, self.run.artefacts),
            waivers=parse_waivers(self.conf["waivers"]),
        )

    def _approve(self, planned: StoredPlan) -> bool:
        """Show findings and plan, and ask; False after a dry run."""
        self.current = "approve_plan"
        plan, findings = self._plan_of(planned), self._findings_of(planned)
        if planned.blockers:
            raise PreconditionFailed(refusal_text(findings, "Nothing has been changed."))
        dry_run = self.conf["dry_run"]
        texts = [findings_markdown(findings), plan_text(plan)]
        if dry_run:
            texts.append("Dry run: nothing has been changed.")
        (self.terminal.say if self.yes or dry_run else self.terminal.show)("\n\n".join(filter(None, texts)))
        if dry_run:
            return False
        asked = question(plan, self.conf["allow_changes"])
        if planned.changes and not asked:
            raise PreconditionFailed(
                "Every change of this plan needs permission: allow each with --allow ID. Nothing has been changed."
            )
        require_approval(self.terminal, self.run, f"plan {planned.id}", asked or None, yes=self.yes, subject="plan")
        return True

    def _apply(self, source: ClusterConnection, target: ClusterConnection, planned: StoredPlan, batch: int) -> None:
        self.current = "apply_plan"
        with self.terminal.progress(f"Changing {planned.target}", "changes") as progress:
            applied = self._step("apply_plan", self._apply_batch(source, target, planned, batch, progress))
        if not applied.complete:
            lines = "\n".join(f"  {problem}" for problem in applied.problems)
            raise Conflict(f"Some changes are not in place on {applied.target}; all others are.\n{lines}")

    async def _apply_batch(
        self,
        source: ClusterConnection,
        target: ClusterConnection,
        planned: StoredPlan,
        batch: int,
        progress: Callable[[int, int], None],
    ) -> AppliedBatch:
        return await steps.apply_onboarding(
            source,
            target,
            planned.plan,
            self.run.artefacts,
            self.run.ledger,
            self.run.id,
            batch=batch,
            allow=self.conf["allow_changes"],
            progress=progress,
        )

    async def _verify(self, target: ClusterConnection, source: TakenSnapshot) -> EqualityResult:
        request = await read_back(
            source.reference,
            target,
            self.selection,
            self.run.artefacts,
            self.run.id,
            subscriptions=self.conf["subscriptions"],
        )
        comparison = compare_snapshots(request, compare_in_process)
        result = EqualityResult.of(request, comparison)
        if not comparison.equal:
            raise Conflict(f"The target still differs: run the command again.\n{result.text}")
        return result

    def _report(self, failed: dict[str, str]) -> Report:
        if self.prepared is None:
            return unplanned_report(failed)
        planned = self.prepared.planned
        return onboarding_report(
            self.prepared.source,
            self.prepared.target,
            self._plan_of(planned),
            self._findings_of(planned),
            steps.read_applied(self.run.artefacts, self.run.id, planned),
            self.verified,
            read_approval(self.run),
        )

    def _plan_of(self, planned: StoredPlan) -> Plan:
        return steps.read_plan(self.run.artefacts, planned)

    def _findings_of(self, planned: StoredPlan) -> tuple[Finding, ...]:
        return steps.read_findings(self.run.artefacts, planned)

    def _step(self, name: str, work: Coroutine[Any, Any, Result]) -> Result:
        self.current = name
        return run_step(self.terminal, name, lambda _: work)
