"""The report of a run that set up replication, (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.replication.setup.apply import AppliedStage
from pulsar_fleet.replication.setup.links import ConfirmedLinks
from pulsar_fleet.replication.setup.plan import StoredReplicationPlan
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.planned_run import kept_lines, planned_report, step_table


def replication_report(
    planned: StoredReplicationPlan,
    plan_text: str,
    findings: Sequence[Finding],
    stages: Mapping[str, AppliedStage],
    links: ConfirmedLinks | None,
    approval: JsonObject | None,
    failed: Mapping[str, str],
) -> Report:
    """The numbers of each stage and how to undo it, then findings and the plan.

    :param stages: by name, in their order.
    """
    parts = [*step_table(stages, links), *kept_lines(stages, "**Kept**, because it is still used:"), *_undo(stages)]
    return planned_report(
        _outcome(planned, stages, links),
        parts,
        plan_text=plan_text,
        findings=findings,
        approval=approval,
        failed=failed,
    )


def outcome_line(planned: StoredReplicationPlan, links: ConfirmedLinks) -> str:
    """`2 namespaces replicated between east, north: 8 of 8 links are connected and send.`"""
    working = links.links - len(links.broken)
    return (
        f"{counted(planned.namespaces, 'namespace')} of {', '.join(planned.clusters)}: {working} of "
        f"{counted(links.links, 'link')} are connected and send."
    )


def undo_lines(stages: Mapping[str, AppliedStage]) -> list[str]:
    """The commands that undo the run, in their order: lists first, since a replicator recreates a topic."""
    return [command_line("undo", run) for stage in reversed(list(stages.values())) for run in stage.undo]


def _outcome(
    planned: StoredReplicationPlan,
    stages: Mapping[str, AppliedStage],
    links: ConfirmedLinks | None,
) -> str:
    if links is None:
        return f"Nothing has been changed. {planned.headline}"
    ended = "end_links" in stages
    return outcome_line(planned, links) + (" The links of clusters that left have ended." if ended else "")


def _undo(stages: Mapping[str, AppliedStage]) -> Iterator[str]:
    if lines := undo_lines(stages):
        yield "\n".join(["To undo the run, in this order:", "", "```", *lines, "```"])
