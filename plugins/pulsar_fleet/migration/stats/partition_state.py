"""The state of one partition on one cluster: backlog, clients, its broker, or why it has no statistics (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Self

from pulsar_fleet.cluster.document import Document, Rounded
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import ConnectedClient, Role, TopicStats
from pulsar_fleet.snapshot.inventory import members, topics_in


class Absence(StrEnum):
    """Why a partition has no statistics: none of these means a backlog of 0."""

    UNLOADED = "unloaded"
    """The broker answers 500 "already migrated": unloaded under the flag, it cannot be loaded again."""

    UNLISTED = "unlisted"
    """No broker lists it among its loaded topics."""

    GONE = "gone"
    """It does not exist."""

    UNREACHABLE = "unreachable"
    """No broker answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState(Document):
    """The state of a partition on one cluster.

    :param at: when it was read, seconds since 1970.
    :param close: read from its own statistics; else from its broker's list, which may be a minute old.
    :param backlog: subscription → unread entries.
    :param unsent: unreplicated entries, over all clusters that it replicates to.
    :param stored: bytes, acknowledged or not.
    :param broker: `host:port` of its broker, empty if unknown; `bundle` likewise.
    """

    at: Annotated[float, Rounded(3)]
    close: bool
    absence: Absence | None = None
    backlog: Mapping[str, int] = field(default_factory=dict)
    unsent: int = 0
    clients: tuple[ConnectedClient, ...] = ()
    stored: int = 0
    broker: str = ""
    bundle: str = ""

    @classmethod
    def of(cls, stats: TopicStats, *, at: float, close: bool, broker: str = "", bundle: str = "") -> Self:
        """Read its statistics."""
        return cls(
            at=at,
            close=close,
            backlog={name: subscription.backlog for name, subscription in stats.subscriptions.items()},
            unsent=sum(stats.replication_backlog.values()),
            clients=stats.clients,
            stored=stats.stored_bytes,
            broker=broker,
            bundle=bundle,
        )

    @property
    def is_gone(self) -> bool:
        """Whether its broker answered that it does not exist."""
        return self.close and self.absence is Absence.GONE

    @property
    def producers(self) -> int:
        """Connected producers."""
        return sum(client.role is Role.PRODUCER for client in self.clients)

    def consumers(self, subscription: str) -> int:
        """Connected consumers of one subscription."""
        return sum(client.role is not Role.PRODUCER and client.subscription == subscription for client in self.clients)


PartitionStates = Mapping[TopicName, PartitionState]


def read_loaded(
    broker: str, text: str, selected: Mapping[NamespaceName, frozenset[TopicName]], at: float
) -> dict[TopicName, PartitionState]:
    """The states of the selected topics in a broker's list of loaded topics; parses one namespace at a time."""
    names = {str(name): topics for name, topics in selected.items()}
    states: dict[TopicName, PartitionState] = {}
    for namespace, bundles in members(text):
        if namespace in names:
            for bundle, topic, document in topics_in(bundles):
                if topic in names[namespace]:
                    stats = TopicStats.of(topic, document)
                    states[topic] = PartitionState.of(stats, at=at, close=False, broker=broker, bundle=bundle)
    return states
