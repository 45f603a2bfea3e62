"""The parts that reports of runs with a plan, an approval and steps have in common (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Planned, count_line, findings_markdown
from pulsar_fleet.report.document import Outcome, Report, sections, texts
from pulsar_fleet.report.failure import failed_report, failure_details, failure_line, failure_to_do


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
