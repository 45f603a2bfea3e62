"""What a migration moves: decided once, stored as an artefact, the same for every later step (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.migration.facts import NamespaceFacts


class Phase(StrEnum):
    """The phase of a namespace's migration, in this order."""

    REOPENED = "reopened"
    """Only on a failback: the cluster that the namespace returns to accepts clients; its topics were recreated."""
    CHECKED = "checked"
    PREPARED = "prepared"
    FROZEN = "frozen"
    REPLICATED = "replicated"
    QUIESCED = "quiesced"
    RETURN_ENDED = "return_ended"
    """Green replicates to blue no more, and who is on blue still is not redirected yet."""
    MOVED = "moved"
    """Applications were led to green by their connection document, and can return: both clusters go on."""
    CUT_OVER = "cut_over"
    INCOMPLETE = "incomplete"
    """Blue could not terminate every topic: the others were moved and verified, and a person sees to these."""
    DRAINED = "drained"
    VERIFIED = "verified"
    CLEANED = "cleaned"
    """What continues on green was removed from blue, but a subscription or client is left there."""
    FINISHED = "finished"
    ABORTED = "aborted"
    """Everything that the run had changed was undone before the first topic was terminated."""


class Strategy(StrEnum):
    """How the messages of a namespace are moved to green."""

    REDIRECT = "redirect"
    """Clients are redirected to green; stored messages stay on blue until their consumers have read them there."""

    REPLICATE = "replicate_then_switch"
    """Stored messages are geo-replicated first; subscriptions continue on green at the same position."""

    WHOLE_CLUSTER = "replicate_then_redirect_cluster"
    """As `REPLICATE`, for every namespace of blue at once: its brokers can redirect only the whole cluster."""

    REPOINT = "replicate_then_repoint"
    """Messages are geo-replicated; owners connect every application to green; then blue refuses producers."""

    MOVE_CLIENTS = "replicate_then_move_clients"
    """Messages are geo-replicated in both directions, and a connection document leads the applications to green; blue
    goes on, and they can return until `COMPLETE`."""

    COMPLETE = "complete_move"
    """Applications were moved to green before, and both clusters replicate to each other: blue refuses producers, and
    no message goes back any more."""

    COMPLETE_AND_REDIRECT = "complete_move_and_redirect"
    """As `COMPLETE`, and clients that are on blue still are redirected to green by the flag of the namespace."""

    @property
    def copies(self) -> bool:
        """Whether messages are replicated to green."""
        return self is not Strategy.REDIRECT

    @property
    def redirects(self) -> bool:
        """Whether blue redirects the clients to green; otherwise their owners change their configuration."""
        return self in (
            Strategy.REDIRECT,
            Strategy.REPLICATE,
            Strategy.WHOLE_CLUSTER,
            Strategy.COMPLETE_AND_REDIRECT,
        )

    @property
    def ends_blue(self) -> bool:
        """Whether blue refuses producers at the end, so that no application returns to it."""
        return self is not Strategy.MOVE_CLIENTS

    @property
    def is_one_wave(self) -> bool:
        """Whether all namespaces of a run move at once: by one flag, or by one document."""
        return self in (Strategy.WHOLE_CLUSTER, Strategy.MOVE_CLIENTS)

    @property
    def is_moved_before(self) -> bool:
        """Whether applications are on green before the run begins: positions there are those of its consumers."""
        return self in (Strategy.COMPLETE, Strategy.COMPLETE_AND_REDIRECT)

    @property
    def redirects_rest(self) -> bool:
        """Whether blue redirects who is there still when other applications were moved before."""
        return self.is_moved_before and self.redirects

    @property
    def compares(self) -> bool:
        """Whether messages of both clusters are compared: not where applications have read and removed copies."""
        return self.copies and not self.is_moved_before

    @property
    def keeps_subscriptions(self) -> bool:
        """Whether subscriptions that continue on green stay on blue, at their end.

        Where blue serves its terminated topics, an application that restarts there would create a removed one again,
        from the earliest message. The flag of a namespace removes them (observed, 4.0 to 5.0).
        """
        return self not in (Strategy.REDIRECT, Strategy.REPLICATE, Strategy.COMPLETE_AND_REDIRECT)

    @property
    def flags_cluster(self) -> bool:
        """Whether the flag of the cluster redirects the clients, and not one for each namespace."""
        return self is Strategy.WHOLE_CLUSTER


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
    """Whether an abort undoes everything: true until the first topic of the namespace is terminated."""
    return phase in _BEFORE_TERMINATION


def reversal_text(phase: Phase) -> str:
    """What can still be undone in a phase, and how, as a clause for the report."""
    match phase:
        case Phase.ABORTED:
            return "everything was undone"
        case Phase.CHECKED:
            return "nothing has been changed"
        case Phase.REOPENED:
            return "abort sets the flag of the cluster that was reopened again: clients are redirected as before"
        case Phase.PREPARED | Phase.FROZEN | Phase.REPLICATED:
            return (
                "abort undoes everything: replication, overrides, and what the run created on the new cluster and no "
                "client uses"
            )
        case Phase.MOVED:
            return "return_clients leads the applications back; then abort undoes the rest"
        case Phase.RETURN_ENDED:
            return "applications cannot return, and others are on the old cluster still: finish this run"
        case Phase.QUIESCED:
            return (
                "abort undoes everything while no topic is terminated; brokers terminate topics within one check period"
            )
        case _:
            return "topics are terminated: only a second migration leads back (fail_back_namespaces)"


