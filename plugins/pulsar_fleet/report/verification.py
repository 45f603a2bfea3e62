"""The report of a verification, from the run's own records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.verdict import NamespaceVerdict, Verdict, Verification
from pulsar_fleet.verification.steps import VERDICT
from pulsar_fleet.verification.subscriptions import steps as subscription_steps
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification


def verification_report(run: Run, failed: Sequence[str], batches: Sequence[JsonObject]) -> str:
    """Markdown: the verdict first, then each namespace, then the evidence.

    :param batches: the `namespaces` of each and the `folder` of its documents; none where the request was refused.
    """
    compared = [reference for each in batches if (reference := _document(run, each, VERDICT))]
    if not compared:
        named = ", ".join(failed)
        return f"## Inconclusive\n\nNothing was compared: {named} failed; the reason is at the end of its log.\n"
    found = _joined(run, batches)
    headline = {
        Verdict.EQUAL: f"Equal: {found.messages:,} messages on {found.source} and {found.target}",
        Verdict.DIFFERENT: f"Different: {found.source} and {found.target} do not hold the same messages",
        Verdict.INCONCLUSIVE: f"Inconclusive: {found.source} and {found.target} could not be compared",
    }[found.verdict]
    subscriptions = _read_subscriptions(run, batches)
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
        f"{_evidence(compared)}{_subscriptions(*subscriptions) if subscriptions else ''}"
    )


def _document(run: Run, batch: JsonObject, name: str) -> Reference | None:
    return run.artefacts.find(run.id, f"{batch['folder']}/{name}")


def _joined(run: Run, batches: Sequence[JsonObject]) -> Verification:
    """All batches as one; the namespaces of a batch whose job failed are there without a topic: inconclusive."""
    parts: list[Verification] = []
    namespaces: list[NamespaceVerdict] = []
    for batch in batches:
        if reference := _document(run, batch, VERDICT):
            parts.append(Verification.from_bytes(run.artefacts.read(reference)))
            namespaces.extend(parts[-1].namespaces)
        else:
            namespaces.extend(NamespaceVerdict(name, ()) for name in batch["namespaces"])
    return replace(parts[0], namespaces=tuple(namespaces))


def _read_subscriptions(
    run: Run, batches: Sequence[JsonObject]
) -> tuple[list[Reference], SubscriptionVerification] | None:
    """What was found about subscriptions; None where they were left out."""
    references = [one for each in batches if (one := _document(run, each, subscription_steps.VERDICT))]
    parts = [SubscriptionVerification.from_bytes(run.artefacts.read(reference)) for reference in references]
    if not parts:
        return None
    namespaces = tuple(namespace for part in parts for namespace in part.namespaces)
    return references, replace(parts[0], namespaces=namespaces)


def _subscriptions(references: Sequence[Reference], found: SubscriptionVerification) -> str:
    headline = {
        Verdict.EQUAL: f"equal: {found.subscriptions:,} have the same unread on {found.source} and {found.target}",
        Verdict.DIFFERENT: f"different: consumers that go to {found.target} would not get exactly the rest",
        Verdict.INCONCLUSIVE: "inconclusive: not all of them could be compared",
    }[found.verdict]
    return f"\n## Subscriptions {headline}\n\n```\n{subscription_text(found)}\n```\n\n{_evidence(references)}"


def _evidence(references: Sequence[Reference]) -> str:
    return "".join(f"Evidence: `{one.uri}`, sha256 `{one.sha256}`.\n" for one in references)
