"""Decide on subscriptions from what was read of both sides (pure). Nothing is equal by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import UNKNOWN_TYPE
from pulsar_fleet.messages.intervals import Intervals
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


def judge_subscription(
    name: str,
    source: SubscriptionCursor,
    target: SubscriptionCursor,
    found: Discrepancy,
    examples: Sequence[Delivery] = (),
) -> SubscriptionVerdict:
    """The verdict on a subscription that both sides have and that stood still while it was compared."""
    settings = tuple(_settings(source, target))
    same = not (found.redelivered.count or found.skipped.count or settings)
    return SubscriptionVerdict(
        subscription=name,
        verdict=Verdict.EQUAL if same else Verdict.DIFFERENT,
        unit=found.unit,
        source_unread=found.source_unread,
        target_unread=found.target_unread,
        redelivered=found.redelivered.count,
        skipped=found.skipped.count,
        examples=tuple(examples),
        settings=settings,
    )


def type_note(name: str, source: SubscriptionCursor, target: SubscriptionCursor) -> str | None:
    """What to say where both sides' consumers are of different types; a type is theirs, so it decides nothing."""
    known = {source.type, target.type} - {UNKNOWN_TYPE}
    if len(known) < 2:
        return None
    return f"{name!r} is {source.type} on the source and {target.type} on the target"


def movement(before: Intervals, now: Intervals | None) -> str:
    """What happened to a subscription between two looks; empty when nothing did."""
    if now is None:
        return "it was deleted"
    read, back = len(before.minus(now)), len(now.minus(before))
    parts = [(read, "read"), (back, "set back to unread")]
    return " and ".join(
        f"{count:,} {'entry was' if count == 1 else 'entries were'} {what}" for count, what in parts if count
    )


def assemble(request: VerifyRequest, topics: Iterable[TopicSubscriptions]) -> SubscriptionVerification:
    """Put topics and what was decided before reading together, by namespace; one without any is inconclusive."""
    found: dict[str, list[TopicSubscriptions]] = {namespace: [] for namespace in request.namespaces}
    for problem in request.problems:
        known = Verdict.DIFFERENT if problem.different else Verdict.INCONCLUSIVE
        found[problem.namespace].append(TopicSubscriptions(topic=problem.scope, known=known, reason=problem.reason))
    for topic in topics:
        found[str(TopicName.parse(topic.topic).namespace)].append(topic)
    namespaces = tuple(
        NamespaceSubscriptions(name, tuple(sorted(each, key=lambda topic: topic.topic))) for name, each in found.items()
    )
    return SubscriptionVerification(request.source.name, request.target.name, namespaces)


def _settings(source: SubscriptionCursor, target: SubscriptionCursor) -> Iterable[tuple[str, str, str]]:
    if source.replicated != target.replicated:
        yield "replicated", str(source.replicated).lower(), str(target.replicated).lower()
    for name in sorted({*source.properties, *target.properties}):
        here, there = source.properties.get(name), target.properties.get(name)
        if here != there:
            yield f"property {name!r}", repr(here), repr(there)
