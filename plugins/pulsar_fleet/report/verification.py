"""The report of a verification, from the run's own records."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_fleet.records.run import Run
from pulsar_fleet.verification.steps import VERDICT
from pulsar_fleet.verification.text import verification_text
from pulsar_fleet.verification.verdict import Verdict, Verification


def verification_report(run: Run, failed: Sequence[str]) -> str:
    """Markdown: the verdict first, then each namespace, then the evidence."""
    reference = run.artefacts.find(run.id, VERDICT)
    if reference is None:
        named = ", ".join(failed)
        return f"## Inconclusive\n\nNothing was compared: {named} failed; the reason is at the end of its log.\n"
    found = Verification.from_bytes(run.artefacts.read(reference))
    headline = {
        Verdict.EQUAL: f"Equal: {found.messages:,} messages on {found.source} and {found.target}",
        Verdict.DIFFERENT: f"Different: {found.source} and {found.target} do not hold the same messages",
        Verdict.INCONCLUSIVE: f"Inconclusive: {found.source} and {found.target} could not be compared",
    }[found.verdict]
    rows = [
        f"| `{namespace.namespace}` | {namespace.verdict.upper()} | {namespace.messages:,} | {len(namespace.topics)} |"
        for namespace in found.namespaces
    ]
    table = "\n".join(["| namespace | verdict | messages | topics |", "| --- | --- | --- | --- |", *rows])
    gate = "" if found.verdict is Verdict.EQUAL else "\n\nThe gate stays shut."
    return (
        f"## {headline}\n\n{table}\n\n```\n{verification_text(found)}\n```{gate}\n\n"
        f"Evidence: `{reference.uri}`, sha256 `{reference.sha256}`.\n"
    )
