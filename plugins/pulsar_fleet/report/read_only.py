"""The report of a run that serves topics read-only, (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Planned
from pulsar_fleet.read_only.links import ConfirmedServing
from pulsar_fleet.read_only.plan import ReadOnlyPlan
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.planned_run import kept_lines, planned_report, step_table


def read_only_report(
    planned: Planned[ReadOnlyPlan],
    steps: Mapping[str, StepResult],
    confirmed: ConfirmedServing | None,
    approval: JsonObject | None,
    failed: Mapping[str, str],
    *,
    changed: bool,
) -> Report:
    """The numbers of each step and what stays, then findings and the plan.

    :param steps: by name, in their order.
    :param changed: whether the run, or an earlier attempt, may have changed something.
    """
    parts = [*step_table(steps, confirmed), *_sent_table(confirmed), *kept_lines(steps, "**Kept:**")]
    outcome = outcome_line(planned, steps, confirmed, changed=changed)
    return planned_report(outcome, parts, planned, approval=approval, failed=failed)


def outcome_line(
    planned: Planned[ReadOnlyPlan],
    steps: Mapping[str, StepResult],
    confirmed: ConfirmedServing | None,
    *,
    changed: bool,
) -> str:
    """`2 topics are served read-only: 4 links are alive, and a reader got a message from 4 of them.`"""
    if removed := steps.get("remove_topics"):
        sources = "its source" if removed.changes == 1 else "their sources"
        return f"{counted(removed.changes, 'shadow topic')} taken away; the ledgers of {sources} stay."
    if confirmed is None:
        return planned.headline if changed else f"Nothing has been changed. {planned.headline}"
    served = f"{counted(confirmed.topics, 'topic')} {'is' if confirmed.topics == 1 else 'are'} served read-only"
    links = f"{counted(confirmed.links, 'link')} {'is' if confirmed.links == 1 else 'are'} alive"
    return f"{served}: {links}, and a reader got a message from {confirmed.read} of them."


def _sent_table(confirmed: ConfirmedServing | None) -> Iterator[str]:
    """What each broker has sent; nothing if no topic is served."""
    if confirmed and confirmed.sent:
        rows = [f"| {broker} | {source:,} | {shadow:,} |" for broker, (source, shadow) in confirmed.sent.items()]
        heading = ["| broker | bytes sent from sources | bytes sent from shadow topics |", "| --- | --- | --- |"]
        yield "\n".join(["**Since the topics were loaded:**", "", *heading, *rows])
