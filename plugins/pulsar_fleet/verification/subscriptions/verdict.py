"""Verdicts on subscriptions: would a consumer that goes to the other cluster get exactly the rest? (pure)"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.subscriptions.correspondence import Unit

SCHEMA_VERSION = 1


class Kind(StrEnum):
    """What becomes of a message if the consumers go to the target."""

    REDELIVERED = "redelivered"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry that only one side would deliver.

    :param source: its position there, None where the source is not known to hold it.
    :param target: its position there, None where the target has acknowledged it or does not hold it.
    :param key: of its first message; None where it was not looked up.
    :param publish_time: as the broker writes it; None where it was not looked up.
    """

    kind: Kind
    source: str | None
    target: str | None
    key: str | None = None
    publish_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionVerdict:
    """What was found for one subscription of one topic.

    :param source_unread: how much it would still deliver on the source, in `unit`.
    :param settings: properties and the like that differ, as (name, source, target).
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
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        examples = tuple(Delivery(**{**one, "kind": Kind(one["kind"])}) for one in found["examples"])
        settings = tuple((str(name), str(here), str(there)) for name, here, there in found["settings"])
        typed = {"verdict": Verdict(found["verdict"]), "unit": Unit(found["unit"])}
        return cls(**{**found, **typed, "examples": examples, "settings": settings})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscriptions:
    """The subscriptions of one topic, or why they could not be looked at.

    :param topic: a topic, or a namespace when the reason holds for all of it.
    :param known: equal where both sides were read, so that a topic without a subscription is equal.
    """

    topic: str
    known: Verdict
    reason: str = ""
    subscriptions: tuple[SubscriptionVerdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Equal only if both sides were read and every subscription is equal."""
        return Verdict.over([self.known, *(each.verdict for each in self.subscriptions)])

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        subscriptions = [each.to_json() for each in self.subscriptions]
        head = {"topic": self.topic, "known": self.known, "reason": self.reason, "notes": self.notes}
        return {**head, "verdict": self.verdict, "subscriptions": subscriptions}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote; the verdict is derived anew."""
        return cls(
            topic=str(found["topic"]),
            known=Verdict(found["known"]),
            reason=str(found["reason"]),
            subscriptions=tuple(SubscriptionVerdict.from_json(each) for each in found["subscriptions"]),
            notes=tuple(found["notes"]),
        )


@dataclass(frozen=True, slots=True)
class NamespaceSubscriptions:
    """The topics of one namespace."""

    namespace: str
    topics: tuple[TopicSubscriptions, ...]

    @property
    def verdict(self) -> Verdict:
        """Equal only if every topic is, and there is at least one."""
        return Verdict.over(topic.verdict for topic in self.topics)

    @property
    def subscriptions(self) -> int:
        """Subscriptions compared, those of each topic counted apart."""
        return sum(len(topic.subscriptions) for topic in self.topics)

    @property
    def unread(self) -> int:
        """What they would still deliver on the source: entries, and messages where entries are not alike."""
        return sum(each.source_unread for topic in self.topics for each in topic.subscriptions)


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
        """Subscriptions compared, those of each topic counted apart."""
        return sum(namespace.subscriptions for namespace in self.namespaces)

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        namespaces = [
            {"namespace": each.namespace, "verdict": each.verdict, "topics": [one.to_json() for one in each.topics]}
            for each in self.namespaces
        ]
        head = {"schema_version": SCHEMA_VERSION, "source": self.source, "target": self.target}
        return json.dumps({**head, "verdict": self.verdict, "namespaces": namespaces}, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; verdicts of namespaces are derived anew from their topics."""
        found: JsonObject = json.loads(content)
        namespaces = tuple(
            NamespaceSubscriptions(
                str(each["namespace"]), tuple(TopicSubscriptions.from_json(one) for one in each["topics"])
            )
            for each in found["namespaces"]
        )
        return cls(str(found["source"]), str(found["target"]), namespaces)
