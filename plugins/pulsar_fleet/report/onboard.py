"""The report of an onboarding : the outcome, what to do, numbers, findings, the plan (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.onboarding.results import AppliedChanges, TakenSnapshot
from pulsar_fleet.planning.comparison import unread_names
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_markdown
from pulsar_fleet.preflight.findings import Finding, blockers, count_line, findings_markdown
from pulsar_fleet.report.document import Outcome, Report, sections, texts
from pulsar_fleet.report.page import approval_text
from pulsar_fleet.snapshot.coverage import not_copied
from pulsar_fleet.verification.snapshots.compare import EqualityResult

_TABLES = ("tenants", "namespaces", "topics", "schemas", "subscriptions", "topic_policies")


def onboarding_report(
    source: TakenSnapshot,
    target: TakenSnapshot,
    plan: Plan,
    findings: Sequence[Finding],
    applied: AppliedChanges | None,
    verified: EqualityResult | None,
    approval: JsonObject | None = None,
) -> Report:
    """The report from the results of the onboarding steps; the result of a step that did not run is None."""
    outcome, to_do = _outcome(findings, applied, verified)
    return Report(
        outcome=outcome,
        headline=verdict(plan, findings, applied, verified),
        to_do=to_do,
        body=texts(
            approval_text(approval),
            _compared(source, target),
            *(snapshot.rights for snapshot in (source, target)),
            _applied(applied),
        ),
        details=sections(
            [
                (f"Findings: {count_line(findings)}", findings_markdown(findings)),
                ("Plan", plan_markdown(plan)),
                ("Evidence", _evidence(source, target, verified)),
            ]
        ),
    )


def _outcome(
    findings: Sequence[Finding], applied: AppliedChanges | None, verified: EqualityResult | None
) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome, and what a person has to do then."""
    if verified is not None:
        if not verified.equal:
            return Outcome.FAILED, ("run it again: it plans the changes that are left.",)
        unread = ("give the tool the right to read what it could not read, and run it again.",)
        return (Outcome.ATTENTION, unread) if verified.unread else (Outcome.SUCCEEDED, ())
    if blockers(findings):
        return Outcome.FAILED, ("do what each blocker below says, or accept its risk in `waivers`; then run it again.",)
    if applied is None:
        return Outcome.SUCCEEDED, ()
    if not applied.complete:
        return Outcome.FAILED, ("read below why changes were not made, and continue the run.",)
    return Outcome.ATTENTION, ("continue the run: nothing has been verified.",)


def verdict(
    plan: Plan, findings: Sequence[Finding], applied: AppliedChanges | None, verified: EqualityResult | None
) -> str:
    """The outcome in one line."""
    names = f"{plan.source} → {plan.target}"
    if verified is not None:
        if verified.equal:
            exception = f", except what could not be read ({unread_names(verified.unread)})" if verified.unread else ""
            equal = f"Equal: {plan.target} has all that a plan copies from {plan.source}"
            return f"{equal}{exception} ({_counts(verified.compared)})"
        return f"NOT EQUAL: {names}, {counted(verified.differences, 'change')} left to make"
    if blockers(findings):
        return f"STOPPED: {names}, {count_line(findings)}. Nothing has been changed"
    if applied is None:
        return f"Planned, not applied: {names}, {counted(len(plan.changes), 'change')}. Nothing has been changed"
    if not applied.complete:
        return f"INCOMPLETE: {names}, at least {counted(len(applied.problems), 'change')} not made"
    return f"Applied, not verified: {names}, {counted(len(plan.changes), 'change')}"


def _compared(source: TakenSnapshot, target: TakenSnapshot) -> str:
    head = "| | version | " + " | ".join(name.replace("_", " ") for name in _TABLES) + " | calls |"
    rows = [
        f"| {snapshot.cluster} | {', '.join(snapshot.versions)} | "
        + " | ".join(f"{snapshot.counts[name]:,}" for name in _TABLES)
        + f" | {snapshot.calls:,} |"
        for snapshot in (source, target)
    ]
    own = [f"Not copied from {source.cluster}: {source.not_copied}."] if source.not_copied else []
    return "\n".join([head, "| --- " * (len(_TABLES) + 3) + "|", *rows, "", f"Not copied: {not_copied()}.", *own])


def _applied(applied: AppliedChanges | None) -> str:
    if applied is None:
        return ""
    done = ", ".join(f"{count:,} {outcome}" for outcome, count in applied.counts.items() if count)
    lines = [f"**Applied:** {done or 'nothing to do'}. {counted(applied.calls, 'call')}, reads included."]
    lines += [f"* {problem}" for problem in applied.problems]
    return "\n".join(lines)


def _evidence(source: TakenSnapshot, target: TakenSnapshot, verified: EqualityResult | None) -> str:
    references = {"source before": source.reference, "target before": target.reference}
    if verified is not None:
        references |= {"target after": verified.snapshot}
    rows = [f"| {name} | `{reference.uri}` | `{reference.sha256[:16]}…` |" for name, reference in references.items()]
    return "\n".join(["| snapshot | URI | sha256 |", "| --- | --- | --- |", *rows])


def _counts(compared: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in compared.items())
