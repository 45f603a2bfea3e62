"""What a migration is going to move: decided once, kept as an artefact, the same for every later step (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.migration.stats.facts import NamespaceFacts


class Phase(StrEnum):
    """How far a namespace has come; in this order."""

    REOPENED = "reopened"
    """Only on the way back: the cluster that a namespace returns to takes clients again, and has its topics anew."""
    CHECKED = "checked"
    PREPARED = "prepared"
    FROZEN = "frozen"
    REPLICATED = "replicated"
    QUIESCED = "quiesced"
    CUT_OVER = "cut_over"
    DRAINED = "drained"
    VERIFIED = "verified"
    CLEANED = "cleaned"
    """What continues on green was removed from blue, but something still lives there."""
    FINISHED = "finished"
    ABORTED = "aborted"
    """Everything that the run had changed was taken back before the first topic was closed."""


class Strategy(StrEnum):
    """How the messages get to green."""

    REDIRECT = "redirect"
    """Clients are sent to green; what is stored stays on blue until its consumers have drained it there."""

    REPLICATE = "replicate_then_switch"
    """Everything stored is geo-replicated first, subscriptions continue on green where they were."""


_BEFORE_TERMINATION = frozenset(
    {
        Phase.REOPENED,
        Phase.CHECKED,
        Phase.PREPARED,
        Phase.FROZEN,
        Phase.REPLICATED,
        Phase.QUIESCED,
        Phase.ABORTED,
    }
)


def is_reversible(phase: Phase) -> bool:
    """Whether stopping now undoes everything: true until the first topic of the namespace was terminated."""
    return phase in _BEFORE_TERMINATION


def still_reversible(phase: Phase) -> str:
    """One sentence for people: what can still be taken back, and how."""
    match phase:
        case Phase.ABORTED:
            return "nothing is left to take back"
        case Phase.CHECKED:
            return "nothing has been changed"
        case Phase.REOPENED:
            return "stop closes blue again: the flag is set, clients are redirected as before"
        case Phase.PREPARED | Phase.FROZEN | Phase.REPLICATED:
            return (
                "stop takes everything back: replication, overrides, and what the run created on green and nobody uses"
            )
        case Phase.QUIESCED:
            return "stop takes everything back as long as no topic is closed; a topic closes within one check period"
        case _:
            return "topics are closed for good: only a second migration leads back (fail_back_namespaces)"


@dataclass(frozen=True, slots=True)
class Clients:
    """Who was connected to one partition before the switch: as many must arrive on green.

    :param consumers: subscription → number of consumers; subscriptions without any are in it with 0.
    :param backlog: subscription → unread entries at that time.
    """

    producers: int
    consumers: Mapping[str, int]
    backlog: Mapping[str, int]

    @classmethod
    def of(cls, stats: TopicStats) -> Self:
        """Count the clients of a partition."""
        return cls(
            producers=stats.producers,
            consumers={name: subscription.consumers for name, subscription in stats.subscriptions.items()},
            backlog={name: subscription.backlog for name, subscription in stats.subscriptions.items()},
        )


@dataclass(frozen=True, slots=True)
class Move:
    """One namespace on its way from blue to green.

    :param topics: topic → partition count, 0 for a plain topic.
    :param partitions: what holds the messages → who was connected to it.
    """

    namespace: NamespaceName
    strategy: Strategy
    reason: str
    topics: Mapping[TopicName, int]
    partitions: Mapping[TopicName, Clients]

    @property
    def producers(self) -> int:
        """Producers over all partitions."""
        return sum(clients.producers for clients in self.partitions.values())

    @property
    def consumers(self) -> int:
        """Consumers over all partitions and subscriptions."""
        return sum(sum(clients.consumers.values()) for clients in self.partitions.values())

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "namespace": str(self.namespace),
            "strategy": self.strategy.value,
            "reason": self.reason,
            "topics": {str(topic): count for topic, count in self.topics.items()},
            "partitions": {
                str(topic): {
                    "producers": clients.producers,
                    "consumers": dict(clients.consumers),
                    "backlog": dict(clients.backlog),
                }
                for topic, clients in self.partitions.items()
            },
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            namespace=NamespaceName.parse(found["namespace"]),
            strategy=Strategy(found["strategy"]),
            reason=found["reason"],
            topics={TopicName.parse(topic): count for topic, count in found["topics"].items()},
            partitions={TopicName.parse(topic): Clients(**clients) for topic, clients in found["partitions"].items()},
        )


@dataclass(frozen=True, slots=True)
class Moves:
    """All moves of a run, with the clusters' own names."""

    blue: str
    green: str
    moves: tuple[Move, ...]

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        moves = [move.to_json() for move in self.moves]
        return {"schema_version": 1, "blue": self.blue, "green": self.green, "moves": moves}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(found["blue"], found["green"], tuple(Move.from_json(move) for move in found["moves"]))


def plan_move(facts: NamespaceFacts, wanted: Strategy | None, green: str) -> Move:
    """The move of one namespace to cluster `green`, by the strategy asked for or the one that loses nothing."""
    strategy, reason = (wanted, "asked for by the run's configuration") if wanted else choose_strategy(facts, green)
    return Move(
        namespace=facts.namespace,
        strategy=strategy,
        reason=reason,
        topics=facts.topics,
        # What is not persistent holds nothing, and the broker has no document that says whether it was handed over.
        partitions={one.topic: Clients.of(one) for one in facts.partitions if one.topic.persistent},
    )


def choose_strategy(facts: NamespaceFacts, green: str) -> tuple[Strategy, str]:
    """Redirect where every subscription drains by itself; replicate where something would stay behind on blue.

    What green gets copies of already is replicated too: redirected consumers would get each message from both sides.
    """
    if any(green in clusters for clusters in facts.links.values()):
        return Strategy.REPLICATE, f"it is replicated to {green} already"
    for partition in facts.partitions:
        for subscription in partition.subscriptions.values():
            if subscription.is_idle:
                return Strategy.REPLICATE, (
                    f"subscription {subscription.name!r} of {partition.topic} has {subscription.backlog} unread "
                    "entries and no consumer: it would never drain on blue"
                )
            if subscription.delayed:
                return Strategy.REPLICATE, (
                    f"subscription {subscription.name!r} of {partition.topic} holds delayed messages"
                )
    retention = (facts.blue or {}).get("retention_policies") or {}
    if retention.get("retentionTimeInMinutes") or retention.get("retentionSizeInMB"):
        return Strategy.REPLICATE, "the namespace retains messages that were already read"
    return Strategy.REDIRECT, "every subscription drains by itself and nothing is retained"
