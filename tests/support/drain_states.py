"""States of partitions as brokers report them, for tests of the drain's monitor."""

from __future__ import annotations

from typing import Any

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.migration.facts import Absence, PartitionState
from pulsar_fleet.migration.model import Move, PartitionClients, Strategy

ORDERS = NamespaceName("acme", "orders")
EVENTS = TopicName(ORDERS, "events")
FIRST, SECOND = EVENTS.partitions(2)


def client(name: str, version: str = "Pulsar-Java-v4.2.4") -> dict[str, Any]:
    """A producer or consumer as statistics show it."""
    return {"producerName": name, "consumerName": name, "clientVersion": version, "address": f"/10.0.0.1:{len(name)}"}


def stats(*producers: str, **subscriptions: tuple[int, list[str]]) -> dict[str, Any]:
    """Statistics with subscriptions given as (backlog, consumers' names)."""
    return {
        "publishers": [client(name) for name in producers],
        "subscriptions": {
            name: {"type": "Shared", "msgBacklog": backlog, "consumers": [client(consumer) for consumer in consumers]}
            for name, (backlog, consumers) in subscriptions.items()
        },
    }


def seen(document: dict[str, Any] | Absence, *, at: float = 0.0, close: bool = True, **place: str) -> PartitionState:
    """One partition as one poll read it."""
    if isinstance(document, Absence):
        return PartitionState(at=at, close=close, absence=document)
    return PartitionState.of(TopicStats.of(FIRST, document), at=at, close=close, **place)


def move_of(strategy: Strategy = Strategy.REDIRECT, **partitions: dict[str, Any]) -> Move:
    """A move of two partitions, given by their statistics before the switch."""
    names = {"first": FIRST, "second": SECOND}
    return Move(
        namespace=ORDERS,
        strategy=strategy,
        reason="",
        topics={EVENTS: 2},
        partitions={
            names[key]: PartitionClients.of(TopicStats.of(names[key], document)) for key, document in partitions.items()
        },
    )
