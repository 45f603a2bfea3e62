"""From the journals of a traffic run to its tally (pure).

Times in journals are microseconds since 1970, all taken on one machine; a tally is in milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from pulsar_sandbox.workload.live import Identity
from pulsar_sandbox.workload.traffic.records import (
    Ack,
    ConsumerJournal,
    Delivery,
    Interruption,
    ProducerJournal,
    partition_of,
)
from pulsar_sandbox.workload.traffic.tally import (
    ConsumerTally,
    Duplicates,
    Gap,
    PartitionTally,
    ProducerTally,
    Repetition,
    SubscriptionTally,
    Tally,
)

_EXAMPLES = 5


def tally(producers: Sequence[ProducerJournal], consumers: Sequence[ConsumerJournal]) -> Tally:
    """Count the journals of one traffic run."""
    acks = [ack for producer in producers for ack in producer.acks]
    journals: list[ProducerJournal | ConsumerJournal] = [*producers, *consumers]
    ended = max((journal.last_event for journal in journals), default=0)
    groups: dict[tuple[str, str], list[ConsumerJournal]] = defaultdict(list)
    for consumer in consumers:
        groups[consumer.topic, consumer.subscription].append(consumer)
    return Tally(
        finished=bool(journals) and all(member.finished for member in journals),
        began=_milliseconds(min((ack.at for ack in acks), default=None)),
        ended=_milliseconds(ended) if ended else None,
        producers=tuple(_producer(member, ended) for member in producers),
        consumers=tuple(_consumer(member, producers) for member in consumers),
        subscriptions=tuple(_subscription(group, producers) for _, group in sorted(groups.items())),
        partitions=_partitions(producers, ended),
    )


def longest_gap(events: Iterable[int], start: int, end: int) -> Gap:
    """The longest time without an event between `start` and `end`, which count as events themselves."""
    inside = sorted(event for event in events if start <= event <= end)
    width, began = max((later - earlier, -earlier) for earlier, later in pairwise([start, *inside, end]))
    return Gap(round(width / 1000), -began // 1000)


def _producer(journal: ProducerJournal, ended: int) -> ProducerTally:
    times = [ack.at for ack in journal.acks]
    return ProducerTally(
        name=journal.name,
        topic=journal.topic,
        published=len(times),
        failed=len(journal.failures),
        unanswered=len(journal.unanswered),
        reopened=journal.reopened,
        restarted=journal.restarted,
        gap=longest_gap(times, min(times), max(max(times), journal.stopped or ended)) if times else None,
    )


def _consumer(journal: ConsumerJournal, producers: Sequence[ProducerJournal]) -> ConsumerTally:
    return ConsumerTally(
        name=journal.name,
        topic=journal.topic,
        subscription=journal.subscription,
        deliveries=len(journal.deliveries),
        reopened=journal.reopened,
        restarted=journal.restarted,
        gap=_delivery_gap(journal.deliveries, _acks_of(journal.topic, producers)) if journal.deliveries else None,
    )


def _subscription(group: Sequence[ConsumerJournal], producers: Sequence[ProducerJournal]) -> SubscriptionTally:
    topic, kind = group[0].topic, group[0].type
    acks = _acks_of(topic, producers)
    writers = [journal for journal in producers if journal.topic == topic]
    attempted = {identity for journal in writers for identity in journal.unanswered}
    failed = {identity for journal in writers for identity in journal.failures}
    unsorted = (delivery for journal in group for delivery in journal.deliveries)
    deliveries = sorted(unsorted, key=lambda delivery: delivery.at)
    arrived = {delivery.identity for delivery in deliveries}
    missing = [identity for identity in acks if identity not in arrived]
    breaks = _order_breaks(deliveries)
    return SubscriptionTally(
        topic=topic,
        subscription=group[0].subscription,
        type=kind.value,
        ordered=kind.keeps_key_order,
        published=len(acks),
        received=len(acks) - len(missing),
        unreceived=len(missing),
        earlier=len(arrived - acks.keys() - failed - attempted),
        duplicates=explain_duplicates(topic, group, Publishing.of(writers)),
        order_breaks=len(breaks),
        order_breaks_resent=len(breaks & failed),
        gap=_delivery_gap(deliveries, acks),
        missing=tuple(missing[:_EXAMPLES]),
    )


def _acks_of(topic: str, producers: Sequence[ProducerJournal]) -> Mapping[Identity, Ack]:
    return {ack.identity: ack for journal in producers if journal.topic == topic for ack in journal.acks}


def _order_breaks(deliveries: Iterable[Delivery]) -> set[Identity]:
    delivered: set[Identity] = set()
    highest: dict[tuple[str, str], int] = {}
    breaks = set()
    for delivery in deliveries:
        producer, key, number = identity = delivery.identity
        if identity in delivered:
            continue
        delivered.add(identity)
        if number < highest.get((producer, key), -1):
            breaks.add(identity)
        else:
            highest[producer, key] = number
    return breaks


def _delivery_gap(deliveries: Iterable[Delivery], acks: Mapping[Identity, Ack]) -> Gap | None:
    """Measured while the topic was written to: before the first and after the last publish there is nothing to get."""
    times = [ack.at for ack in acks.values()]
    return longest_gap((delivery.at for delivery in deliveries), min(times), max(times)) if times else None


def _partitions(producers: Sequence[ProducerJournal], ended: int) -> tuple[PartitionTally, ...]:
    times: dict[str, list[int]] = defaultdict(list)
    stops: dict[str, int] = {}
    for journal in producers:
        for ack in journal.acks:
            name = partition_of(journal.topic, ack.position)
            times[name].append(ack.at)
            stops[name] = max(stops.get(name, 0), journal.stopped or ended)
    return tuple(
        PartitionTally(name, len(acked), longest_gap(acked, min(acked), max(max(acked), stops[name])))
        for name, acked in sorted(times.items())
    )


def _milliseconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds // 1000


ACKNOWLEDGED_MICROSECONDS = 1_000_000
"""Acknowledgements are collected for 0.1 s before they are sent; on a loaded machine that takes longer."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """What the producers of a topic know of their messages.

    :param resent: how often each message was sent again after a failure or a restart.
    :param interruptions: those of each producer.
    """

    acks: Mapping[Identity, Ack]
    resent: Counter[Identity]
    interruptions: Mapping[str, Sequence[Interruption]]

    @classmethod
    def of(cls, producers: Iterable[ProducerJournal]) -> Self:
        """From the journals of the topic's producers."""
        journals = tuple(producers)
        return cls(
            acks={ack.identity: ack for journal in journals for ack in journal.acks},
            resent=Counter(identity for journal in journals for identity in journal.failures),
            interruptions={journal.name: journal.interruptions for journal in journals},
        )

    def in_flight(self, identity: Identity, partition: str) -> int:
        """How often the producer lost and regained its connection to the partition while the publish had no answer."""
        if (ack := self.acks.get(identity)) is None:
            return 0
        return sum(
            interruption.began is not None
            and interruption.ended is not None
            and ack.sent <= interruption.began
            and interruption.ended <= ack.at
            for interruption in self.interruptions.get(identity[0], ())
            if interruption.partition == partition
        )


