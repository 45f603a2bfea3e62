"""What the journals of producers and consumers hold, as values (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pulsar_sandbox.workload.live import Identity, SubscriptionType


class Ack(NamedTuple):
    """A publish that a broker acknowledged: when it was sent and answered (microseconds), where it was stored."""

    identity: Identity
    sent: int
    at: int
    position: str


class Delivery(NamedTuple):
    """A message that a consumer received, and where it was stored: `partition:ledger:entry:batch index`."""

    identity: Identity
    at: int
    position: str


@dataclass(frozen=True, slots=True)
class Interruption:
    """A time without a connection to a partition, by the client library's own log; microseconds since 1970.

    :param partition: full name of the partition, or of the plain topic.
    :param began: when the connection was lost; None before the first.
    :param ended: when the next one was there; None if none came.
    :param restarted: whether the process was ended by its operator.
    """

    partition: str
    began: int | None
    ended: int | None
    restarted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerJournal:
    """One producer's life.

    :param failures: messages that were sent again, because the publish was answered with an error or the process was
        restarted before the answer; once each time.
    :param unanswered: messages sent and not answered when the producer ended.
    :param reopened: how often it replaced its client object, and `restarted`: how often its operator had to do that.
    :param stopped: when it stopped sending new messages (microseconds), None if it never got there.
    :param finished: it closed as planned.
    :param last_event: time of the last line, microseconds.
    """

    name: str
    topic: str
    acks: tuple[Ack, ...] = ()
    failures: tuple[Identity, ...] = ()
    unanswered: tuple[Identity, ...] = ()
    reopened: int = 0
    restarted: int = 0
    interruptions: tuple[Interruption, ...] = ()
    stopped: int | None = None
    finished: bool = True
    last_event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerJournal:
    """One consumer's life; fields as in `ProducerJournal`."""

    name: str
    topic: str
    subscription: str
    type: SubscriptionType
    deliveries: tuple[Delivery, ...] = ()
    reopened: int = 0
    restarted: int = 0
    interruptions: tuple[Interruption, ...] = ()
    finished: bool = True
    last_event: int = 0


def partition_of(topic: str, position: str) -> str:
    """The topic of the message at that position: a partition, or the plain topic itself."""
    partition = position.partition(":")[0]
    return topic if partition == "-1" else f"{topic}-partition-{partition}"
