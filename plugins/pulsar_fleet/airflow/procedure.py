"""The DAG of a procedure: a task for each of its steps."""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowSkipException, Stats, conf
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, chain, dag, get_current_context, task_group

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import (
    DEFAULT_ARGS,
    current_run,
    dag_parsing,
    failed_tasks,
    finish_run,
    requester,
    run_until_limit,
)
from pulsar_fleet.airflow.sensors.step import StepSensor, read_connections
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.procedures.procedure import Batches
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.setting import refuse_unknown_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from airflow.sdk import AssetAlias, Context

    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.procedures.procedure import Application, Procedure, Said, Session, SparkJob, Step
    from pulsar_fleet.settings.setting import Settings

    Announce = Callable[[Run, JsonObject], None]

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def procedure_dag(
    procedure: Procedure,
    *,
    doc_md: str = "",
    tags: Collection[str] = ("pulsar",),
    schedule: Any = None,
    settings: Settings | None = None,
    spark_jobs: Path | None = None,
    emits: Mapping[str, tuple[AssetAlias, Announce]] | None = None,
    **dag_settings: Any,
) -> DAG:
    """The DAG of a procedure; the DAG file assigns it to a name.

    :param doc_md: the page of the DAG; the summary by default.
    :param schedule: Airflow's; by default a person triggers its runs.
    :param settings: those of the procedure with other defaults, for scheduled runs.
    :param spark_jobs: the folder with the applications of its steps' jobs.
    :param emits: step → the alias of its events, and what emits them for the run and the batch when it has ended.
    :param dag_settings: more of Airflow's `@dag`, such as its start date.
    """
    emitted = emits or {}

    @dag(
        dag_id=procedure.name,
        schedule=schedule,
        catchup=False,
        params=form(settings or procedure.settings),
        default_args=DEFAULT_ARGS,
        doc_md=doc_md or procedure.summary,
        tags=tags,
        **run_alerts(procedure.name),
        **dag_settings,
    )
    def build() -> None:
        if procedure.in_one_task:
            _only_task(procedure)
            return
        opened = _opening(procedure)
        checked = _check(procedure) if procedure.checks else opened
        make = partial(_step, procedure, spark_jobs, emitted)
        before = [opened, *_stages(procedure.looks, make), checked] if procedure.checks else [opened]
        if procedure.check:
            before.append(PlanApprovalOperator(task_id=procedure.approves, planned=checked))
        if isinstance(work := procedure.work, Batches):
            work_done = [_mapped(work, make, opened)]
        else:
            work_done = _stages(work, make)
        at_the_end = [make(procedure.always)] if procedure.always else []
        chain(*before, *work_done, *at_the_end, _report(procedure), *_follow(procedure))

    return build()


def _follow(procedure: Procedure) -> list[Any]:
    """The tasks that start the run which follows."""
    if (follows := procedure.follows) is None:
        return []

    @task(task_id=follows.plans, multiple_outputs=True)
    def plan() -> Any:
        """The configuration of the run that follows; skipped if none does."""
        from pulsar_fleet.procedures import runner
        from pulsar_fleet.procedures.procedure import Skipped

        context = get_current_context()
        conf = dict(context["params"])
        following = runner.following(procedure, current_run(context), conf)
        if following is None or isinstance(following, Skipped):
            raise AirflowSkipException(following.reason if following else "No run follows.")
        return {"run_id": following.id.partition("/")[2], "conf": {**conf, **following.settings}}

    planned: Any = plan()
    started = TriggerDagRunOperator(
        task_id=follows.starts,
        trigger_dag_id=procedure.name,
        trigger_run_id=planned["run_id"],
        conf=planned["conf"],
        skip_when_already_exists=True,
    )
    return [planned, started]


def _mapped(batches: Batches, make: Callable[..., Any], opened: Any) -> Any:
    @task_group(group_id=batches.name, prefix_group_id=False)
    def each(batch: Any) -> None:
        chain(*_stages(batches.steps, partial(make, batch=batch)))

    return each.expand(batch=opened)


def _stages(steps: Sequence[Step], make: Callable[[Step], Any]) -> list[Any]:
    """The tasks in their order, those that may run at once as a list."""
    stages: list[list[Any]] = []
    for step in steps:
        stages = [*stages[:-1], [*stages[-1], make(step)]] if step.beside else [*stages, [make(step)]]
    return [stage if len(stage) > 1 else stage[0] for stage in stages]


