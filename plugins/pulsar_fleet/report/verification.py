"""The report of a verification, from the run's own records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.document import Outcome, Report, Section, texts
from pulsar_fleet.report.failure import failure_details, failure_line
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.verdict import NamespaceVerdict, Verdict, Verification
from pulsar_fleet.verification.steps import VERDICT
from pulsar_fleet.verification.subscriptions import steps as subscription_steps
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification


def verification_report(run: Run, failed: Mapping[str, str], batches: Sequence[JsonObject]) -> Report:
    """The verdict, the namespaces, then what was compared and the evidence.

    :param failed: task that failed by itself → its reason, empty if that is only in its log.
    :param batches: the `namespaces` of each batch and the `folder` of its documents; empty if the request was refused.
    """
    compared = [reference for batch in batches if (reference := _document(run, batch, VERDICT))]
    if not compared:
        return Report(
            outcome=Outcome.FAILED,
            headline="Inconclusive: nothing was compared",
            to_do=_AGAIN,
            body=(f"{failure_line(failed)}.{failure_details(failed)}",),
        )
    verification = _joined(run, batches)
    clusters = f"{verification.source} and {verification.target}"
    headline = {
        Verdict.EQUAL: f"Equal: {counted(verification.messages, 'message')} on {clusters}",
        Verdict.DIFFERENT: f"Different: {clusters} do not hold the same messages",
        Verdict.INCONCLUSIVE: f"Inconclusive: {clusters} could not be compared",
    }[verification.verdict]
    subscriptions = _read_subscriptions(run, batches)
    equal = verification.verdict is Verdict.EQUAL
    if equal and subscriptions and subscriptions[1].verdict is not Verdict.EQUAL:
        equal = False
        headline += f", but their subscriptions are {subscriptions[1].verdict}"
    rows = [
        f"| `{namespace.namespace}` | {namespace.verdict.upper()} | {namespace.messages:,} | {len(namespace.names)} |"
        for namespace in verification.namespaces
    ]
    table = "\n".join(["| namespace | verdict | messages | topics |", "| --- | --- | --- | --- |", *rows])
    consequence = "" if verification.verdict is Verdict.EQUAL else "Verification failed: the cut-over is blocked."
    messages = f"```\n{verification_text(verification)}\n```\n\n{_evidence(compared)}"
    return Report(
        outcome=Outcome.SUCCEEDED if equal and not failed else Outcome.FAILED,
        headline=headline,
        to_do=() if equal and not failed else _AGAIN,
        body=texts(table, consequence),
        details=(
            Section(title="Messages", text=messages),
            *([_subscriptions(*subscriptions)] if subscriptions else []),
        ),
    )


_AGAIN = ("read below why it is not equal, remove the reason, and verify again.",)


def _document(run: Run, batch: JsonObject, name: str) -> Reference | None:
    return run.artefacts.find(run.id, f"{batch['folder']}/{name}")


def joined(run: Run, batches: Sequence[JsonObject]) -> tuple[Verification | None, SubscriptionVerification | None]:
    """What was compared in all batches, of messages and of subscriptions; None where nothing was."""
    compared = any(_document(run, batch, VERDICT) for batch in batches)
    subscriptions = _read_subscriptions(run, batches)
    return _joined(run, batches) if compared else None, subscriptions[1] if subscriptions else None


def _joined(run: Run, batches: Sequence[JsonObject]) -> Verification:
    """All batches as one verification; the namespaces of a failed batch have no topics and are inconclusive."""
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
    """The verification of the subscriptions; None if they were not compared."""
    references = [reference for batch in batches if (reference := _document(run, batch, subscription_steps.VERDICT))]
    parts = [SubscriptionVerification.from_bytes(run.artefacts.read(stored)) for stored in references]
    if not parts:
        return None
    namespaces = tuple(namespace for part in parts for namespace in part.namespaces)
    return references, replace(parts[0], namespaces=namespaces)


def _subscriptions(references: Sequence[Reference], verification: SubscriptionVerification) -> Section:
    names = f"{verification.source} and {verification.target}"
    headline = {
        Verdict.EQUAL: f"equal: {verification.subscriptions:,} have the same backlog on {names}",
        Verdict.DIFFERENT: f"different: consumers on {verification.target} would not receive exactly the backlog",
        Verdict.INCONCLUSIVE: "inconclusive: some of them could not be compared",
    }[verification.verdict]
    text = f"```\n{subscription_text(verification)}\n```\n\n{_evidence(references)}"
    return Section(title=f"Subscriptions {headline}", text=text)


def _evidence(references: Sequence[Reference]) -> str:
    return "".join(f"Evidence: `{reference.uri}`, sha256 `{reference.sha256}`.\n" for reference in references)
