"""What brokers say of a topic, as values: its clients, backlog, replication and cursors, and whose these are (pure).

The names of system cursors were observed with 4.2.4. By the broker's code, the cursor `__pending_ack_state` of
transactions is in a ledger of its own, not in the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self
from urllib.parse import unquote_plus

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName, own_subscription_properties

UNKNOWN_TYPE = "None"
OWN_READERS = "pulsar-fleet-"
"""How the subscriptions begin with which this tool reads messages."""


class Role(StrEnum):
    """What a client does on a topic."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    READER = "reader"
    """A consumer whose cursor is not durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedClient(Document):
    """One producer, consumer or reader of a plain topic or partition.

    :param subscription: empty for a producer.
    :param address: client's `host:port` of the connection, shared by all clients of one client object on this broker.
    :param since: time of the connect, in the broker's format.
    """

    topic: str
    role: Role
    subscription: str
    name: str
    address: str
    version: str
    since: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The part that is the same after it connects to another cluster; its address changes."""
        return self.topic, self.role.value, self.subscription, self.name

    @property
    def keeps_position(self) -> bool:
        """Whether only the client has its position, as a place on this cluster: a reader; not one of this tool."""
        return self.role is Role.READER and not self.subscription.startswith(OWN_READERS)

    @property
    def host(self) -> str:
        """Of its address; empty where that is unknown."""
        return self.address.rpartition(":")[0].strip("[]")

    def text(self) -> str:
        """`consumer "billing-3" at 10.2.0.17:5512`."""
        return f'{self.role} "{self.name}" at {self.address or "?"}'

    def __str__(self) -> str:
        return f'{self.role} "{self.name}" ({self.address or "address unknown"}, {self.version})'


