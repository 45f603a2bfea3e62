"""`pulsar-fleet replicate` on the terminal: the steps of the DAG in its order, each with a line of progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pulsar_fleet.cli.clusters import reach
from pulsar_fleet.cli.interrupts import run_interruptibly, run_step
from pulsar_fleet.cli.runs import require_approval
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cli.text import findings_text
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.replication import steps
from pulsar_fleet.replication.clusters import Clusters, open_clusters
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.apply import AppliedStage
from pulsar_fleet.replication.setup.plan import StoredReplicationPlan
from pulsar_fleet.replication.stored_plan import call_lines, read_findings, read_plan
from pulsar_fleet.report.replication.setup import outcome_line, undo_lines

Result = TypeVar("Result")
_POLL_SECONDS = 5.0


class ReplicationRun:
    """One run of the command; after an interruption a new run does what is left.

    :param yes: approve without a question.
    :param drain_seconds: how long ending links may take to send what they have.
    :param before_plan: checks the clusters; returns lines that are shown with the plan.
    :param after_contents: changes the clusters before anything is replicated; returns the runs that undo it.
    """

    def __init__(
        self,
        terminal: Terminal,
        run: Run,
        request: Request,
        *,
        yes: bool,
        drain_seconds: float = 0.0,
        before_plan: Callable[[Clusters], Awaitable[list[str]]] | None = None,
        after_contents: Callable[[Clusters], Awaitable[tuple[str, ...]]] | None = None,
    ) -> None:
        self.terminal = terminal
        self.run = run
        self.request = request
        self.yes = yes
        self._groups: tuple[list[ClusterConnection], ...] = ()
        self._drain_seconds = drain_seconds
        self._before_plan = before_plan
        self._after_contents = after_contents

    def execute(self, groups: Sequence[Sequence[ClusterConnection]], *, dry_run: bool) -> tuple[JsonObject, ExitState]:
        """Run all steps; returns the result and the exit state.

        :param groups: members, receive-only and leaving clusters.
        """
        members, receive_only, leaving = groups
        self._groups = (
            [run_interruptibly(_reached(side)) for side in members],
            [run_interruptibly(_reached(side)) for side in receive_only],
            [run_interruptibly(_reached(side, may_be_gone=True)) for side in leaving],
        )
        lines = self._step("check", self._before_plan) if self._before_plan else []
        planned = self._step("plan_changes", lambda clusters: steps.plan(clusters, self.request, self.run))
        findings = read_findings(self.run.artefacts, planned)
        stored = read_plan(self.run.artefacts, planned)
        document: JsonObject = {
            "run": self.run.id,
            "planned": planned.to_json(),
            "findings": [finding.to_json() for finding in findings],
        }
        shown = [
            planned.headline,
            *(["\n".join(lines)] if lines else []),
            *([findings_text(findings)] if findings else []),
            *map(plan_text, stored.plans),
        ]
        if dry_run:
            document["calls"] = calls = call_lines(stored)
            shown.append("\n".join(["The calls, in their order:", *(f"  {call}" for call in calls)]))
        (self.terminal.say if self.yes or dry_run else self.terminal.show)("\n\n".join(shown))
        if dry_run or planned.blockers:
            return document, ExitState.REFUSED if planned.blockers else ExitState.DONE
        question = f"Make these {planned.changes} changes?"
        require_approval(self.terminal, self.run, f"plan {planned.id}", question, yes=self.yes, subject="plan")
        return {**document, **self._change(planned)}, ExitState.DONE

    def _change(self, planned: StoredReplicationPlan) -> JsonObject:
        stages: dict[str, AppliedStage] = {}
        stages["apply_contents"] = self._step(
            "apply_contents", lambda clusters: steps.apply_contents(clusters, planned, self.request, self.run)
        )
        if self._after_contents:
            undo = self._step("deny_producing", self._after_contents)
            contents = stages["apply_contents"]
            stages["apply_contents"] = replace(contents, undo=(*undo, *contents.undo))
        stages["start_links"] = self._step(
            "start_links", lambda clusters: steps.start_links(clusters, planned, self.request, self.run)
        )
        links = self._step("confirm_links", lambda clusters: steps.confirm(clusters, planned, self.run))
        if planned.ends:
            self._step("wait_sent", lambda clusters: self._wait_sent(clusters, planned))
            stages["end_links"] = self._step("end_links", lambda clusters: steps.end_links(clusters, planned, self.run))
        lines = [outcome_line(planned, links)]
        lines += [f"  kept: {line}" for stage in stages.values() for line in stage.kept]
        if commands := undo_lines(stages):
            lines += ["To undo it, in this order:", *(f"  {line}" for line in commands)]
        self.terminal.say("\n".join(lines), *commands)
        results = {name: stage.to_json() for name, stage in stages.items()}
        return {**results, "links": links.to_json(), "undo": commands}

    async def _wait_sent(self, clusters: Clusters, planned: StoredReplicationPlan) -> None:
        while waiting := await steps.backlog_of_ending_links(clusters, planned, self.run):
            if steps.waited_seconds(self.run) > self._drain_seconds:
                raise Unavailable(f"{waiting}. Nothing has been ended: see the cause with pulsar-fleet doctor.")
            await asyncio.sleep(_POLL_SECONDS)

    def _step(self, name: str, work: Callable[[Clusters], Awaitable[Result]]) -> Result:
        async def step() -> Result:
            async with open_clusters(*self._groups) as clusters:
                return await work(clusters)

        return run_step(self.terminal, name, lambda _: step())


async def _reached(side: ClusterConnection, *, may_be_gone: bool = False) -> ClusterConnection:
    """The connection with its broker service URL, as far as the cluster answers."""
    try:
        return (await reach(side)).connection
    except Unavailable:
        if may_be_gone:
            return side
        raise
