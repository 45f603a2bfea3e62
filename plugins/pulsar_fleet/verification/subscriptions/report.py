"""Verdicts on subscriptions as text: first what differs, then the numbers, then example entries (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.verification.messages.report import counts_text
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.subscriptions.correspondence import Unit
from pulsar_fleet.verification.subscriptions.verdict import (
    Delivery,
    Kind,
    NamespaceSubscriptions,
    SubscriptionVerdict,
    SubscriptionVerification,
)

BATCH_NOTE = "note  individually acknowledged messages of a batch are not visible: the whole batch counts as unread"
_ONE = {Unit.ENTRIES: "entry", Unit.MESSAGES: "message"}


def subscription_text(verification: SubscriptionVerification) -> str:
    """The whole result: how many are equal, a line for each namespace, and the subscriptions that are not equal."""
    lines = [
        line
        for namespace in verification.namespaces
        for line in _namespace(namespace, verification.source, verification.target)
    ]
    lines = [counts_text("Subscriptions", verification.by_verdict), *lines]
    return "\n".join([*lines, BATCH_NOTE] if verification.subscriptions else lines)


def subscription_summary(namespace: NamespaceSubscriptions) -> str:
    """One line for the ledger, a log or a table."""
    if namespace.verdict is Verdict.EQUAL:
        return f"equal: {_amount(namespace)}"
    if not namespace.topics:
        return "inconclusive: nothing was compared"
    subscriptions = (subscription for topic in namespace.topics for subscription in topic.subscriptions)
    wrong = [subscription for subscription in subscriptions if subscription.verdict is namespace.verdict]
    if not wrong:
        first = next(topic for topic in namespace.topics if topic.verdict is namespace.verdict)
        return f"{namespace.verdict}: {first.topic}: {first.reason}"
    first_wrong = f"first {wrong[0].subscription!r}: {_in_short(wrong[0])}"
    return f"{namespace.verdict}: {len(wrong):,} of {_amount(namespace)}, {first_wrong}"


def _amount(namespace: NamespaceSubscriptions) -> str:
    return f"{counted(namespace.subscriptions, 'subscription')} of {counted(len(namespace.topics), 'topic')}"


def _namespace(namespace: NamespaceSubscriptions, source: str, target: str) -> Iterator[str]:
    if namespace.verdict is Verdict.EQUAL:
        yield f"EQUAL      {namespace.namespace}: {_amount(namespace)}, {namespace.unread:,} unread on both sides"
    elif not namespace.topics:
        yield f"INCONCLUSIVE  {namespace.namespace}: nothing was compared"
    for topic in namespace.topics:
        if topic.reason:
            yield f"{topic.topic_verdict.upper()}  {topic.topic}: {topic.reason}"
        for subscription in topic.subscriptions:
            if subscription.verdict is not Verdict.EQUAL:
                where = f"{topic.topic} subscription {subscription.subscription!r}"
                yield f"{subscription.verdict.upper()}  {where}: {_in_short(subscription)}"
                yield from (f"  {_delivery(example, source, target)}" for example in subscription.examples)
        yield from (f"  note  {topic.topic}: {note}" for note in topic.notes)


def _in_short(subscription: SubscriptionVerdict) -> str:
    if subscription.reason:
        unread = (
            f" ({subscription.source_unread:,} entries unread)" if subscription.verdict is Verdict.DIFFERENT else ""
        )
        return subscription.reason + unread
    counts = [
        f"{count:,} {_ONE[subscription.unit] if count == 1 else subscription.unit} would be {kind}"
        for kind, count in ((Kind.REDELIVERED, subscription.redelivered), (Kind.SKIPPED, subscription.skipped))
        if count
    ]
    if subscription.repeated:
        counts.append(f"{subscription.repeated:,} of them are stored more often on the target than on the source")
    return ", ".join([*counts, *(f"{name} {source} → {target}" for name, source, target in subscription.settings)])


def _delivery(delivery: Delivery, source: str, target: str) -> str:
    places = [f"{name} {at}" for name, at in ((source, delivery.source), (target, delivery.target)) if at]
    key = f"  key {delivery.key!r}" if delivery.key is not None else ""
    time = f"  {delivery.publish_time}" if delivery.publish_time else ""
    return f"{delivery.kind}  {' = '.join(places)}{key}{time}"
