"""Verdicts on subscriptions: would a consumer that moves to the target get exactly the unread messages? (pure)"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.subscriptions.correspondence import Unit

SCHEMA_VERSION = 2


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
class SubscriptionVerdict:
    """The verdict on one subscription of one topic.

    :param source_unread: its backlog on the source, in `unit`.
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
    examples: tuple[Delivery, ...] = ()
    settings: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        examples = tuple(Delivery(**{**example, "kind": Kind(example["kind"])}) for example in document["examples"])
        settings = tuple((str(name), str(source), str(target)) for name, source, target in document["settings"])
        typed = {"verdict": Verdict(document["verdict"]), "unit": Unit(document["unit"])}
        return cls(**{**document, **typed, "examples": examples, "settings": settings})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscriptions:
    """The subscriptions of one topic, or why they could not be compared.

    :param topic: a topic, or a namespace if the reason applies to all of it.
    :param topic_verdict: equal if both clusters were read, so that a topic without a subscription is equal.
    """

    topic: str
    topic_verdict: Verdict
    reason: str = ""
    subscriptions: tuple[SubscriptionVerdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Equal only if both clusters were read and every subscription is equal."""
        return Verdict.over([self.topic_verdict, *(subscription.verdict for subscription in self.subscriptions)])

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read what `to_json` wrote; the verdict is derived again."""
        return cls(
            topic=str(document["topic"]),
            topic_verdict=Verdict(document["topic_verdict"]),
            reason=str(document["reason"]),
            subscriptions=tuple(
                SubscriptionVerdict.from_json(subscription) for subscription in document["subscriptions"]
            ),
            notes=tuple(document["notes"]),
        )


@dataclass(frozen=True, slots=True)
class NamespaceSubscriptions:
    """The topics of one namespace."""

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
class SubscriptionVerification:
    """The verdicts of one request."""

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

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        namespaces = [
            {"namespace": item.namespace, "verdict": item.verdict, "topics": [topic.to_json() for topic in item.topics]}
            for item in self.namespaces
        ]
        head = {"schema_version": SCHEMA_VERSION, "source": self.source, "target": self.target}
        return json.dumps({**head, "verdict": self.verdict, "namespaces": namespaces}, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; the verdicts of namespaces are derived from their topics again.

        A document of another version is `InvalidRequest`.
        """
        document: JsonObject = json.loads(content)
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The verdict on subscriptions has version {document.get('schema_version')!r}, this release reads "
                f"version {SCHEMA_VERSION}: verify again."
            )
        namespaces = tuple(
            NamespaceSubscriptions(
                str(namespace["namespace"]), tuple(TopicSubscriptions.from_json(topic) for topic in namespace["topics"])
            )
            for namespace in document["namespaces"]
        )
        return cls(str(document["source"]), str(document["target"]), namespaces)
