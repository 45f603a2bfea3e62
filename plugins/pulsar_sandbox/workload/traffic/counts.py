"""From the journals of a traffic run to its tally (pure).

Times in journals are microseconds since 1970, all taken on one machine; a tally is in milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from pulsar_sandbox.workload.live import Identity
from pulsar_sandbox.workload.traffic.duplicates import Publishing, explain_duplicates
from pulsar_sandbox.workload.traffic.records import Ack, ConsumerJournal, Delivery, ProducerJournal, partition_of
from pulsar_sandbox.workload.traffic.tally import (
    ConsumerTally,
    Gap,
    PartitionTally,
    ProducerTally,
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
