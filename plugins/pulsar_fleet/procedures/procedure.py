"""What a procedure is: its clusters and settings, what it checks, its steps in their order, its ending (pure)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pulsar_fleet.settings.setting import Setting, Settings, setting
from pulsar_fleet.settings.shared import approval, connection

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.document import Document
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.preflight.view import DagParsing
    from pulsar_fleet.preflight.findings import Finding
    from pulsar_fleet.report.document import Report

SparkJob = Callable[[str, str], None]
"""Runs the Spark job of a step for the URIs of its request and its result, and returns when it has ended."""

CHECK, APPROVE, REPORT = "check", "approve_plan", "write_report"


@dataclass(frozen=True, slots=True)
class Session:
    """What a check or a step works with.

    :param conf: every setting of the run.
    :param clusters: an open client for each setting that names one cluster.
    :param connections: setting → the clusters that it names.
    :param spark: None where the step has no job, and on the terminal.
    :param batch: the one of its steps, where the procedure has `Batches`.
    :param say: shows a line of progress.
    :param stopping: whether a person has asked to stop; a step with `finish` asks it between two of its parts.
    :param kept: what the looks of a wait keep, in one process.
    :param goes_on: whether Airflow executes a run, or will; None on the terminal, which cannot know.
    :param jobs_at_once: how many batches of the run may work at once.
    :param dag_parsing: reads Airflow's settings for the parsing of DAG files; None on the terminal.
    """

    conf: JsonObject
    run: Run
    clusters: Mapping[str, AdminClient]
    connections: Mapping[str, tuple[ClusterConnection, ...]] = field(default_factory=dict)
    spark: SparkJob | None = None
    batch: JsonObject = field(default_factory=dict)
    say: Callable[[str], None] = field(default=lambda line: None)  # noqa: ARG005
    stopping: Callable[[], bool] = field(default=lambda: False)
    kept: dict[str, Any] = field(default_factory=dict)
    dag_parsing: Callable[[], DagParsing] | None = None
    goes_on: Callable[[str], bool] | None = None
    jobs_at_once: int = 1

    def stored_at(self, name: str) -> str:
        """The name of a document of a step among those of the run: of a batch in its folder."""
        return f"{self.batch['folder']}/{name}" if self.batch else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a run would do, and what forbids it.

    :param headline: one sentence.
    :param changes: a line each; without one nobody is asked.
    :param findings: a blocker among them stops the run.
    :param plan: what the steps do; they read it by `runner.read_planned`.
    :param text: for the person who approves, as Markdown; by default the changes as a list.
    :param plain: the changes for a terminal; by default the text.
    :param question: on the terminal; by default how many changes are made.
    :param refusal: why the run stops although no finding forbids it; a dry run shows the plan.
    :param warnings: of the text, besides those among the findings.
    :param about: what is approved, in the records and if it is rejected; by default the plan.
    """

    headline: str
    changes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    plan: Document | None = None
    text: str = ""
    plain: str = ""
    question: str = ""
    refusal: str = ""
    warnings: int = 0
    about: str = ""

    def markdown(self) -> str:
        """For the person who approves."""
        return self.text or "\n".join(f"* {line}" for line in self.changes)


@dataclass(frozen=True, slots=True)
class Done:
    """What a step returns that has a result for the steps behind it and for the report: `runner.result_of`."""

    said: str
    result: Document


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a step returns that has nothing to do in this run.

    :param reason: one sentence.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Unmet:
    """What a step returns whose result is not the one that the run is for: it is done, and Airflow's task fails."""

    said: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """What a step returns that waits: it is called again later, in Airflow without a worker slot until then.

    :param said: what is missing, as one line.
    :param seconds: until then; None: as its `Wait` says.
    """

    said: str
    seconds: float | None = None


Said = str | Done | Skipped | Unmet | NotYet
"""What a step returns."""


