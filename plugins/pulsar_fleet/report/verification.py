"""The report of a verification, from the run's own records."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_fleet.records.artefacts import Reference
from pulsar_fleet.records.run import Run
from pulsar_fleet.verification import subscription_steps
from pulsar_fleet.verification.steps import VERDICT
from pulsar_fleet.verification.subscription_text import subscription_text
from pulsar_fleet.verification.subscription_verdict import SubscriptionVerification
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
    subscriptions = _read_subscriptions(run)
    if found.verdict is Verdict.EQUAL and subscriptions and subscriptions[1].verdict is not Verdict.EQUAL:
        headline += f", but their subscriptions are {subscriptions[1].verdict}"
    rows = [
        f"| `{namespace.namespace}` | {namespace.verdict.upper()} | {namespace.messages:,} | {len(namespace.topics)} |"
        for namespace in found.namespaces
    ]
    table = "\n".join(["| namespace | verdict | messages | topics |", "| --- | --- | --- | --- |", *rows])
    gate = "" if found.verdict is Verdict.EQUAL else "\n\nThe gate stays shut."
    return (
        f"## {headline}\n\n{table}\n\n```\n{verification_text(found)}\n```{gate}\n\n"
        f"Evidence: `{reference.uri}`, sha256 `{reference.sha256}`.\n"
        f"{_subscriptions(*subscriptions) if subscriptions else ''}"
    )


def _read_subscriptions(run: Run) -> tuple[Reference, SubscriptionVerification] | None:
    """What was found about subscriptions; None where they were left out."""
    reference = run.artefacts.find(run.id, subscription_steps.VERDICT)
    if reference is None:
        return None
    return reference, SubscriptionVerification.from_bytes(run.artefacts.read(reference))


def _subscriptions(reference: Reference, found: SubscriptionVerification) -> str:
    headline = {
        Verdict.EQUAL: f"equal: {found.subscriptions:,} have the same unread on {found.source} and {found.target}",
        Verdict.DIFFERENT: f"different: consumers that go to {found.target} would not get exactly the rest",
        Verdict.INCONCLUSIVE: "inconclusive: not all of them could be compared",
    }[found.verdict]
    return (
        f"\n## Subscriptions {headline}\n\n```\n{subscription_text(found)}\n```\n\n"
        f"Evidence: `{reference.uri}`, sha256 `{reference.sha256}`.\n"
    )
