"""The report of the scheduled verification of replicated namespaces, (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.report.document import Outcome, Report, texts
from pulsar_fleet.report.failure import failure_details, failure_line, failure_to_do
from pulsar_fleet.verification.proof_age import ProofAge

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
        to_do=_to_do(old, failed, unread),
        body=texts(failure_details(failed).strip(), unknown, table),
    )


def _to_do(old: Sequence[ProofAge], failed: Mapping[str, str], unread: Sequence[str]) -> tuple[str, ...]:
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
