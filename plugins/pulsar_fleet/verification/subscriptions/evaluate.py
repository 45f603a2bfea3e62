"""Verdicts on subscriptions from the cursors of both clusters (pure). Nothing is equal by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import UNKNOWN_TYPE
from pulsar_fleet.messages.positions import Intervals
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.subscriptions.correspondence import Discrepancy
from pulsar_fleet.verification.subscriptions.verdict import (
    Delivery,
    NamespaceSubscriptions,
    SubscriptionVerdict,
    SubscriptionVerification,
    TopicSubscriptions,
)


def evaluate_subscription(
    name: str,
    source: SubscriptionCursor,
    target: SubscriptionCursor,
    discrepancy: Discrepancy,
    examples: Sequence[Delivery] = (),
) -> SubscriptionVerdict:
    """The verdict on a subscription that both clusters have and that did not change during the comparison."""
    settings = tuple(_settings(source, target))
    same = not (discrepancy.redelivered.count or discrepancy.skipped.count or settings)
    return SubscriptionVerdict(
        subscription=name,
        verdict=Verdict.EQUAL if same else Verdict.DIFFERENT,
        unit=discrepancy.unit,
        source_unread=discrepancy.source_unread,
        target_unread=discrepancy.target_unread,
        redelivered=discrepancy.redelivered.count,
        skipped=discrepancy.skipped.count,
        repeated=discrepancy.repeated,
        examples=tuple(examples),
        settings=settings,
    )


def type_note(name: str, source: SubscriptionCursor, target: SubscriptionCursor) -> str | None:
    """A note if the subscription types differ; the type belongs to the consumers, so it does not affect the verdict."""
    types = {source.type, target.type} - {UNKNOWN_TYPE}
    if len(types) < 2:
        return None
    return f"{name!r} is {source.type} on the source and {target.type} on the target"


def movement(before: Intervals, now: Intervals | None) -> str:
    """How a subscription changed between two reads; empty if it did not change."""
    if now is None:
        return "it was deleted"
    read, back = len(before.minus(now)), len(now.minus(before))
    parts = [(read, "read"), (back, "set back to unread")]
    return " and ".join(
        f"{count:,} {'entry was' if count == 1 else 'entries were'} {what}" for count, what in parts if count
    )


def assemble(request: VerifyRequest, topics: Iterable[TopicSubscriptions]) -> SubscriptionVerification:
    """Combine the verdicts on topics with the problems of the request, by namespace."""
    by_namespace: dict[str, list[TopicSubscriptions]] = {namespace: [] for namespace in request.namespaces}
    for problem in request.problems:
        verdict = Verdict.DIFFERENT if problem.different else Verdict.INCONCLUSIVE
        by_namespace[problem.namespace].append(
            TopicSubscriptions(topic=problem.scope, topic_verdict=verdict, reason=problem.reason)
        )
    for topic in topics:
        by_namespace[str(TopicName.parse(topic.topic).namespace)].append(topic)
    namespaces = tuple(
        NamespaceSubscriptions(name, tuple(sorted(topics_of_namespace, key=lambda topic: topic.topic)))
        for name, topics_of_namespace in by_namespace.items()
    )
    return SubscriptionVerification(request.source.name, request.target.name, namespaces)


def _settings(source: SubscriptionCursor, target: SubscriptionCursor) -> Iterable[tuple[str, str, str]]:
    if source.replicated != target.replicated:
        yield "replicated", str(source.replicated).lower(), str(target.replicated).lower()
    for name in sorted({*source.properties, *target.properties}):
        source_value, target_value = source.properties.get(name), target.properties.get(name)
        if source_value != target_value:
            yield f"property {name!r}", repr(source_value), repr(target_value)
