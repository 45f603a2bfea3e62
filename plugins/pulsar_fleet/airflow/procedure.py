"""The DAG of a procedure: a task for each of its steps."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import DAG, chain, dag, get_current_context

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import DEFAULT_ARGS, current_run, failed_tasks, finish_run
from pulsar_fleet.procedures.procedure import APPROVE, CHECK, REPORT
from pulsar_fleet.settings.setting import refuse_unknown_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.procedures.procedure import Procedure, Session

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def procedure_dag(procedure: Procedure, *, doc_md: str = "", tags: Collection[str] = ("pulsar",)) -> DAG:
    """The DAG of a procedure, for runs that a person triggers; the DAG file assigns it to a name.

    :param doc_md: the page of the DAG; the summary by default.
    """

    @dag(
        dag_id=procedure.name,
        schedule=None,
        catchup=False,
        params=form(procedure.settings),
        default_args=DEFAULT_ARGS,
        doc_md=doc_md or procedure.summary,
        tags=tags,
        **run_alerts(procedure.name),
    )
    def build() -> None:
        planned = _check(procedure)
        approved = PlanApprovalOperator(task_id=APPROVE, planned=planned)
        chain(approved, *(_step(procedure, step.name) for step in procedure.work), _report(procedure))

    return build()


def _check(procedure: Procedure) -> Any:
    @task(task_id=CHECK)
    def check() -> JsonObject:
        """Check the clusters and say what the run would do; nothing is changed."""
        from pulsar_fleet.procedures import runner

        context = get_current_context()
        refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
        procedure.validate(dict(context["params"]))
        run = current_run(context)
        run.ledger.start_run(run.id, procedure.name, dict(context["params"]))
        planned = _with_session(procedure, lambda session: runner.check(procedure, session))
        for finding in runner.read_findings(run):
            log.warning("%s", finding.text())
        log.info("%s\n%s", planned["headline"], runner.read_changes(run))
        return planned

    return check()


def _step(procedure: Procedure, name: str) -> Any:
    @task(task_id=name)
    def step() -> str:
        """Do what is left of this step."""
        from pulsar_fleet.procedures import runner

        return _with_session(procedure, lambda session: runner.run_step(procedure, name, session))

    return step()


def _report(procedure: Procedure) -> Any:
    @task(task_id=REPORT, trigger_rule="all_done")
    def write_report() -> str:
        """Report what was done; fail if a task failed."""
        from pulsar_fleet.procedures import runner

        context = get_current_context()
        failed = failed_tasks(context)
        report = runner.write_report(procedure, current_run(context), failed)
        finish_run(context, failed)
        return report.markdown()

    return write_report()


def _with_session(procedure: Procedure, work: Callable[[Session], Awaitable[Result]]) -> Result:
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.procedures.runner import open_session

    context = get_current_context()
    conf = dict(context["params"])
    connections = {name: cluster_connection(conf[name]) for name in procedure.clusters}

    async def run() -> Result:
        async with open_session(conf, current_run(context), connections) as session:
            return await work(session)

    return asyncio.run(run())
