"""What the gates and the watch look at, read out of the brokers' documents (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.admin.read_problems import Note
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName


class Role(StrEnum):
    """What a client does on a topic."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    READER = "reader"
    """A consumer whose position the broker does not keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """One producer or consumer that is connected.

    :param address: `host:port` of its end of the connection: one for all that one client object has on this broker.
    :param since: as the broker writes it.
    :param subscription: what it reads, empty for a producer.
    """

    role: Role
    name: str
    address: str
    version: str
    since: str = ""
    subscription: str = ""

    def text(self) -> str:
        """`consumer "billing-3" at 10.2.0.17:5512`."""
        return f'{self.role} "{self.name}" at {self.address or "?"}'


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription of one partition. `backlog` counts entries (batches), not messages.

    :param last_seen: when somebody last read or acknowledged, ms since 1970; 0: not since the topic was loaded.
    """

    name: str
    kind: str
    backlog: int
    consumers: int
    delayed: int
    client_versions: frozenset[str]
    durable: bool = True
    last_seen: int = 0

    @property
    def is_idle(self) -> bool:
        """Nobody reads it and something is unread: it would never drain."""
        return self.consumers == 0 and self.backlog > 0


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Clients and backlog of one plain topic or partition, as its `stats` document tells.

    :param clients: everybody who is connected, without the replicators of other clusters.
    :param inbound: clusters that replicate into it.
    :param stored_bytes: what it holds, read or not.
    """

    topic: TopicName
    producers: int
    subscriptions: Mapping[str, SubscriptionFacts]
    client_versions: Mapping[str, frozenset[str]]
    transactions: int
    replication_backlog: Mapping[str, int]
    replication_connected: Mapping[str, bool]
    clients: tuple[ClientFacts, ...] = ()
    inbound: frozenset[str] = frozenset()
    stored_bytes: int = 0

    @classmethod
    def from_stats(cls, topic: TopicName, stats: JsonObject) -> PartitionFacts:
        """Read a `stats?getPreciseBacklog=true` document; missing fields count as nothing there."""
        subscriptions = {
            name: _subscription(name, document) for name, document in (stats.get("subscriptions") or {}).items()
        }
        publishers = stats.get("publishers") or []
        clients = tuple(_clients(stats))
        versions: dict[str, set[str]] = {}
        for client in clients:
            versions.setdefault(client.version, set()).add(client.text())
        links = stats.get("replication") or {}
        replication = {name: found for name, found in links.items() if _is_outbound(found)}
        return cls(
            topic=topic,
            producers=len(publishers),
            subscriptions=subscriptions,
            client_versions={version: frozenset(names) for version, names in versions.items()},
            transactions=sum(
                int(stats.get(key) or 0) for key in ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")
            ),
            replication_backlog={name: int(found.get("replicationBacklog", 0)) for name, found in replication.items()},
            replication_connected={name: bool(found.get("connected")) for name, found in replication.items()},
            clients=clients,
            inbound=frozenset(name for name, found in links.items() if found.get("inboundConnection")),
            stored_bytes=int(stats.get("storageSize") or 0),
        )

    @property
    def consumers(self) -> int:
        """Consumers of all its subscriptions."""
        return sum(subscription.consumers for subscription in self.subscriptions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFacts:
    """One namespace on both sides.

    :param blue: policies document on blue; None if it does not exist.
    :param green: the same on green.
    :param topics: topic on blue → partition count, 0 for a plain topic; without system topics.
    :param green_topics: the same on green.
    :param partitions: clients and backlog of everything on blue that holds messages.
    :param unread: topics of blue whose clients and backlog could not be read, each with the reason.
    :param runs: functions, sources and sinks that live in it on blue, `sink "archive"`.
    :param green_clients: version → how many clients use it on green already.
    :param links: topic → the other clusters to which blue should replicate it.
    """

    namespace: NamespaceName
    blue: JsonObject | None
    green: JsonObject | None
    topics: Mapping[TopicName, int]
    green_topics: Mapping[TopicName, int]
    partitions: tuple[PartitionFacts, ...]
    unread: tuple[Note, ...] = ()
    runs: tuple[str, ...] = ()
    green_clients: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[TopicName, frozenset[str]] = field(default_factory=dict)

    @property
    def clients(self) -> Iterator[tuple[TopicName, ClientFacts]]:
        """Everybody who is connected on blue, with the partition."""
        return ((partition.topic, client) for partition in self.partitions for client in partition.clients)


def _subscription(name: str, document: JsonObject) -> SubscriptionFacts:
    consumers = document.get("consumers") or []
    seen = (document.get(key) or 0 for key in ("lastConsumedTimestamp", "lastAckedTimestamp"))
    return SubscriptionFacts(
        name=name,
        kind=str(document.get("type") or "none"),
        backlog=int(document.get("msgBacklog", 0)),
        consumers=len(consumers),
        delayed=int(document.get("msgDelayed", 0)),
        client_versions=frozenset(_version(consumer) for consumer in consumers),
        durable=bool(document.get("isDurable", document.get("durable", True))),
        last_seen=max(int(one) for one in seen),
    )


def _clients(stats: JsonObject) -> Iterator[ClientFacts]:
    for publisher in stats.get("publishers") or []:
        if not str(publisher.get("producerName") or "").startswith(_REPLICATOR):
            yield _client(Role.PRODUCER, publisher, "producerName")
    for name, document in (stats.get("subscriptions") or {}).items():
        role = Role.CONSUMER if _subscription(name, document).durable else Role.READER
        for consumer in document.get("consumers") or []:
            yield _client(role, consumer, "consumerName", name)


_REPLICATOR = "pulsar.repl"


def _version(client: JsonObject) -> str:
    return str(client.get("clientVersion") or "unknown")


def _client(role: Role, client: JsonObject, name: str, subscription: str = "") -> ClientFacts:
    return ClientFacts(
        role=role,
        name=str(client.get(name) or ""),
        # Java writes an address that was never resolved as `/10.0.0.1:5512`.
        address=str(client.get("address") or "").rpartition("/")[2],
        version=_version(client),
        since=str(client.get("connectedSince") or ""),
        subscription=subscription,
    )


def _is_outbound(document: JsonObject) -> bool:
    # Inbound links are listed too; an outgoing replicator exists only where it has a connection or a cursor's backlog.
    return bool(document.get("outboundConnection")) or not document.get("inboundConnection")
