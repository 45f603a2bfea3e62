"""Verdicts on subscriptions: would a consumer that moves to the target get exactly the unread messages? (pure)"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.subscriptions.correspondence import Unit


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
