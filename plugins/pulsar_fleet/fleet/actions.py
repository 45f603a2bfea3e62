"""What a person must do now, the most urgent first, and where each step of it is done (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.fleet.prepared_run import Errand, dag_of
from pulsar_fleet.fleet.records import FleetState, Returns
from pulsar_fleet.ledger.cluster_notes import Notes
from pulsar_fleet.ledger.rows import PROVEN, RecordedRun, utc

_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A question of a run that waits for an answer.

    :param link: the page of Airflow with the question and its answers.
    :param run_id: the run that asks.
    :param allowed: whether the visitor may answer.
    """

    subject: str
    link: str
    waiting: timedelta
    run_id: str = ""
    allowed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A link of an action, to one of: a page, the report of a run, a prepared run.

    :param report_of: a run; the step is shown if it has stored a report.
    :param prepares: the errand that the prepared run does, and what it is about.
    """

    label: str
    link: str = ""
    report_of: str = ""
    prepares: tuple[Errand, str] | None = None
    allowed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLink:
    """A step as the page shows it: a link, or only its name to those who may not do it."""

    label: str
    link: str
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do."""

    text: str
    steps: tuple[Step, ...] = ()


def _nobody(dag_id: str) -> bool:  # noqa: ARG001 the signature of `may_start`
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """What Airflow says of the person who looks at the page.

    :param approvals: the questions that the person may see.
    :param may_start: whether the person may start runs of a DAG that there is.
    """

    approvals: Sequence[Approval] = ()
    may_start: Callable[[str], bool] = _nobody


NOBODY = Visitor()
"""Sees no question and may start nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the ledger, the artefact store and Airflow say now.

    :param refused: failed runs that ended with blockers of which each can be waived.
    :param reports: runs that stored a report.
    :param notes: the newest figures of each cluster.
    :param groups: where the clients of each group are led.
    :param returns: of those that can return, whether what they write comes back.
    """

    state: FleetState
    notes: Notes = field(default_factory=dict)
    groups: Sequence[Followed] = ()
    returns: Returns = field(default_factory=dict)
    visitor: Visitor = NOBODY
    refused: Collection[str] = ()
    reports: Collection[str] = ()


def actions_of(now: Situation, links: Links) -> tuple[Action, ...]:
    """Approvals, proofs that found differences, failed runs, outages, conflicts."""
    return (
        *(approval_action(approval) for approval in now.visitor.approvals),
        *_differences(now.state),
        *_failures(now, links),
        *_outages(now.state),
        *_conflicts(now.state),
    )


def shown_steps(steps: Sequence[Step], links: Links, visitor: Visitor, reports: Collection[str] = ()) -> list[StepLink]:
    """The steps with their links; one that the visitor may not do has none."""
    shown = []
    for step in steps:
        if step.report_of:
            if step.report_of in reports:
                shown.append(StepLink(label=step.label, link=links.report(step.report_of)))
        elif step.prepares:
            errand, subject = step.prepares
            allowed = visitor.may_start(dag_of(errand, subject))
            shown.append(StepLink(label=step.label, link=links.prepared(errand, subject) if allowed else ""))
        else:
            leaves = step.link.startswith("/")
            shown.append(StepLink(label=step.label, link=step.link if step.allowed else "", leaves=leaves))
    return shown


def approval_action(approval: Approval) -> Action:
    """The question and where it is answered."""
    waiting = duration(approval.waiting.total_seconds())
    step = Step(label="Review and answer", link=approval.link, allowed=approval.allowed)
    return Action(text=f"{approval.subject} (waiting {waiting})", steps=(step,))


def failure_steps(run: RecordedRun, links: Links, refused: Collection[str]) -> tuple[Step, ...]:
    """What a person does about a failed run: read why, waive its blockers, look at its tasks."""
    steps = [Step(label="Report", report_of=run.run_id)]
    if run.run_id in refused:
        steps.append(Step(label="Waive its blockers and start again", prepares=(Errand.WAIVE, run.run_id)))
    if page := links.run(run.run_id):
        steps.append(Step(label="Its tasks", link=page))
    return tuple(steps)


def _differences(state: FleetState) -> Iterator[Action]:
    different = [row for row in state.namespaces if row.verdict and row.verdict not in PROVEN]
    for row in different[:_LISTED]:
        text = f"The last verification of {row.namespace} ended with {row.verdict}"
        yield Action(text=text, steps=(Step(label="Report", report_of=row.verdict_run),))
    if len(different) > _LISTED:
        yield Action(text=f"{counted(len(different) - _LISTED, 'namespace')} more are not proven equal")


def _failures(now: Situation, links: Links) -> Iterator[Action]:
    for procedure, run in sorted(now.state.last_runs.items()):
        if run.state == "failed":
            ago = duration((now.state.read_at - utc(run.started_at)).total_seconds())
            steps = failure_steps(run, links, now.refused)
            yield Action(text=f"The last run of {procedure} failed, {ago} ago", steps=steps)


def _outages(state: FleetState) -> Iterator[Action]:
    for cluster in state.clusters:
        if cluster.outage_since:
            since = duration((state.read_at - cluster.outage_since).total_seconds())
            yield Action(text=f"{cluster.name} is unreachable since {since}: look at its brokers")


def _conflicts(state: FleetState) -> Iterator[Action]:
    if state.open_conflicts:
        text = f"{counted(state.open_conflicts, 'conflict')} on record: another cluster's value may be the right one"
        yield Action(text=text, steps=(Step(label="Look", link="#conflicts"),))


def reports_of(actions: Sequence[Action]) -> Mapping[str, None]:
    """The runs whose reports the actions would link."""
    return dict.fromkeys(step.report_of for action in actions for step in action.steps if step.report_of)