def absent_clients(
    before: Iterable[ConnectedClient], here: Iterable[ConnectedClient], there: Iterable[ConnectedClient]
) -> tuple[ConnectedClient, ...]:
    """Clients that were connected before and are on neither of two clusters now, where fewer are connected than before.

    The broker may give a reconnected producer another name, so a new client of the same kind counts for a missing one:
    the result has only as many clients as the number is too low.
    """
    remaining = [*here, *there]
    present = {client.identity for client in remaining}
    counts: dict[tuple[str, str, str], int] = {}
    for client in remaining:
        counts[client.identity[:3]] = counts.get(client.identity[:3], 0) + 1
    expected: dict[tuple[str, str, str], list[ConnectedClient]] = {}
    for client in before:
        expected.setdefault(client.identity[:3], []).append(client)
    missing: list[ConnectedClient] = []
    for key, clients in expected.items():
        too_few = len(clients) - counts.get(key, 0)
        missing += [client for client in clients if client.identity not in present][: max(too_few, 0)]
    return tuple(missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """A subscription of an application on one plain topic or partition.

    :param type: subscription type; `None` after the topic was reloaded.
    :param backlog: entries (batches), not messages.
    :param last_used: time of the last read or acknowledgement, ms since 1970; 0: none since the topic was loaded.
    :param delivered: messages since the topic was loaded.
    :param read_rate: entries per second that consumers get, by the broker's rates, which it renews once a minute.
    :param active_consumer: name of the consumer that receives the messages, where only one does.
    :param acknowledged_ranges: ranges of individually acknowledged entries behind its mark-delete position.
    """

    name: str
    type: str
    backlog: int
    delayed: int
    durable: bool
    replicated: bool
    properties: Mapping[str, str]
    consumers: int
    last_used: int
    delivered: int
    active_consumer: str
    read_rate: float = 0.0
    acknowledged_ranges: int = 0

    @classmethod
    def of(cls, name: str, document: JsonObject) -> Self:
        """Parse its part of a `stats` document."""
        times = (document.get(key) or 0 for key in ("lastConsumedTimestamp", "lastAckedTimestamp"))
        return cls(
            name=name,
            type=str(document.get("type") or UNKNOWN_TYPE),
            backlog=int(document.get("msgBacklog") or 0),
            delayed=int(document.get("msgDelayed") or 0),
            durable=bool(document.get("isDurable", document.get("durable", True))),
            replicated=bool(document.get("isReplicated")),
            properties=own_subscription_properties(document.get("subscriptionProperties")),
            consumers=len(document.get("consumers") or ()),
            last_used=max(int(time) for time in times),
            delivered=int(document.get("msgOutCounter") or 0),
            active_consumer=str(document.get("activeConsumerName") or ""),
            read_rate=sum(map(_entries_per_second, document.get("consumers") or ())),
            acknowledged_ranges=int(document.get("nonContiguousDeletedMessagesRanges") or 0),
        )

    @property
    def is_idle(self) -> bool:
        """Whether it has a backlog and no consumer, so that it would never drain."""
        return self.consumers == 0 and self.backlog > 0


@dataclass(frozen=True, slots=True)
class ReplicationLink:
    """Replication of a topic to and from another cluster.

    :param backlog: entries that are not yet replicated to it.
    :param connected: the replicator to it is connected.
    :param inbound: it replicates into this topic.
    :param outbound: this topic is replicated to it.
    """

    backlog: int
    connected: bool
    inbound: bool
    outbound: bool

    @classmethod
    def of(cls, document: JsonObject) -> Self:
        """Parse its part of a `stats` document."""
        inbound = bool(document.get("inboundConnection"))
        return cls(
            backlog=int(document.get("replicationBacklog") or 0),
            connected=bool(document.get("connected")),
            inbound=inbound,
            # Inbound links are listed too, and they have no outbound connection.
            outbound=bool(document.get("outboundConnection")) or not inbound,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """Clients and backlog of one plain topic or partition.

    :param clients: connected clients, without replicators and clients of system cursors.
    :param subscriptions: name → subscription, without system cursors.
    :param links: cluster → replication.
    :param transactions: ongoing, committed or aborted since the topic was loaded.
    :param stored_bytes: size of all entries, consumed or not.
    :param exists: False for a partition that is created on first use.
    """

    topic: TopicName
    clients: tuple[ConnectedClient, ...]
    subscriptions: Mapping[str, SubscriptionStats]
    links: Mapping[str, ReplicationLink]
    transactions: int
    ongoing_transactions: int
    messages_in: int
    stored_bytes: int
    exists: bool = True

    @classmethod
    def of(cls, topic: TopicName, document: JsonObject, *, exists: bool = True) -> Self:
        """Parse a `stats` document; a missing field counts as 0 or empty."""
        counters = ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")
        return cls(
            topic=topic,
            clients=tuple(connected_clients(topic, document)),
            subscriptions={name: SubscriptionStats.of(name, part) for name, part in _subscriptions(document)},
            links={name: ReplicationLink.of(part) for name, part in (document.get("replication") or {}).items()},
            transactions=sum(int(document.get(counter) or 0) for counter in counters),
            ongoing_transactions=int(document.get("ongoingTxnCount") or 0),
            messages_in=int(document.get("msgInCounter") or 0),
            stored_bytes=int(document.get("storageSize") or 0),
            exists=exists,
        )

    @property
    def producers(self) -> int:
        """Connected producers."""
        return sum(client.role is Role.PRODUCER for client in self.clients)

    @property
    def replication_backlog(self) -> Mapping[str, int]:
        """Cluster that it replicates to → entries that are not yet replicated."""
        return {name: link.backlog for name, link in self.links.items() if link.outbound}

    @property
    def replication_connected(self) -> Mapping[str, bool]:
        """Cluster that it replicates to → whether the replicator is connected."""
        return {name: link.connected for name, link in self.links.items() if link.outbound}

    @property
    def inbound(self) -> frozenset[str]:
        """Clusters that replicate into this topic."""
        return frozenset(name for name, link in self.links.items() if link.inbound)


def connected_clients(topic: TopicName, document: JsonObject) -> Iterator[ConnectedClient]:
    """Every client in a `stats` document, without replicators and clients of system cursors."""
    for producer in document.get("publishers") or ():
        name = str(producer.get("producerName") or "")
        if not is_replicator(name):
            yield _client(topic, Role.PRODUCER, "", name, producer)
    for subscription, part in _subscriptions(document):
        # A non-persistent topic has no durable cursor: its subscriptions have consumers, which read what comes.
        durable = not topic.persistent or part.get("isDurable", part.get("durable", True))
        role = Role.CONSUMER if durable else Role.READER
        for consumer in part.get("consumers") or ():
            yield _client(topic, role, subscription, str(consumer.get("consumerName") or ""), consumer)


def _subscriptions(document: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for name, part in (document.get("subscriptions") or {}).items():
        if not is_system_cursor(name):
            yield name, part


def _client(topic: TopicName, role: Role, subscription: str, name: str, document: JsonObject) -> ConnectedClient:
    return ConnectedClient(
        topic=str(topic),
        role=role,
        subscription=subscription,
        name=name,
        # Java writes an unresolved address as `/10.0.0.1:5512`.
        address=str(document.get("address") or "").rpartition("/")[2],
        version=str(document.get("clientVersion") or "unknown"),
        since=str(document.get("connectedSince") or ""),
    )


def _entries_per_second(consumer: JsonObject) -> float:
    # Backlogs count entries (batches), rates count messages.
    return float(consumer.get("msgRateOut") or 0) / max(float(consumer.get("avgMessagesPerEntry") or 0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The state of a subscription, or of a system cursor, on a plain topic or partition.

    :param mark_delete: mark-delete position: everything up to and including it is acknowledged.
    :param read: the entry that is read next; only in `internalStats`.
    :param acknowledged: ranges of individually acknowledged entries after it, in the broker's format
        `[(18:3..18:5],(18:9..18:10]]`; only in `internalStats`.
    :param consumed: entries since the topic was loaded; only in `internalStats`.
    :param replicated: the subscription is replicated; only in `internal-info`.
    """

    mark_delete: Position
    read: Position | None = field(default=None, compare=False)
    acknowledged: str = "[]"
    consumed: int = field(default=0, compare=False)
    replicated: bool = False

    def confirmed_since(self, earlier: Cursor) -> int:
        """Entries that were consumed since an earlier reading; at least 1 if the mark-delete position moved.

        A cursor that was opened again in between counts from 0.
        """
        return max(self.consumed - earlier.consumed, int(self.mark_delete != earlier.mark_delete))


def cursors_in_stats(internal_stats: JsonObject) -> dict[str, Cursor]:
    """Name → cursor in an `internalStats` answer of a plain topic or partition, with system cursors."""
    return {
        _plain(name): Cursor(
            mark_delete=Position.parse(document["markDeletePosition"]),
            read=Position.parse(document["readPosition"]) if document.get("readPosition") else None,
            acknowledged=document["individuallyDeletedMessages"],
            consumed=int(document.get("messagesConsumedCounter") or 0),
        )
        for name, document in internal_stats["cursors"].items()
    }


def cursors_in_info(info: JsonObject) -> dict[str, Cursor]:
    """Name → cursor in an `internal-info` answer, or in its part for a partition, with system cursors."""
    return {_plain(name): _of_info(document) for name, document in (info.get("cursors") or {}).items()}


def _of_info(document: JsonObject) -> Cursor:
    position: Mapping[str, int] = document.get("markDelete") or {}
    return Cursor(
        mark_delete=Position(int(position.get("ledgerId", -1)), int(position.get("entryId", -1))),
        replicated=(document.get("properties") or {}).get("pulsar.replicated.subscription") == 1,
    )


def _plain(name: str) -> str:
    # Brokers list the names form-encoded: `a%2Bb` for `a+b`.
    return unquote_plus(name)


COMPACTION = "__compaction"
DEDUPLICATION = "pulsar.dedup"

REPLICATOR = "pulsar.repl"
"""The broker's default for `replicatorPrefix`."""


def replicator_cursor(cluster: str) -> str:
    """The cursor that stores how far a topic was replicated to a cluster."""
    return f"{REPLICATOR}.{cluster}"


def is_system_cursor(name: str) -> bool:
    """Whether a cursor is a system cursor, from which no application can consume.

    A broker treats every name that begins with `pulsar.repl` as a replicator's, even `pulsar.replay`: it refuses their
    consumers; once the topic was unloaded, it does not list them and cannot delete them.
    """
    return name in (COMPACTION, DEDUPLICATION) or name.startswith(REPLICATOR)


def is_replicator(producer: str) -> bool:
    """Whether a producer is another cluster's replicator, `pulsar.repl.<cluster>`, or writes to a shadow topic.

    An application's producer may have the name `pulsar.replay`.
    """
    return producer.startswith((f"{REPLICATOR}.", f"{REPLICATOR}-"))
