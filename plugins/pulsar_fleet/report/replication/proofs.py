"""The report of the scheduled verification of replicated namespaces, (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.report.document import Outcome, Report, texts
from pulsar_fleet.report.failure import failure_details, failure_line, failure_to_do
from pulsar_fleet.verification.proof_age import ProofAge


def proofs_report(ages: Sequence[ProofAge], old: Sequence[ProofAge], failed: Mapping[str, str]) -> Report:
    """Whether every replicated namespace has a fresh proof; then a row for each direction of each namespace.

    :param old: the proofs that are too old or missing.
    """
    rows = [
        f"| `{age.namespace}` | {age.source} → {age.target} | {_age(age)} | {age.messages:,} |"
        for age in (*old, *(age for age in ages if age not in old))
    ]
    head = ["| namespace | direction | proven equal | messages |", "| --- | --- | --- | --- |"]
    table = "\n".join([*head, *rows]) if rows else "Nothing is replicated between these clusters."
    return Report(
        outcome=Outcome.FAILED if failed or old else Outcome.SUCCEEDED,
        headline=_headline(ages, old, failed),
        to_do=_to_do(old, failed),
        body=texts(failure_details(failed).strip(), table),
    )


def _to_do(old: Sequence[ProofAge], failed: Mapping[str, str]) -> tuple[str, ...]:
    if failed:
        return failure_to_do(failed)
    return ("read in the older runs why these namespaces were not proven equal.",) if old else ()


def _headline(ages: Sequence[ProofAge], old: Sequence[ProofAge], failed: Mapping[str, str]) -> str:
    if failed:
        return failure_line(failed)
    if old:
        return f"{len(old)} of {counted(len(ages), 'proof')}: too old or missing"
    return f"{counted(len(ages), 'proof')} of replicated namespaces, all fresh"


def _age(age: ProofAge) -> str:
    return "never" if age.seconds is None else f"{duration(age.seconds)} ago"