def _only_task(procedure: Procedure) -> Any:
    (step,) = procedure.each

    async def work(session: Session) -> Said:
        from pulsar_fleet.cluster.errors import PreconditionFailed
        from pulsar_fleet.procedures.procedure import Unmet

        # What it says is in its log: a run each minute stores nothing.
        said = await step.work(session)
        if isinstance(said, Unmet):
            raise PreconditionFailed(said.said)
        return said

    @task(task_id=step.name, doc_md=inspect.getdoc(step.work))
    def only() -> str:
        from pulsar_fleet.procedures import runner
        from pulsar_fleet.report.failure import reason_of

        context = get_current_context()
        _open(procedure, context)
        run = current_run(context)
        try:
            _with_session(procedure, work, step, say=log.info)
        except BaseException as error:
            # The ledger first, since alerts read it. What fails here must not take the place of what was found: a
            # second look would not find it again.
            for record in (
                partial(run.ledger.finish_run, run.id, "failed"),
                partial(runner.end, procedure, run, dict(context["params"]), {step.name: reason_of(error)}),
            ):
                try:
                    record()
                except Exception:
                    log.exception("The failure of %s could not be recorded", step.name)
            raise
        return _close(procedure, context, {})

    return only()


def _open(procedure: Procedure, context: Context) -> None:
    """Refuse settings and connections that are invalid, and record that the run begins; skip one that is idle."""
    from pulsar_fleet.ledger.approval import ApprovalRules
    from pulsar_fleet.procedures import runner

    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    conf = dict(context["params"])
    procedure.validate(conf)
    if reason := procedure.idle(conf):
        raise AirflowSkipException(reason)
    read_connections(procedure, conf)
    run, by = current_run(context), requester(context)
    if procedure.check:
        # What asks for no approval needs no rules of it: a watch must not stop where they are not valid.
        ApprovalRules.of().require_request(conf, by)
    run.ledger.start_run(run.id, procedure.name, conf, by)
    runner.resume(run)


def _opening(procedure: Procedure) -> Any:
    @task(task_id=procedure.opening, doc_md=_OPENS[bool(procedure.check) and not procedure.checks])
    def opening() -> Any:
        from pulsar_fleet.procedures import runner

        _open(procedure, get_current_context())
        if procedure.require:
            _with_session(procedure, procedure.require)
        if isinstance(work := procedure.work, Batches):
            batches = _with_session(procedure, lambda session: runner.read_batches(work, session))
            _require_mappable(len(batches))
            return batches
        return _planned(procedure) if procedure.check and not procedure.checks else None

    return opening()


def _require_mappable(parts: int) -> None:
    """Refuse more parts than Airflow maps tasks over: it would fail the task with no word of its option."""
    limit = conf.getint("core", "max_map_length", fallback=1024)
    if parts > limit:
        raise InvalidRequest(
            f"This run has {parts} parts, and Airflow maps tasks over at most {limit}: nothing was done. Select "
            "fewer namespaces, set a greater 'namespaces_per_job', or raise Airflow's option [core] max_map_length, of "
            "the API server and the workers."
        )


def _pool(procedure: Procedure, kind: Kind) -> dict[str, Any]:
    """The pool of a task, as an argument.

    A run that has something to restore waits for no slot: while it waits nothing renews its lease, and when that has
    ended, `watch_overrides` takes the run for dead.
    """
    name = Capacity.read().pools.get(kind)
    return {"pool": name} if name and not (procedure.always or procedure.urgent) else {}


def _check(procedure: Procedure) -> Any:
    @task(task_id=procedure.checks, doc_md=inspect.getdoc(procedure.check), **_pool(procedure, Kind.STEP))
    def check() -> Any:
        return _planned(procedure)

    return check()


def _planned(procedure: Procedure) -> JsonObject:
    """Check, and log what the run would do."""
    from pulsar_fleet.procedures import runner

    planned, _ = _with_session(procedure, lambda session: runner.check(procedure, session))
    run = current_run(get_current_context())
    if procedure.begun is None:
        for finding in runner.read_findings(run):
            log.warning("%s", finding.text())
    log.info("%s\n%s", planned["headline"], runner.read_changes(run))
    return planned


_OPENS = {
    True: "Check the clusters and say what the run would do; nothing is changed.",
    False: "Refuse settings and connections that are invalid; nothing is changed.",
}


