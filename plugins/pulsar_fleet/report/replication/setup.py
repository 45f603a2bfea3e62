"""The report of a run that set up replication, (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Planned
from pulsar_fleet.replication.setup.links import ConfirmedLinks
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.planned_run import kept_lines, planned_report, step_table, undo_text


def replication_report(
    planned: Planned[ReplicationPlan],
    stages: Mapping[str, StepResult],
    links: ConfirmedLinks | None,
    undo: Sequence[str],
    approval: JsonObject | None,
    failed: Mapping[str, str],
    *,
    changed: bool,
) -> Report:
    """The numbers of each stage and how to undo it, then findings and the plan.

    :param stages: by name, in their order.
    :param undo: the commands.
    :param changed: whether the run, or an earlier attempt, may have changed something.
    """
    parts = [*step_table(stages, links), *kept_lines(stages, "**Kept**, because it is still used:"), undo_text(undo)]
    outcome = planned.headline if changed else f"Nothing has been changed. {planned.headline}"
    if links:
        ended = " The links of clusters that left have ended." if "end_links" in stages else ""
        outcome = f"{outcome_line(planned.plan, links)}{ended}"
    return planned_report(outcome, parts, planned, approval=approval, failed=failed)


def outcome_line(plan: ReplicationPlan, links: ConfirmedLinks) -> str:
    """`2 namespaces of east, north: 8 of 8 links are connected and send.`"""
    working = links.links - len(links.broken)
    return (
        f"{counted(len(plan.namespaces), 'namespace')} of {', '.join(plan.topology.clusters)}: {working} of "
        f"{counted(links.links, 'link')} are connected and send."
    )
