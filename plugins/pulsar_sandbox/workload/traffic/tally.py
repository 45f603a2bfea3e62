"""The result of a traffic run: losses, duplicates, order breaks, publish pauses, as values and as text (pure).

Gaps and times are in milliseconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median

from pulsar_fleet.cluster.json import JsonObject
from pulsar_sandbox.workload.live import Identity


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time without an event: how many milliseconds, and when it began (milliseconds since 1970)."""

    milliseconds: int
    began: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """A delivery of a message that the subscription had received before, without evidence in the journals for why.

    :param partition: full name of the partition, or of the plain topic.
    :param positions: where the deliveries so far were stored, this one last: `partition:ledger:entry:batch index`.
    """

    identity: Identity
    partition: str
    positions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Deliveries of messages that the subscription had received before, by their cause.

    :param restarted: the same stored message again: a consumer was restarted before its acknowledgement.
    :param reconnected: the same stored message again: a consumer of the subscription lost its connection, or came,
        before its acknowledgement.
    :param resent: stored twice: the publish failed, or its application was restarted, and it was sent again.
    :param in_flight: stored twice: the producer lost its connection before the answer, and the client library sent the
        message again.
    :param unexplained: none of these; a migration that copies messages must explain them.
    """

    restarted: int = 0
    reconnected: int = 0
    resent: int = 0
    in_flight: int = 0
    unexplained: tuple[Repetition, ...] = ()

    @property
    def total(self) -> int:
        """All of them."""
        return self.restarted + self.reconnected + self.resent + self.in_flight + len(self.unexplained)


@dataclass(frozen=True, slots=True)
class ProducerTally:
    """One producer: messages stored, publishes failed, messages still unanswered at the end, the longest publish pause.

    :param restarted: how often its operator had to restart it.
    """

    name: str
    topic: str
    published: int
    failed: int
    unanswered: int
    reopened: int
    gap: Gap | None
    restarted: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerTally:
    """One consumer: deliveries and the longest gap between them; a standby has no gap."""

    name: str
    topic: str
    subscription: str
    deliveries: int
    reopened: int
    gap: Gap | None
    restarted: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionTally:
    """One subscription of one topic, all its consumers together.

    :param published: messages of this traffic stored in the topic.
    :param received: how many of them arrived.
    :param unreceived: how many did not; `lost` once the tally is finished.
    :param earlier: messages received that this traffic did not publish.
    :param order_breaks: messages that arrived after a later one of their producer and key, repetitions aside.
    :param order_breaks_resent: how many of these were sent again after a failed publish.
    :param ordered: whether the subscription's type promises order per key.
    :param missing: up to five of the unreceived messages: producer, key, number.
    """

    topic: str
    subscription: str
    type: str
    ordered: bool
    published: int
    received: int
    unreceived: int
    earlier: int
    duplicates: Duplicates
    order_breaks: int
    order_breaks_resent: int
    gap: Gap | None
    missing: tuple[Identity, ...]


@dataclass(frozen=True, slots=True)
class PartitionTally:
    """One partition (or plain topic): messages stored, and the longest time in which none was."""

    topic: str
    published: int
    gap: Gap | None


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of a traffic run.

    :param finished: every journal ends as planned; otherwise nothing can be called lost yet.
    :param began: first acknowledged publish, milliseconds since 1970; `ended`: the last event.
    """

    finished: bool
    began: int | None
    ended: int | None
    producers: tuple[ProducerTally, ...]
    consumers: tuple[ConsumerTally, ...]
    subscriptions: tuple[SubscriptionTally, ...]
    partitions: tuple[PartitionTally, ...]

    @property
    def published(self) -> int:
        """Messages that a broker acknowledged."""
        return sum(producer.published for producer in self.producers)

    @property
    def failed(self) -> int:
        """Publishes that were answered with an error, each one tried again."""
        return sum(producer.failed for producer in self.producers)

    @property
    def restarted(self) -> tuple[str, ...]:
        """Applications that did not go on by themselves, such as a client that dead-locked on a redirect."""
        writing = tuple(producer.name for producer in self.producers if producer.restarted)
        return writing + tuple(consumer.name for consumer in self.consumers if consumer.restarted)

    @property
    def received(self) -> int:
        """Messages received, each counted once per subscription."""
        return sum(subscription.received for subscription in self.subscriptions)

    @property
    def unreceived(self) -> int:
        """Acknowledged messages that a subscription with consumers has not received (yet)."""
        return sum(subscription.unreceived for subscription in self.subscriptions)

    @property
    def lost(self) -> int | None:
        """`unreceived` of a finished run; None while messages may still be on their way."""
        return self.unreceived if self.finished else None

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first."""
        return sum(subscription.duplicates.total for subscription in self.subscriptions)

    @property
    def order_breaks(self) -> int:
        """Order breaks in subscriptions whose type promises order per key."""
        return sum(subscription.order_breaks for subscription in self.subscriptions if subscription.ordered)

    @property
    def publish_pauses(self) -> tuple[tuple[str, Gap], ...]:
        """The longest publish pause of each partition, the longest first."""
        gaps = [(partition.topic, partition.gap) for partition in self.partitions if partition.gap]
        return tuple(sorted(gaps, key=lambda item: (-item[1].milliseconds, item[0])))

    def to_json(self) -> JsonObject:
        """The whole tally with its totals."""
        totals = {
            name: getattr(self, name)
            for name in ("published", "failed", "received", "unreceived", "lost", "duplicates", "order_breaks")
        }
        return {"schema_version": 1, "totals": totals, **asdict(self)}

    def lines(self) -> tuple[tuple[str, str], ...]:
        """The result for a person, as (word, sentence)."""
        return (("clients", self._clients()), ("pause", self._publish_pause()), ("messages", self._messages()))

    def text(self) -> str:
        """The lines, aligned."""
        return "\n".join(f"{word:<9} {sentence}" for word, sentence in self.lines())

    def _clients(self) -> str:
        writing = sum(producer.unanswered == 0 and producer.published > 0 for producer in self.producers)
        caught_up = sum(subscription.unreceived == 0 for subscription in self.subscriptions)
        return (
            f"{writing} of {len(self.producers)} producers got an answer to all they sent, "
            f"{caught_up} of {len(self.subscriptions)} subscriptions ({len(self.consumers)} consumers) received all"
            + (f"; {', '.join(self.restarted)} had to be restarted" if self.restarted else "")
        )

    def _publish_pause(self) -> str:
        if not self.publish_pauses:
            return "nothing was published"
        topic, gap = self.publish_pauses[0]
        middle = median(other.milliseconds for _, other in self.publish_pauses)
        return f"longest {gap.milliseconds / 1000:.1f} s ({topic.partition('://')[2]}), median {middle / 1000:.1f} s"

    def _messages(self) -> str:
        missing = f"{self.lost:,} lost" if self.lost is not None else f"{self.unreceived:,} not received yet"
        failed = f", {self.failed:,} publishes failed and were sent again" if self.failed else ""
        return (
            f"{self.published:,} published, {self.received:,} received; "
            f"{missing}, {self.duplicates:,} duplicates, {self.order_breaks:,} order breaks{failed}"
        )