def _step(
    procedure: Procedure,
    spark_jobs: Path | None,
    emits: Mapping[str, tuple[AssetAlias, Announce]],
    step: Step,
    batch: Any = None,
) -> Any:
    def conclude(said: Said, batch: JsonObject) -> str:
        from pulsar_fleet.cluster.errors import PreconditionFailed
        from pulsar_fleet.procedures.procedure import Done, Skipped, Unmet

        if isinstance(said, Skipped):
            raise AirflowSkipException(said.reason)
        if isinstance(said, Unmet):
            raise PreconditionFailed(said.said)
        text = said.said if isinstance(said, Done) else str(said)
        log.info("%s", text)
        if step.name in emits:
            emits[step.name][1](current_run(get_current_context()), batch)
        # An XCom is a row of Airflow's database; the whole text is in the log and in the run's documents.
        return text.partition("\n")[0]

    def work(batch: JsonObject | None, spark: SparkJob | None = None) -> str:
        from pulsar_fleet.procedures import runner

        if step in procedure.each:
            run = current_run(get_current_context())
            runner.require_planned(procedure, run)
            # Cleared in its middle, a run that had ended changes clusters again.
            runner.resume(run)
        of_step = {"spark": spark, "batch": batch or {}, "say": log.info}
        said = _with_session(procedure, lambda session: runner.run_step(step, session), step, **of_step)
        return conclude(said, batch or {})

    kind = Kind.SPARK if step.spark else Kind.STEP
    settings: dict[str, Any] = {
        "task_id": step.name,
        "execution_timeout": Capacity.read().task_limit(kind),
        "outlets": [emits[step.name][0]] if step.name in emits else [],
        "doc_md": inspect.getdoc(step.work) or "Do what is left of this step.",
        # Of a batch a step may have nothing to do: the next ones have.
        "trigger_rule": "all_done" if step is procedure.always else "all_success" if batch is None else "none_failed",
    }
    if step.wait:
        # It is not in a pool: a look is a few calls.
        return StepSensor(procedure=procedure, step=step, conclude=conclude, batch=batch, **settings)
    settings |= _pool(procedure, kind)
    if step.spark is None:
        return task(**settings)(work)(batch)
    assert spark_jobs is not None, f"the DAG file of {procedure.name} names the folder of its Spark jobs"
    return _spark_step(step.spark, spark_jobs, work=work, batch=batch, **settings)


def _spark_step(job: Application, spark_jobs: Path, *, batch: Any, **settings: Any) -> Any:
    from pulsar_fleet.airflow.operators.spark import SparkStepOperator

    file = spark_jobs / job.file
    name = file.stem.replace("_", "-")
    if batch is not None:
        settings["max_active_tis_per_dagrun"] = Capacity.read().jobs_per_run
    return SparkStepOperator(batch=batch, clusters=job.clusters, application=str(file), name=name, **settings)


def _report(procedure: Procedure) -> Any:
    @task(task_id=procedure.closes, trigger_rule="all_done")
    def write_report() -> str:
        """Report what was done; fail if a task failed."""
        context = get_current_context()
        failed = failed_tasks(context)
        if (reason := procedure.idle(dict(context["params"]))) and not failed:
            raise AirflowSkipException(reason)
        return _close(procedure, context, failed)

    return write_report()


def _close(procedure: Procedure, context: Context, failed: Mapping[str, str]) -> str:
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.procedures import runner

    run = current_run(context)
    ending = runner.end(procedure, run, dict(context["params"]), failed)
    for name, value in ending.metrics.items():
        Stats.gauge(f"pulsar_fleet.{procedure.metrics or procedure.recorded_as or procedure.name}.{name}", value)
    if ending.problem and not failed:
        run.ledger.finish_run(run.id, "failed")
        raise PreconditionFailed(ending.problem)
    finish_run(context, failed)
    # The whole report is stored with the run: an XCom is a row of Airflow's database.
    return ending.report.headline


def _with_session(
    procedure: Procedure, work: Callable[[Session], Awaitable[Result]], step: Step | None = None, **of_step: Any
) -> Result:
    from pulsar_fleet.procedures.runner import open_session

    context = get_current_context()
    conf = dict(context["params"])

    async def run() -> Result:
        connections = read_connections(procedure, conf, of_step.get("batch"), step)
        capacity = {"jobs_at_once": Capacity.read().jobs_per_run}
        of_run = {"dag_parsing": dag_parsing, "goes_on": partial(_goes_on, context), **capacity, **of_step}
        opened = open_session(conf, current_run(context), connections, **of_run)
        async with opened as session:
            return await work(session)

    return run_until_limit(context["task"], run())


def _goes_on(context: Context, run_id: str) -> bool:
    """Whether Airflow executes a run or will, also one that had failed and was cleared; a deleted one does not."""
    dag_id, _, name = run_id.partition("/")
    going_on = ["queued", "running"]
    return dag_id != "cli" and bool(context["ti"].get_dr_count(dag_id=dag_id, run_ids=[name], states=going_on))
