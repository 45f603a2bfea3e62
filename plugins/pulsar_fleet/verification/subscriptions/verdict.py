"""Verdicts on subscriptions: would a consumer that moves to the target get exactly the unread messages? (pure)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import UNKNOWN_TYPE
from pulsar_fleet.messages.positions import Intervals
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.subscriptions.correspondence import Discrepancy, Unit


class Kind(StrEnum):
    """What happens to a message if the consumers move to the target."""

    REDELIVERED = "redelivered"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry that only one cluster would deliver.

    :param source: its position on the source; None if the source may not have it.
    :param target: its position on the target; None if the target has acknowledged it or does not have it.
    :param key: of its first message; None if it was not read.
    :param publish_time: as the broker writes it; None if it was not read.
    """

    kind: Kind
    source: str | None
    target: str | None
    key: str | None = None
    publish_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionVerdict(Document):
    """The verdict on one subscription of one topic.

    :param source_unread: its backlog on the source, in `unit`.
    :param repeated: how many of the redelivered messages the target stores more often than the source.
    :param settings: differing properties and settings, as (name, source, target).
    """

    subscription: str
    verdict: Verdict
    reason: str = ""
    unit: Unit = Unit.ENTRIES
    source_unread: int = 0
    target_unread: int = 0
    redelivered: int = 0
    skipped: int = 0
    repeated: int = 0
    examples: tuple[Delivery, ...] = ()
    settings: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscriptions(Document):
    """The subscriptions of one topic, or why they could not be compared.

    :param topic: a topic, or a namespace if the reason applies to all of it.
    :param topic_verdict: equal if both clusters were read, so that a topic without a subscription is equal.
    """

    PROPERTIES = ("verdict",)

    topic: str
    topic_verdict: Verdict
    reason: str = ""
    subscriptions: tuple[SubscriptionVerdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Equal only if both clusters were read and every subscription is equal."""
        return Verdict.over([self.topic_verdict, *(subscription.verdict for subscription in self.subscriptions)])


@dataclass(frozen=True, slots=True)
class NamespaceSubscriptions(Document):
    """The topics of one namespace."""

    PROPERTIES = ("verdict",)

    namespace: str
    topics: tuple[TopicSubscriptions, ...]

    @property
    def verdict(self) -> Verdict:
        """Equal only if there is at least one topic and all topics are equal."""
        return Verdict.over(topic.verdict for topic in self.topics)

    @property
    def subscriptions(self) -> int:
        """The number of compared subscriptions; each topic counts its own."""
        return sum(len(topic.subscriptions) for topic in self.topics)

    @property
    def unread(self) -> int:
        """Their backlog on the source: entries, or messages where entries do not match one to one."""
        return sum(subscription.source_unread for topic in self.topics for subscription in topic.subscriptions)


@dataclass(frozen=True, slots=True)
class SubscriptionVerification(Document):
    """The verdicts of one request."""

    SCHEMA_VERSION = 2
    OTHER_VERSION = "verify again"
    INDENT = 1
    PROPERTIES = ("verdict", "by_verdict")

    source: str
    target: str
    namespaces: tuple[NamespaceSubscriptions, ...]

    @property
    def verdict(self) -> Verdict:
        """Over all namespaces."""
        return Verdict.over(namespace.verdict for namespace in self.namespaces)

    @property
    def subscriptions(self) -> int:
        """The number of compared subscriptions; each topic counts its own."""
        return sum(namespace.subscriptions for namespace in self.namespaces)

    @property
    def by_verdict(self) -> dict[Verdict, int]:
        """The number of subscriptions by verdict; a topic that could not be compared as a whole counts as one."""
        topics = [topic for namespace in self.namespaces for topic in namespace.topics]
        alone = [topic.topic_verdict for topic in topics if topic.topic_verdict is not Verdict.EQUAL]
        return Verdict.counts([*alone, *(item.verdict for topic in topics for item in topic.subscriptions)])


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
