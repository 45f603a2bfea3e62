"""Verdicts on subscriptions as a person reads them: first what is wrong, then numbers, then which entries (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.subscriptions.correspondence import Unit
from pulsar_fleet.verification.subscriptions.verdict import (
    Delivery,
    Kind,
    NamespaceSubscriptions,
    SubscriptionVerdict,
    SubscriptionVerification,
)

UNSEEN = (
    "note  messages of a batch that were acknowledged apart from the rest cannot be seen: the batch counts as unread"
)
_ONE = {Unit.ENTRIES: "entry", Unit.MESSAGES: "message"}


def subscription_text(found: SubscriptionVerification) -> str:
    """The whole result; one line per namespace, and the subscriptions that are not equal."""
    lines = [line for each in found.namespaces for line in _namespace(each, found.source, found.target)]
    return "\n".join([*lines, UNSEEN] if found.subscriptions else lines)


def subscription_summary(each: NamespaceSubscriptions) -> str:
    """One line: for the ledger, a log, a table."""
    if each.verdict is Verdict.EQUAL:
        return f"equal: {_amount(each)}"
    if not each.topics:
        return "inconclusive: nothing was compared"
    wrong = [one for topic in each.topics for one in topic.subscriptions if one.verdict is each.verdict]
    if not wrong:
        first = next(topic for topic in each.topics if topic.verdict is each.verdict)
        return f"{each.verdict}: {first.topic}: {first.reason}"
    return f"{each.verdict}: {len(wrong):,} of {_amount(each)}, first {wrong[0].subscription!r}: {_in_short(wrong[0])}"


def _amount(each: NamespaceSubscriptions) -> str:
    topics = f"{len(each.topics):,} {'topic' if len(each.topics) == 1 else 'topics'}"
    return f"{each.subscriptions:,} {'subscription' if each.subscriptions == 1 else 'subscriptions'} of {topics}"


def _namespace(each: NamespaceSubscriptions, source: str, target: str) -> Iterator[str]:
    if each.verdict is Verdict.EQUAL:
        yield f"EQUAL      {each.namespace}: {_amount(each)}, {each.unread:,} unread on both sides"
    elif not each.topics:
        yield f"INCONCLUSIVE  {each.namespace}: nothing was compared"
    for topic in each.topics:
        if topic.reason:
            yield f"{topic.known.upper()}  {topic.topic}: {topic.reason}"
        for one in topic.subscriptions:
            if one.verdict is not Verdict.EQUAL:
                yield f"{one.verdict.upper()}  {topic.topic} subscription {one.subscription!r}: {_in_short(one)}"
                yield from (f"  {_delivery(example, source, target)}" for example in one.examples)
        yield from (f"  note  {topic.topic}: {note}" for note in topic.notes)


def _in_short(one: SubscriptionVerdict) -> str:
    if one.reason:
        unread = f" ({one.source_unread:,} entries unread)" if one.verdict is Verdict.DIFFERENT else ""
        return one.reason + unread
    counts = [
        f"{count:,} {_ONE[one.unit] if count == 1 else one.unit} would be {kind}"
        for kind, count in ((Kind.REDELIVERED, one.redelivered), (Kind.SKIPPED, one.skipped))
        if count
    ]
    return ", ".join([*counts, *(f"{name} {here} → {there}" for name, here, there in one.settings)])


def _delivery(one: Delivery, source: str, target: str) -> str:
    places = [f"{name} {at}" for name, at in ((source, one.source), (target, one.target)) if at]
    key = f"  key {one.key!r}" if one.key is not None else ""
    time = f"  {one.publish_time}" if one.publish_time else ""
    return f"{one.kind}  {' = '.join(places)}{key}{time}"
