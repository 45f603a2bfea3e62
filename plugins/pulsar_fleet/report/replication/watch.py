"""The report of an examination of replicators (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.replication.doctor.model import FILL_IN, Diagnosis, Examination, ReplicatorState, Severity
from pulsar_fleet.replication.doctor.text import MOST_ROWS, UNCHANGED, headline
from pulsar_fleet.report.document import Outcome, Report, sections, texts

_MOST_TO_DO = 5


def examination_report(examination: Examination, changed: str = UNCHANGED) -> Report:
    """Whether something is wrong and the remedies, then the replicators that are not healthy and the diagnoses.

    :param changed: what the run has changed, as a sentence.
    """
    calls = ", ".join(f"{cluster} {number:,}" for cluster, number in sorted(examination.calls.items()))
    return Report(
        outcome=_outcome(examination),
        headline=headline(examination, changed),
        to_do=_to_do(examination),
        body=texts(_replicators(examination)),
        details=sections(
            [
                ("Diagnoses", _diagnoses(examination)),
                ("Unknown, because it could not be read", "\n".join(f"* {text}" for text in examination.unread)),
                ("Cost", f"HTTP requests: {calls or 'none'}."),
            ]
        ),
    )


def _outcome(examination: Examination) -> Outcome:
    if examination.has_fault:
        return Outcome.FAILED
    complete = examination.is_complete and not examination.by(Severity.WARNING)
    return Outcome.SUCCEEDED if complete else Outcome.ATTENTION


def _to_do(examination: Examination) -> tuple[str, ...]:
    """The remedies of the faults; the report has those of the warnings below."""
    outages = [f"{name} does not answer: {reason}" for name, reason in sorted(examination.outages.items())]
    remedies = [f"{fault.clusters} `{fault.resource}`: {fault.remedy}" for fault in examination.faults]
    lines = [*outages, *remedies]
    more = [f"{counted(len(lines) - _MOST_TO_DO, 'more fault')}, below."] if len(lines) > _MOST_TO_DO else []
    return (*lines[:_MOST_TO_DO], *more)


def _diagnoses(examination: Examination) -> str:
    head = ["| diagnosis | where | value | consequence and remedy |", "| --- | --- | --- | --- |"]
    rows = [_diagnosis_row(diagnosis) for diagnosis in examination.diagnoses]
    return "\n".join([*head, *rows]) if rows else ""


def _replicators(examination: Examination) -> str:
    return "\n".join(_replicator_lines(examination)) if examination.replicators else ""


def _replicator_lines(examination: Examination) -> Iterator[str]:
    yield "| replicator | state | backlog, entries | entries/s | causes |"
    yield "| --- | --- | --- | --- | --- |"
    yield from map(_replicator_row, examination.replicators[:MOST_ROWS])
    if len(examination.replicators) > MOST_ROWS:
        yield f"\n… and {counted(len(examination.replicators) - MOST_ROWS, 'more replicator')}."


def _diagnosis_row(diagnosis: Diagnosis) -> str:
    calls = "".join(f" `{_cell(call.text())}`" for call in diagnosis.calls)
    calls += "" if all(call.is_ready for call in diagnosis.calls) else f" {FILL_IN}"
    return (
        f"| {diagnosis.severity.upper()} `{diagnosis.id}` | {diagnosis.clusters} "
        f"`{diagnosis.resource}` | {_cell(diagnosis.evidence)} | {_cell(diagnosis.consequence)} "
        f"**Do:** {_cell(diagnosis.remedy)}{calls} |"
    )


def _replicator_row(row: ReplicatorState) -> str:
    causes = ", ".join(f"`{cause}`" for cause in row.causes) or "none"
    return f"| {row.key} | {row.state} | {row.backlog:,} | {row.per_second:,.1f} | {causes} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