@dataclass(frozen=True, slots=True)
class Wait:
    """For how long a step may wait, over all attempts unless `again`; then it fails, and a run again looks once more.

    A cluster that does not answer is asked again until then.

    :param minutes: the setting that says it; empty where it has no end.
    :param missed: what did not come, for the error: `After 60 min {missed}: …`.
    :param advice: what to do when it has failed, with the commands of this run.
    :param poll_seconds: between two looks, at least 5.
    :param look: what Airflow calls without a worker until it does not return `NotYet`, a function of a module: the step
        itself, or what only reads, with a few calls of the admin API. It may also do the step's work, if two at once do
        no harm. None: only a worker looks.
    :param again: an attempt that follows waits as long again.
    """

    minutes: str
    advice: Callable[[Run], str] = field(default=lambda run: "")  # noqa: ARG005
    poll_seconds: float = 15.0
    look: Callable[[Session], Awaitable[Said]] | None = None
    again: bool = False
    missed: str = ""


@dataclass(frozen=True, slots=True)
class Application:
    """A Spark job.

    :param file: in `spark_jobs/`.
    :param clusters: the two clusters that it reads, by settings or keys of the batch: their credentials are in its
        environment.
    """

    file: str
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Permission:
    """Changes that a person allows by their id, as the setting `allow_changes` does.

    :param text: what is changed, a line each.
    """

    id: str
    text: str
    question: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a person on a terminal decides before a step; in Airflow the configuration of the run decides it.

    :param permissions: asked one by one after a yes to `text`.
    """

    text: str
    permissions: tuple[Permission, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A step after the approval.

    :param name: of the task and of the line on the terminal.
    :param work: returns what it did, as text. A second call must do what is left. Its docstring is the task's.
    :param reads: it changes nothing.
    :param shows: the terminal shows its text when it ends, and again when a later attempt goes on behind it.
    :param spark: the job that it may submit.
    :param beside: it does not need the step before it: Airflow runs both at once.
    :param asks: None where there is nothing to decide.
    :param wait: of a step that may return `NotYet`.
    :param reached: whether a command leaves it out; by default where it has ended in an earlier attempt.
    :param finish: what Ctrl-C finishes first; by default the step is stopped at once.
    :param clusters: settings of the procedure whose connections this step alone reads: one that is gone holds up no
        other step.
    """

    name: str
    work: Callable[[Session], Awaitable[Said]]
    reads: bool = False
    shows: bool = False
    spark: Application | None = None
    beside: bool = False
    asks: Callable[[Session], Question | None] | None = None
    wait: Wait | None = None
    reached: Callable[[Run], bool] | None = None
    finish: str = ""
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextRun:
    """The run that follows.

    :param settings: those that differ from the settings of the run that has ended.
    :param by_hand: how a person starts it.
    """

    id: str
    settings: JsonObject
    by_hand: str = ""


@dataclass(frozen=True, slots=True)
class Following:
    """What starts another run of the procedure after one that has succeeded.

    :param plans: name of the task that calls `next_run`, behind the report; `starts` triggers that run.
    :param next_run: the run that follows, why none does although one could, or None.
    """

    plans: str
    starts: str
    next_run: Callable[[Run, JsonObject], NextRun | Skipped | None]


@dataclass(frozen=True, slots=True)
class Batches:
    """Steps for each part of what a run is about: mapped tasks in Airflow, one part after the other on the terminal.

    :param name: of the group of tasks.
    :param of: the parts, in the first task; each with the `folder` of its documents in the run.
    :param clusters: the keys of a part that name connections of its own, for `Session.clusters`.
    """

    name: str
    of: Callable[[Session], Awaitable[list[JsonObject]]]
    steps: tuple[Step, ...]
    clusters: tuple[str, ...] = ()


