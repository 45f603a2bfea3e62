"""What a person must do now, the most urgent first (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.fleet.records import FleetState
from pulsar_fleet.ledger.rows import PROVEN, utc

_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A question of a run that waits for an answer.

    :param link: the page of Airflow with the question and its answers.
    """

    subject: str
    link: str
    waiting: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do.

    :param run_id: the run that it is about, for links to its report; empty if there is none.
    """

    text: str
    label: str
    link: str = ""
    run_id: str = ""


def actions_of(state: FleetState, approvals: Sequence[Approval]) -> tuple[Action, ...]:
    """Approvals, proofs that found differences, failed runs, outages, conflicts."""
    return (
        *(_approve(approval) for approval in approvals),
        *_differences(state),
        *_failures(state),
        *_outages(state),
        *_conflicts(state),
    )


def _approve(approval: Approval) -> Action:
    waiting = duration(approval.waiting.total_seconds())
    return Action(text=f"{approval.subject} (waiting {waiting})", label="Review and answer", link=approval.link)


def _differences(state: FleetState) -> Iterator[Action]:
    different = [row for row in state.namespaces if row.verdict and row.verdict not in PROVEN]
    for row in different[:_LISTED]:
        text = f"The last verification of {row.namespace} ended with {row.verdict}"
        yield Action(text=text, label="Report", run_id=row.verdict_run)
    if len(different) > _LISTED:
        yield Action(text=f"{counted(len(different) - _LISTED, 'namespace')} more are not proven equal", label="")


def _failures(state: FleetState) -> Iterator[Action]:
    for procedure, run in sorted(state.last_runs.items()):
        if run.state == "failed":
            ago = duration((state.read_at - utc(run.started_at)).total_seconds())
            yield Action(text=f"The last run of {procedure} failed, {ago} ago", label="Report", run_id=run.run_id)


def _outages(state: FleetState) -> Iterator[Action]:
    for cluster in state.clusters:
        if cluster.outage_since:
            since = duration((state.read_at - cluster.outage_since).total_seconds())
            yield Action(text=f"{cluster.name} is unreachable since {since}: look at its brokers", label="")


def _conflicts(state: FleetState) -> Iterator[Action]:
    if state.open_conflicts:
        text = f"{counted(state.open_conflicts, 'conflict')} on record: another cluster's value may be the right one"
        yield Action(text=text, label="Look", link="#conflicts")
