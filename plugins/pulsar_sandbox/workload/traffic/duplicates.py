"""Why a subscription got a message more than once: a cause counts only with its evidence in the journals (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_sandbox.workload.live import Identity
from pulsar_sandbox.workload.traffic.records import Ack, ConsumerJournal, Interruption, ProducerJournal, partition_of
from pulsar_sandbox.workload.traffic.tally import Duplicates, Repetition

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