@dataclass(slots=True)
class _Copies:
    """The deliveries of one message so far: their positions, and when the latest from each position came."""

    positions: list[str]
    latest: dict[str, int]


def explain_duplicates(topic: str, consumers: Sequence[ConsumerJournal], publishing: Publishing) -> Duplicates:
    """Count the repeated deliveries of one subscription by their causes.

    :param consumers: the journals of the subscription's consumers.
    :param publishing: of the topic's producers.
    """
    interruptions: dict[str, list[Interruption]] = defaultdict(list)
    for interruption in (interruption for journal in consumers for interruption in journal.interruptions):
        interruptions[interruption.partition].append(interruption)
    causes: Counter[str] = Counter()
    unexplained: list[Repetition] = []
    messages: dict[Identity, _Copies] = {}
    deliveries = sorted((item for journal in consumers for item in journal.deliveries), key=lambda item: item.at)
    for delivery in deliveries:
        copies = messages.setdefault(delivery.identity, _Copies([], {}))
        partition = partition_of(topic, delivery.position)
        cause: str | None = "first"
        if earlier := copies.latest.get(delivery.position):
            cause = _redelivery(interruptions[partition], earlier, delivery.at)
        elif copies.latest:
            cause = _second_copy(delivery.identity, len(copies.latest), partition, publishing)
        copies.positions.append(delivery.position)
        copies.latest[delivery.position] = delivery.at
        if cause is None:
            unexplained.append(Repetition(delivery.identity, partition, tuple(copies.positions)))
        else:
            causes[cause] += 1
    del causes["first"]
    return Duplicates(**causes, unexplained=tuple(unexplained))


def _redelivery(interruptions: Iterable[Interruption], earlier: int, again: int) -> str | None:
    """Why the same stored message came again: any consumer of a subscription may get what another had not acknowledged.

    A consumer that joins or leaves takes partitions and keys from the others, so its first connection counts too.
    """
    causes = [
        interruption
        for interruption in interruptions
        if _began(interruption) <= again
        and (interruption.ended is None or earlier <= interruption.ended + ACKNOWLEDGED_MICROSECONDS)
    ]
    if not causes:
        return None
    return "restarted" if any(interruption.restarted for interruption in causes) else "reconnected"


def _began(interruption: Interruption) -> int:
    if interruption.began is not None:
        return interruption.began
    return interruption.ended or 0


def _second_copy(identity: Identity, copies: int, partition: str, publishing: Publishing) -> str | None:
    """Why a message with `copies` counted copies is stored once more: each repeated publish explains one copy."""
    resent = publishing.resent[identity]
    if copies <= resent:
        return "resent"
    return "in_flight" if copies <= resent + publishing.in_flight(identity, partition) else None