@dataclass(frozen=True, slots=True)
class PartitionClients:
    """Number of clients of one partition before the cut-over: as many must connect to green.

    :param consumers: subscription → number of consumers, also 0.
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


NOBODY = PartitionClients(0, {}, {})


@dataclass(frozen=True, slots=True)
class Move(Document):
    """The move of one namespace from blue to green.

    :param topics: topic → partition count, 0 for a plain topic.
    :param partitions: partition or plain topic → its clients.
    :param ended: those of `partitions` that their owner has terminated: they are terminated on green too.
    :param compacted: those of `partitions` whose compacted view has values: they are compacted on green too.
    :param stored_bytes: of all partitions on blue; None if it was not read.
    """

    namespace: NamespaceName
    strategy: Strategy
    reason: str
    topics: Mapping[TopicName, int]
    partitions: Mapping[TopicName, PartitionClients]
    ended: tuple[TopicName, ...] = ()
    compacted: tuple[TopicName, ...] = ()
    stored_bytes: int | None = None

    @property
    def stored_topics(self) -> list[TopicName]:
        """The topics whose messages are stored; a broker says of no other whether it is terminated (it answers 500)."""
        return [topic for topic in self.topics if topic.persistent]

    @property
    def producers(self) -> int:
        """Producers over all partitions."""
        return sum(clients.producers for clients in self.partitions.values())

    @property
    def consumers(self) -> int:
        """Consumers over all partitions and subscriptions."""
        return sum(sum(clients.consumers.values()) for clients in self.partitions.values())


@dataclass(frozen=True, slots=True)
class Moves(Document):
    """All moves of a run.

    :param blue: the cluster's own name; `green` likewise.
    """

    SCHEMA_VERSION = 1

    blue: str
    green: str
    moves: tuple[Move, ...]

    @property
    def names(self) -> dict[str, str]:
        """`blue` and `green` → the cluster's own name, for texts."""
        return {"blue": self.blue, "green": self.green}

    @property
    def move_clients(self) -> bool:
        """Whether a connection document leads the applications, and blue goes on."""
        return any(not move.strategy.ends_blue for move in self.moves)


@dataclass(frozen=True, slots=True)
class Followed:
    """Whether every client of the namespaces of a run reads the connection document of a group.

    :param why: who reads it and who does not, as a clause.
    """

    by_all: bool
    why: str


def plan_move(
    facts: NamespaceFacts,
    requested: Strategy | None,
    green: str,
    *,
    unflagged: str = "",
    followed: Followed | None = None,
) -> Move:
    """The move of one namespace to cluster `green`, with the requested strategy or the one that loses nothing.

    :param followed: None where no group may move by its document.
    :param unflagged: the version of blue's brokers that can redirect no single namespace; empty if they all can.
    """
    if requested:
        strategy, reason = requested, "set by the run's configuration"
    elif facts.led_to_green:
        strategy, reason = Strategy.COMPLETE, facts.led_to_green
    elif followed and followed.by_all:
        strategy, reason = Strategy.MOVE_CLIENTS, followed.why
    elif unflagged:
        strategy, reason = Strategy.REPOINT, f"brokers of Pulsar {unflagged} redirect no single namespace"
    else:
        strategy, reason = choose_strategy(facts, green)
    refused = followed.why if followed and strategy is not Strategy.MOVE_CLIENTS and not requested else ""
    return Move(
        namespace=facts.namespace,
        strategy=strategy,
        reason=f"{reason}. Not {Strategy.MOVE_CLIENTS}: {refused}" if refused else reason,
        # A gate reports shadow topics, which stay.
        topics={topic: count for topic, count in facts.topics.items() if topic not in facts.shadows},
        # A non-persistent topic stores nothing, and the broker does not report whether it is terminated.
        partitions={
            partition.topic: PartitionClients.of(partition)
            for partition in facts.partitions
            if partition.topic.persistent and partition.topic.parent not in facts.shadows
        },
        ended=facts.ended,
        compacted=tuple(facts.compacted),
        stored_bytes=None if facts.unread else sum(partition.stored_bytes for partition in facts.partitions),
    )


def choose_strategy(facts: NamespaceFacts, green: str) -> tuple[Strategy, str]:
    """Redirect where consumers drain every subscription; replicate where messages would stay on blue.

    A namespace that is replicated to green already must be replicated: redirected consumers would get each message from
    both clusters.
    """
    if any(green in clusters for clusters in facts.links.values()):
        return Strategy.REPLICATE, f"it is replicated to {green} already"
    for partition in facts.partitions:
        for subscription in partition.subscriptions.values():
            if subscription.is_idle:
                return Strategy.REPLICATE, (
                    f"subscription {subscription.name!r} of {partition.topic} has {subscription.backlog} unread "
                    "entries and no consumer: it would not drain"
                )
            if subscription.delayed:
                return Strategy.REPLICATE, (
                    f"subscription {subscription.name!r} of {partition.topic} has delayed messages"
                )
    for topic, view in facts.compacted.items():
        return Strategy.REPLICATE, f"{topic} has {counted(view.entries, 'value')} for readers of the compacted topic"
    if facts.retained:
        return Strategy.REPLICATE, f"{facts.retained} retains messages that were already read"
    return Strategy.REDIRECT, "every backlog has consumers and nothing is retained"
