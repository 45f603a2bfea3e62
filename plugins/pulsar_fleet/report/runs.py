"""Reports of runs: what those with a plan have in common, and those of a failover and of read-only topics (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Planned, count_line, findings_markdown
from pulsar_fleet.read_only.links import ConfirmedServing
from pulsar_fleet.read_only.plan import ReadOnlyPlan
from pulsar_fleet.replication.failover.forecast import Agreement
from pulsar_fleet.replication.failover.records import FailoverRecords
from pulsar_fleet.replication.failover.report import forecast_body, outcome_body, prepared_text, verdict
from pulsar_fleet.report.document import Outcome, Report, sections, texts
from pulsar_fleet.report.failure import failed_report, failure_details, failure_line, failure_to_do
from pulsar_fleet.report.page import approval_text


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
        return f"{counted(removed.changes, 'shadow topic')} taken away, after dropping the ledgers of {sources}."
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


def failover_report(records: FailoverRecords, approval: JsonObject | None, failed: Mapping[str, str]) -> Report:
    """Who approved and the outcome of each subscription; the preparation and the forecasts as details."""
    announced, forecast = records.announced, records.forecast if records.prepared else None
    return Report(
        outcome=_outcome(records, failed),
        headline=_headline(records, failed),
        to_do=_to_do(records, failed),
        body=texts(
            failure_details(failed).strip(),
            approval_text(approval),
            _fenced(outcome_body(records.outcome)) if records.outcome else "",
        ),
        details=sections(
            [
                ("Prepared", _fenced(prepared_text(records.prepared)) if records.prepared else ""),
                ("Last forecast", _fenced(forecast_body(forecast)) if forecast else ""),
                ("Forecast before the approval", _fenced(forecast_body(announced)) if announced else ""),
            ]
        ),
    )


def _outcome(records: FailoverRecords, failed: Mapping[str, str]) -> Outcome:
    if failed:
        return Outcome.FAILED
    differs = records.outcome and records.outcome.agreement is not Agreement.AS_PREDICTED
    return Outcome.ATTENTION if differs else Outcome.SUCCEEDED


def _headline(records: FailoverRecords, failed: Mapping[str, str]) -> str:
    if failed:
        return failure_line(failed)
    return verdict(records.outcome) if records.outcome else "Nothing has been changed."


def _to_do(records: FailoverRecords, failed: Mapping[str, str]) -> tuple[str, ...]:
    if failed:
        return failure_to_do(failed)
    if _outcome(records, failed) is Outcome.ATTENTION:
        return ("read below which subscriptions differ from the forecast, and tell their owners.",)
    return ()


def _fenced(text: str) -> str:
    return f"```\n{text}\n```"


class Confirmation(Protocol):
    """What a step cost that changes nothing."""

    @property
    def calls(self) -> int: ...
    @property
    def seconds(self) -> float: ...


def unplanned_report(failed: Mapping[str, str], undo: Sequence[str], *, changed: bool) -> Report:
    """The report of a run that failed before its plan, or before it was planned again.

    :param undo: the commands that take back what earlier attempts have changed.
    :param changed: whether they may have changed something.
    """
    if not changed:
        return failed_report(failed, "Nothing was planned, nothing has been changed.")
    stays = "Nothing was planned by this attempt. What an earlier one has changed stays."
    return failed_report(failed, "\n\n".join(filter(None, [stays, undo_text(undo)])))


def undo_text(undo: Sequence[str]) -> str:
    """How to take back what a run has changed; empty where it has changed nothing."""
    return "\n".join(["To undo the run, in this order:", "", "```", *undo, "```"]) if undo else ""


def planned_report(
    outcome: str,
    parts: Iterable[str],
    planned: Planned[Any],
    *,
    approval: JsonObject | None,
    failed: Mapping[str, str],
) -> Report:
    """Outcome and what to do, then who approved and the parts; findings and the plan as details."""
    return Report(
        outcome=Outcome.FAILED if failed else Outcome.SUCCEEDED,
        headline=failure_line(failed) if failed else outcome,
        to_do=failure_to_do(failed) if failed else (),
        body=texts(
            failure_details(failed).strip() if failed else "",
            f"{approval['answer']} by {approval['by']} ({approval['about']})." if approval else "",
            *parts,
        ),
        details=sections(
            [
                (f"Findings: {count_line(planned.findings)}", findings_markdown(planned.findings)),
                ("Plan", planned.text),
            ],
        ),
    )


def step_table(steps: Mapping[str, StepResult], confirmed: Confirmation | None) -> Iterator[str]:
    """The numbers of each step, in their order; nothing if none ran."""
    if not steps:
        return
    rows = [f"| {name} | {step.changes:,} | {step.calls:,} | {step.seconds:.1f} |" for name, step in steps.items()]
    if confirmed:
        rows.append(f"| confirm_links | | {confirmed.calls:,} | {confirmed.seconds:.1f} |")
    yield "\n".join(["| step | changes | admin calls | seconds |", "| --- | --- | --- | --- |", *rows])


def kept_lines(steps: Mapping[str, StepResult], heading: str) -> Iterator[str]:
    """What the steps left; nothing if they left nothing."""
    if kept := [line for step in steps.values() for line in step.kept]:
        yield "\n".join([heading, "", *(f"* {line}" for line in kept)])
