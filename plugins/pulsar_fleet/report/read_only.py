"""The report of a run that serves topics read-only, (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.read_only.links import ConfirmedServing
from pulsar_fleet.read_only.plan import StoredReadOnlyPlan
from pulsar_fleet.read_only.results import Served
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.planned_run import kept_lines, planned_report, step_table


def read_only_report(
    planned: StoredReadOnlyPlan,
    plan_text: str,
    findings: Sequence[Finding],
    steps: Mapping[str, Served],
    confirmed: ConfirmedServing | None,
    approval: JsonObject | None,
    failed: Mapping[str, str],
) -> Report:
    """The numbers of each step and what stays, then findings and the plan.

    :param steps: by name, in their order.
    """
    parts = [*step_table(steps, confirmed), *_sent_table(confirmed), *kept_lines(steps, "**Kept:**")]
    return planned_report(
        _outcome(planned, steps, confirmed),
        parts,
        plan_text=plan_text,
        findings=findings,
        approval=approval,
        failed=failed,
    )


def outcome_line(planned: StoredReadOnlyPlan, steps: Mapping[str, Served], confirmed: ConfirmedServing) -> str:
    """`2 topics are served read-only: 4 links are alive, and a reader got a message from 4 of them.`"""
    if planned.remove:
        count = steps["remove_topics"].changes
        sources = "its source" if count == 1 else "their sources"
        return f"{counted(count, 'shadow topic')} taken away, after dropping the ledgers of {sources}."
    served = f"{counted(confirmed.topics, 'topic')} {'is' if confirmed.topics == 1 else 'are'} served read-only"
    links = f"{counted(confirmed.links, 'link')} {'is' if confirmed.links == 1 else 'are'} alive"
    return f"{served}: {links}, and a reader got a message from {confirmed.read} of them."


def _sent_table(confirmed: ConfirmedServing | None) -> Iterator[str]:
    """What each broker has sent; nothing if no topic is served."""
    if confirmed and confirmed.sent:
        rows = [f"| {broker} | {source:,} | {shadow:,} |" for broker, (source, shadow) in confirmed.sent.items()]
        heading = ["| broker | bytes sent from sources | bytes sent from shadow topics |", "| --- | --- | --- |"]
        yield "\n".join(["**Since the topics were loaded:**", "", *heading, *rows])


def _outcome(
    planned: StoredReadOnlyPlan,
    steps: Mapping[str, Served],
    confirmed: ConfirmedServing | None,
) -> str:
    if confirmed is None or (planned.remove and "remove_topics" not in steps):
        return f"Nothing has been changed. {planned.headline}"
    return outcome_line(planned, steps, confirmed)
