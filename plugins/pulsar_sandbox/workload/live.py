"""The live namespace: its topics, subscriptions and messages (pure).

The estate creates it, the traffic writes and reads it, the tally counts it; all three agree by this module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.names import NamespaceName, TopicName


class SubscriptionType(StrEnum):
    """How the consumers of a subscription share its messages; the values are the broker's words."""

    EXCLUSIVE = "Exclusive"
    FAILOVER = "Failover"
    SHARED = "Shared"
    KEY_SHARED = "Key_Shared"

    @property
    def keeps_key_order(self) -> bool:
        """Whether messages of one key must arrive in the order in which they were published."""
        return self is not SubscriptionType.SHARED

    @property
    def client_name(self) -> str:
        """The name in `pulsar.ConsumerType`."""
        return self.value.replace("_", "")


EVENTS = "events"
EVENTS_PARTITIONS = 4
AUDIT = "audit"
IDLE_SUBSCRIPTION = "archive"
"""A subscription with backlog and without consumers, on both topics."""

CONSUMED = {
    "billing": SubscriptionType.SHARED,
    "ledger": SubscriptionType.FAILOVER,
    "mail": SubscriptionType.EXCLUSIVE,
    "search": SubscriptionType.KEY_SHARED,
}
"""The subscriptions that the traffic consumes, on both topics."""


RESTART_SECONDS = 15.0
"""After so long an operator restarts a stuck application: with two loaded cores one that followed a redirect by itself
acknowledged nothing for up to 13 s."""

Identity = tuple[str, str, int]
"""Producer, key, number: names a message wherever it is stored."""


@dataclass(frozen=True, slots=True, order=True)
class NumberedMessage:
    """One message of a workload.

    :param number: counts per producer and key, from 0.
    :param at: when it was first sent, milliseconds since 1970.
    """

    producer: str
    key: str
    number: int
    at: int

    @property
    def identity(self) -> Identity:
        """What names the message."""
        return self.producer, self.key, self.number

    def to_bytes(self) -> bytes:
        """The payload: JSON of the four fields, valid for the JSON schemas of the workload."""
        return json.dumps(
            {"producer": self.producer, "key": self.key, "number": self.number, "at": self.at}, separators=(",", ":")
        ).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> NumberedMessage:
        """Read a payload; anything that is not such JSON raises ValueError."""
        try:
            document = json.loads(payload)
            return cls(str(document["producer"]), str(document["key"]), int(document["number"]), int(document["at"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a numbered message: {payload[:80]!r}") from error


def live_topics(namespace: NamespaceName) -> tuple[TopicName, TopicName]:
    """The partitioned topic `events` and the plain topic `audit`."""
    return TopicName(namespace, EVENTS), TopicName(namespace, AUDIT)
