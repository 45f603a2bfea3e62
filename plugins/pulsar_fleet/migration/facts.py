"""What the gates and the watch look at, read out of the brokers' documents (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription of one partition. `backlog` counts entries (batches), not messages."""

    name: str
    kind: str
    backlog: int
    consumers: int
    delayed: int
    client_versions: frozenset[str]

    @property
    def is_idle(self) -> bool:
        """Nobody reads it and something is unread: it would never drain."""
        return self.consumers == 0 and self.backlog > 0


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Clients and backlog of one plain topic or partition, as its `stats` document tells."""

    topic: TopicName
    producers: int
    subscriptions: Mapping[str, SubscriptionFacts]
    client_versions: Mapping[str, frozenset[str]]
    transactions: int
    replication_backlog: Mapping[str, int]
    replication_connected: Mapping[str, bool]

    @classmethod
    def from_stats(cls, topic: TopicName, stats: JsonObject) -> PartitionFacts:
        """Read a `stats?getPreciseBacklog=true` document; missing fields count as nothing there."""
        subscriptions = {
            name: _subscription(name, document) for name, document in (stats.get("subscriptions") or {}).items()
        }
        publishers = stats.get("publishers") or []
        versions: dict[str, set[str]] = {}
        for publisher in publishers:
            versions.setdefault(_version(publisher), set()).add(_client("producer", publisher, "producerName"))
        for document in (stats.get("subscriptions") or {}).values():
            for consumer in document.get("consumers") or []:
                versions.setdefault(_version(consumer), set()).add(_client("consumer", consumer, "consumerName"))
        replication = {name: found for name, found in (stats.get("replication") or {}).items() if _is_outbound(found)}
        return cls(
            topic=topic,
            producers=len(publishers),
            subscriptions=subscriptions,
            client_versions={version: frozenset(clients) for version, clients in versions.items()},
            transactions=sum(
                int(stats.get(key) or 0) for key in ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")
            ),
            replication_backlog={name: int(found.get("replicationBacklog", 0)) for name, found in replication.items()},
            replication_connected={name: bool(found.get("connected")) for name, found in replication.items()},
        )

    @property
    def consumers(self) -> int:
        """Consumers of all its subscriptions."""
        return sum(subscription.consumers for subscription in self.subscriptions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as the gates need it.

    :param brokers: `host:port` → effective configuration, each broker asked by itself.
    :param redirect: the `ClusterUrl` that is stored for its clients, None if never set.
    """

    name: str
    brokers: Mapping[str, Mapping[str, str]]
    redirect: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFacts:
    """One namespace on both sides.

    :param blue: policies document on blue; None if it does not exist.
    :param green: the same on green.
    :param topics: topic on blue → partition count, 0 for a plain topic; without system topics.
    :param green_topics: the same on green.
    :param partitions: clients and backlog of everything on blue that holds messages.
    :param green_partitions: the same on green, where the namespace exists there.
    :param topic_publish_rates: topics that have a publish rate of their own, which beats the namespace's.
    """

    namespace: NamespaceName
    blue: JsonObject | None
    green: JsonObject | None
    topics: Mapping[TopicName, int]
    green_topics: Mapping[TopicName, int]
    partitions: tuple[PartitionFacts, ...]
    green_partitions: tuple[PartitionFacts, ...] = ()
    topic_publish_rates: tuple[TopicName, ...] = ()


def _subscription(name: str, document: JsonObject) -> SubscriptionFacts:
    consumers = document.get("consumers") or []
    return SubscriptionFacts(
        name=name,
        kind=str(document.get("type") or "none"),
        backlog=int(document.get("msgBacklog", 0)),
        consumers=len(consumers),
        delayed=int(document.get("msgDelayed", 0)),
        client_versions=frozenset(_version(consumer) for consumer in consumers),
    )


def _version(client: JsonObject) -> str:
    return str(client.get("clientVersion") or "unknown")


def _client(role: str, client: JsonObject, name: str) -> str:
    return f'{role} "{client.get(name, "")}" at {client.get("address", "?")}'


def _is_outbound(document: JsonObject) -> bool:
    # Inbound links are listed too; an outgoing replicator exists only where it has a connection or a cursor's backlog.
    return bool(document.get("outboundConnection")) or not document.get("inboundConnection")