class Ended(StrEnum):
    """How a run ended whose steps did: the names are those of the exit states."""

    DONE = "done"
    DIFFERENT = "different"
    PARTLY = "partly"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a run that has ended says.

    :param text: for the terminal, after what steps have shown.
    :param document: the result for programs.
    :param stored: whether the report is worth a page.
    :param has_page: the procedure has stored the page itself.
    :param problem: why the run counts as failed although no step failed.
    :param commands: those that may follow.
    :param undo: the commands that take back what the run has changed, in their order; shown where a step failed.
    :param instead: what to do where --resume would be refused.
    :param metrics: for a monitoring system, by name.
    """

    report: Report
    text: str
    document: JsonObject
    ended: Ended = Ended.DONE
    stored: bool = True
    has_page: bool = False
    problem: str = ""
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    instead: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """Check, approval, steps, report.

    :param name: the id of the DAG, such as `unload_namespaces`.
    :param summary: one sentence, for the help of the command and the page of the DAG.
    :param clusters: setting that names a cluster's connection, or a list of them in `own_settings` → what it is.
    :param clusters_of: the connections that a run takes from the records, of settings that are empty.
    :param own_settings: its other settings; those of the approval and of a dry run are added where it has a check.
    :param validate: refuses settings by `InvalidRequest` before any call.
    :param work: its steps, or one `Batches` of them.
    :param require: refuses by calls what `validate` cannot know, in the first task.
    :param looks: steps before the check, which change nothing and are done again with it.
    :param check: reads the clusters and changes nothing. Without one the steps follow the settings at once.
    :param command: on the terminal; by default the name with hyphens.
    :param recorded_as: the procedure of a command's run in the ledger, where it is not `name`.
    :param records: the ledger has everything that its steps write: one that refuses before has changed nothing.
    :param undo: the commands that take back what a run has changed, where the last change first is not their order.
    :param metrics: the first part of the names of its metrics, where it is not that of the run in the ledger.
    :param may_be_absent: settings whose cluster need not answer: its steps decide what that means.
    :param exchanged: whether the first cluster of a run with these settings has the credentials of the target on the
        terminal, because the run takes another one back.
    :param same_credentials: on the terminal every cluster that is named by its URL has those of the source.
    :param idle: why a run with these settings has nothing to do, so that it is skipped and not recorded; else empty.
    :param opening: id of the first task, which validates, and checks unless `checks` names another one.
    :param checks: id of the task that checks, behind the first one.
    :param approves: id of the task that waits for approval.
    :param urgent: in Airflow it waits for no slot of a pool: it restores what holds up applications, or serves them.
    :param begun: whether a run goes on behind its check, by what it has done; by default where its plan was approved.
        Neither its steps nor its report read a plan that the runner has stored; its check stores the findings.
    :param always: a step at the end, also after a failure or Ctrl-C, which it finishes first.
    :param follows: None where no run follows another.
    :param lists_runs: the JSON document of the command is a list `runs`.
    :param closes: id of the last task, which reports.
    :param in_one_task: a run is one task, that of its only step, which opens and reports too: of what runs each minute.
    :param changes: whether a run with these settings may change something; None: no run does.
    :param end: what a run with these settings says at its end; failed steps, each with its reason, are the third
        argument. By default a report of what the steps said.
    """

    name: str
    summary: str
    clusters: Mapping[str, str]
    own_settings: Settings
    clusters_of: Callable[[JsonObject], JsonObject] = field(default=lambda conf: {})  # noqa: ARG005
    work: tuple[Step, ...] | Batches
    require: Callable[[Session], Awaitable[None]] | None = None
    looks: tuple[Step, ...] = ()
    check: Callable[[Session], Awaitable[Checked]] | None = None
    command: str = ""
    recorded_as: str = ""
    records: bool = False
    undo: Callable[[Run, JsonObject], tuple[str, ...]] | None = None
    metrics: str = ""
    may_be_absent: frozenset[str] = frozenset()
    exchanged: Callable[[JsonObject], bool] = field(default=lambda conf: False)  # noqa: ARG005
    same_credentials: bool = False
    opening: str = CHECK
    checks: str = ""
    approves: str = APPROVE
    urgent: bool = False
    begun: Callable[[Run], bool] | None = None
    always: Step | None = None
    follows: Following | None = None
    lists_runs: bool = False
    closes: str = REPORT
    in_one_task: bool = False
    idle: Callable[[JsonObject], str] = field(default=lambda conf: "")  # noqa: ARG005
    validate: Callable[[JsonObject], None] = field(default=lambda conf: None)  # noqa: ARG005
    changes: Callable[[JsonObject], bool] | None = field(default=lambda conf: not conf.get("dry_run"))
    end: Callable[[Run, JsonObject, Mapping[str, str]], Ending] | None = None

    def __post_init__(self) -> None:
        """Refuse what Airflow and the terminal could not run alike."""
        if isinstance(self.work, Batches) and (self.check or self.end is None):
            raise ValueError(f"{self.name}: a procedure with batches has an ending of its own, and no check.")
        if self.looks and not (self.check and self.checks):
            raise ValueError(f"{self.name}: steps before the check need a check in a task of its own.")
        if self.in_one_task and not self._fits_one_task:
            raise ValueError(f"{self.name}: only one step without a check, a wait or a job is in one task.")
        if self.always and not self.always.finish:
            raise ValueError(f"{self.name}: {self.always.name} says what Ctrl-C finishes first.")
        stages = "".join("b" if step.beside else "s" for step in self.each)
        if "bsb" in stages:
            raise ValueError(f"{self.name}: between steps that run beside others one must run alone.")

    @property
    def _fits_one_task(self) -> bool:
        others = (self.check, self.require, self.looks, self.always, self.follows)
        (step, *more) = self.each
        return not (any(others) or more or step.wait or step.spark or isinstance(self.work, Batches))

    @property
    def settings(self) -> dict[str, Setting]:
        """Every setting, for the form, the command and the table in `docs/`."""
        named = {
            name: connection(f"pulsar_{name}", name.replace("_", " ").capitalize(), text)
            for name, text in self.clusters.items()
            if name not in self.own_settings
        }
        if self.check is None:
            return {**named, **self.own_settings}
        dry_run = setting(False, type="boolean", title="Dry run", description="Stop after the check; change nothing.")
        return {**named, **self.own_settings, **approval("the plan"), "dry_run": dry_run} | dict(self.own_settings)

    @property
    def each(self) -> tuple[Step, ...]:
        """Its steps, of every batch."""
        return self.work.steps if isinstance(self.work, Batches) else self.work

    @property
    def word(self) -> str:
        """Its command on the terminal."""
        return self.command or self.name.replace("_", "-")

    def may_change(self, conf: JsonObject) -> bool:
        """Whether a run with these settings may change something."""
        return self.changes is not None and self.changes(conf)

    def steps(self) -> tuple[str, ...]:
        """The ids of the tasks, in their order."""
        if self.in_one_task:
            return tuple(step.name for step in self.each)
        checked = (*filter(None, [self.checks]), self.approves) if self.check else ()
        return (
            self.opening,
            *(step.name for step in self.looks),
            *checked,
            *(step.name for step in self.each),
            *([self.always.name] if self.always else ()),
            self.closes,
            *([self.follows.plans, self.follows.starts] if self.follows else ()),
        )

    def connections(
        self, conf: JsonObject, batch: JsonObject | None = None, step: Step | None = None
    ) -> dict[str, list[str]]:
        """Setting → the names of connections that it has in a run, and those of a batch and of a step alone."""
        conf = {**conf, **self.clusters_of(conf)}
        of_others = {name for other in self.each if other is not step for name in other.clusters}
        shown = [name for name in self.clusters if name not in of_others]
        # A run of an earlier release has no setting that came since.
        values = {name: conf.get(name) for name in shown}
        named = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
        return {name: [*filter(None, names)] for name, names in named.items()} | self.batch_connections(batch)

    def batch_connections(self, batch: JsonObject | None) -> dict[str, list[str]]:
        """Key → the name of the connection that a batch has of its own."""
        keys = self.work.clusters if isinstance(self.work, Batches) and batch else ()
        return {key: [(batch or {})[key]] for key in keys}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The settings that a command takes by their place: without them there is no run."""
        clusters = (name for name in self.clusters if self.settings[name].is_example)
        return (*clusters, *(name for name, setting in self.settings.items() if setting.is_argument))
