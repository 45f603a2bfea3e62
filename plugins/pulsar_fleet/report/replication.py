"""Reports of replication: of its set-up, of an examination of replicators, of the scheduled verification (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Planned
from pulsar_fleet.replication.doctor.model import FILL_IN, Diagnosis, Examination, ReplicatorState, Severity
from pulsar_fleet.replication.doctor.text import MOST_ROWS, UNCHANGED, headline
from pulsar_fleet.replication.setup.links import ConfirmedLinks
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.report.document import Outcome, Report, sections, texts
from pulsar_fleet.report.failure import failure_details, failure_line, failure_to_do
from pulsar_fleet.report.planned_run import kept_lines, planned_report, step_table, undo_text
from pulsar_fleet.verification.messages.incremental import ProofAge


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


NOTHING = "Nothing is replicated between these clusters."


def proofs_report(
    ages: Sequence[ProofAge], old: Sequence[ProofAge], failed: Mapping[str, str], unread: Sequence[str] = ()
) -> Report:
    """Whether every replicated namespace has a fresh proof; then a row for each direction of each namespace.

    :param old: the proofs that are too old or missing.
    :param unread: namespaces of which it is unknown what is replicated, each with the reason.
    """
    rows = [
        f"| `{age.namespace}` | {age.source} → {age.target} | {_age(age)} | {age.messages:,} |"
        for age in (*old, *(age for age in ages if age not in old))
    ]
    head = ["| namespace | direction | proven equal | messages |", "| --- | --- | --- | --- |"]
    table = "\n".join([*head, *rows]) if rows else "" if failed else NOTHING
    unknown = "\n".join(["What is replicated is unknown:", "", *(f"* {text}" for text in unread)]) if unread else ""
    return Report(
        outcome=Outcome.FAILED if failed or old or unread else Outcome.SUCCEEDED,
        headline=_headline(ages, old, failed, unread),
        to_do=_what_is_missing(old, failed, unread),
        body=texts(failure_details(failed).strip(), unknown, table),
    )


def _what_is_missing(old: Sequence[ProofAge], failed: Mapping[str, str], unread: Sequence[str]) -> tuple[str, ...]:
    if failed:
        return failure_to_do(failed)
    older = ("read in the older runs why these namespaces were not proven equal.",) if old else ()
    rights = ("let the role of the connection consume from __change_events of these namespaces.",) if unread else ()
    return (*older, *rights)


def _headline(
    ages: Sequence[ProofAge], old: Sequence[ProofAge], failed: Mapping[str, str], unread: Sequence[str]
) -> str:
    if failed:
        return failure_line(failed)
    if unread:
        return f"of {counted(len(unread), 'namespace')} it is unknown what is replicated"
    if old:
        return f"{len(old)} of {counted(len(ages), 'proof')}: too old or missing"
    return f"{counted(len(ages), 'proof')} of replicated namespaces, all fresh"


def _age(age: ProofAge) -> str:
    return "never" if age.seconds is None else f"{duration(age.seconds)} ago"


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
