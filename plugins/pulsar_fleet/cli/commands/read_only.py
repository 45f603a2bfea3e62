"""`pulsar-fleet serve-read-only`: the procedure of the DAG with the same steps, settings and records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pulsar_fleet.cli.clusters import named_cluster, reach
from pulsar_fleet.cli.interrupts import run_interruptibly, run_step
from pulsar_fleet.cli.options import CLUSTER_HELP, Yes
from pulsar_fleet.cli.read_only_copy import serve_copy
from pulsar_fleet.cli.runs import recorded_run, require_approval
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import ExitState, Terminal, require_consent, usage_errors
from pulsar_fleet.cli.text import findings_text
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.read_only import steps
from pulsar_fleet.read_only.other_cluster import CopyRequest
from pulsar_fleet.read_only.plan import StoredReadOnlyPlan
from pulsar_fleet.read_only.recorded_calls import PROCEDURE
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.report.read_only import outcome_line
from pulsar_fleet.settings.read_only import SERVE_READ_ONLY

Result = TypeVar("Result")


@with_settings(SERVE_READ_ONLY, arguments={"cluster": CLUSTER_HELP})
def serve_read_only(terminal: Terminal, conf: JsonObject, yes: Yes = False) -> None:
    """Serve topics read-only by shadow topics, beside their owner. After Ctrl-C repeat the command."""
    dry_run = conf["dry_run"]
    if not dry_run:
        require_consent("cluster", yes=yes)
    with usage_errors():
        request = CopyRequest.of(conf) if conf["other_cluster"] else Request.of(conf)
    if isinstance(request, CopyRequest):
        document, state = serve_copy(terminal, request, conf, yes=yes, dry_run=dry_run)
    else:
        connection = run_interruptibly(reach(named_cluster(conf["cluster"], Side.SOURCE))).connection
        with recorded_run(terminal, "serve-read-only", PROCEDURE, conf) as run:
            session = _Session(terminal, run, connection, yes=yes)
            document, state = session.execute(request, dry_run=dry_run)
    terminal.finish(document, state)


class _Session:
    """One run of the command; after an interruption a new run does what is left."""

    def __init__(self, terminal: Terminal, run: Run, connection: ClusterConnection, *, yes: bool) -> None:
        self._terminal = terminal
        self._run = run
        self._connection = connection
        self._yes = yes

    def execute(self, request: Request, *, dry_run: bool) -> tuple[JsonObject, ExitState]:
        """Run all steps; the result and the exit state."""
        run = self._run
        planned = self._step("plan_changes", lambda admin: steps.plan(admin, request, run))
        findings = steps.read_findings(run.artefacts, planned)
        stored = steps.read_plan(run.artefacts, planned)
        calls = steps.call_lines(stored)
        document: JsonObject = {
            "run": run.id,
            "planned": planned.to_json(),
            "findings": [finding.to_json() for finding in findings],
            "calls": calls,
        }
        shown = [planned.headline, *([findings_text(findings)] if findings else [])]
        shown += ["\n".join(stored.cost)] if stored.cost else []
        shown += ["\n".join(["The calls, in their order:", *(f"  {call}" for call in calls)])] if calls else []
        (self._terminal.say if self._yes or dry_run else self._terminal.show)("\n\n".join(shown))
        if dry_run or planned.blockers:
            return document, ExitState.REFUSED if planned.blockers else ExitState.DONE
        question = f"Make these {planned.changes} changes?" if planned.changes else None
        require_approval(self._terminal, self._run, f"plan {planned.id}", question, yes=self._yes, subject="plan")
        return {**document, **self._change(planned)}, ExitState.DONE

    def _change(self, planned: StoredReadOnlyPlan) -> JsonObject:
        run = self._run
        results = {
            "create_topics": self._step("create_topics", lambda admin: steps.create_topics(admin, planned, run)),
            "confirm_brokers": self._step("confirm_brokers", lambda admin: steps.confirm_brokers(admin, planned, run)),
            "link_topics": self._step("link_topics", lambda admin: steps.link_topics(admin, planned, run)),
        }
        confirmed = self._step("confirm_links", lambda admin: steps.confirm(admin, planned, run))
        if planned.remove:
            results["remove_topics"] = self._step(
                "remove_topics", lambda admin: steps.remove_topics(admin, planned, run)
            )
        kept = [f"  kept: {line}" for result in results.values() for line in result.kept]
        self._terminal.say("\n".join([outcome_line(planned, results, confirmed), *kept]))
        return {**{name: result.to_json() for name, result in results.items()}, "confirmed": confirmed.to_json()}

    def _step(self, name: str, work: Callable[[AdminClient], Awaitable[Result]]) -> Result:
        async def step() -> Result:
            async with AdminClient(self._connection) as admin:
                return await work(admin)

        return run_step(self._terminal, name, lambda _: step())
