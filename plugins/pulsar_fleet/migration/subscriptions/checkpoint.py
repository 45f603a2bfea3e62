"""Transferred cursors and connected clients of a namespace, stored with the run so that a retry can read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, Role
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Move, Moves, PartitionClients


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredCursor:
    """The cursor on green of a subscription without consumers, in entries of blue.

    :param unread: entries that green delivers, redelivered ones included.
    :param carried: entries individually acknowledged on blue, and on green too.
    :param redelivered: entries individually acknowledged on blue that green delivers again.
    """

    topic: str
    subscription: str
    unread: int
    carried: int
    redelivered: int


@dataclass(frozen=True, slots=True)
class TransferredPartition(Document):
    """The transferred cursors of one partition.

    :param end: blue's last entry when the cursors of consumed subscriptions were set behind it; later entries are
        delivered on both clusters. None for an empty partition.
    """

    cursors: tuple[TransferredCursor, ...]
    end: Position | None


TransferredPartitions = Mapping[TopicName, TransferredPartition]


@dataclass(frozen=True, slots=True)
class _StoredClients(Document):
    SCHEMA_VERSION = 1

    partitions: ConnectedClients


@dataclass(frozen=True, slots=True)
class _StoredTransfers(Document):
    SCHEMA_VERSION = 1

    partitions: TransferredPartitions


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a cutover of one namespace stores for its retries; a second write replaces the first."""

    run: Run
    namespace: str

    def store_clients(self, connected: ConnectedClients) -> None:
        """Store the connected clients; call it only before the first client can have left blue."""
        self._write(_clients_name(self.namespace), _StoredClients(connected))

    def store_transfers(self, transferred: TransferredPartitions) -> None:
        """Store the transferred cursors; call it before the flag is set."""
        self._write(_cursors_name(self.namespace), _StoredTransfers(transferred))

    def stored_transfers(self) -> TransferredPartitions:
        """The cursors that this attempt or an earlier one transferred; empty where nothing is replicated."""
        return stored_transfers(self.run, self.namespace)

    def _write(self, name: str, stored: Document) -> None:
        self.run.artefacts.write_json(self.run.id, name, stored.to_json())


def stored_transfers(run: Run, namespace: str) -> TransferredPartitions:
    """The transferred cursors of a namespace; empty where nothing is replicated, or nothing was transferred yet."""
    document = run.stored(_cursors_name(namespace))
    return _StoredTransfers.from_json(document).partitions if document else {}


def stored_clients(run: Run, moves: Moves) -> dict[str, ConnectedClients]:
    """Namespace → its connected clients before the cutover, where they were stored."""
    connected: dict[str, ConnectedClients] = {}
    for move in moves.moves:
        document = run.stored(_clients_name(str(move.namespace)))
        if document is not None:
            connected[str(move.namespace)] = _StoredClients.from_json(document).partitions
    return connected


def store_gate_clients(run: Run, namespace: str, connected: ConnectedClients) -> None:
    """Store the consumers that the gates see, for an operator who must know who read a backlog.

    A later call keeps the consumers of subscriptions that have none any more.
    """
    name = _gate_clients_name(namespace)
    earlier = _StoredClients.from_json(document).partitions if (document := run.stored(name)) else {}
    consumers = {
        topic: tuple(client for client in clients if client.role is Role.CONSUMER)
        for topic, clients in connected.items()
    }
    partitions = {
        topic: (*consumers.get(topic, ()), *_of_other_subscriptions(earlier.get(topic, ()), consumers.get(topic, ())))
        for topic in {**earlier, **consumers}
    }
    run.artefacts.write_json(run.id, name, _StoredClients(partitions).to_json())


def departed_consumers(run: Run, move: Move, connected: Mapping[str, ConnectedClients]) -> ConnectedClients:
    """Consumers that the gates saw, of subscriptions that had none at the cutover and were not transferred to green."""
    document, now = run.stored(_gate_clients_name(str(move.namespace))), connected.get(str(move.namespace))
    if document is None or now is None or move.strategy.copies:
        return {}
    gates = _StoredClients.from_json(document).partitions
    left = {topic: _of_other_subscriptions(clients, now.get(topic, ())) for topic, clients in gates.items()}
    return {topic: clients for topic, clients in left.items() if clients}


def _of_other_subscriptions(
    clients: tuple[ConnectedClient, ...], present: tuple[ConnectedClient, ...]
) -> tuple[ConnectedClient, ...]:
    """The clients whose subscription has no client among those present."""
    subscriptions = {client.subscription for client in present if client.role is not Role.PRODUCER}
    return tuple(client for client in clients if client.subscription not in subscriptions)


def with_clients(move: Move, connected: Mapping[str, ConnectedClients]) -> Move:
    """The move with the clients that were connected right before its cutover, instead of those of the gates."""
    partitions = connected.get(str(move.namespace), {})
    counted = {
        topic: _counted(clients, partitions[topic]) for topic, clients in move.partitions.items() if topic in partitions
    }
    return replace(move, partitions={**move.partitions, **counted})


def _counted(before: PartitionClients, now: tuple[ConnectedClient, ...]) -> PartitionClients:
    readers = [client.subscription for client in now if client.role is not Role.PRODUCER]
    return PartitionClients(
        producers=sum(client.role is Role.PRODUCER for client in now),
        consumers={name: readers.count(name) for name in sorted({*before.consumers, *readers})},
        backlog=before.backlog,
    )


def _cursors_name(namespace: str) -> str:
    return f"transferred-cursors/{namespace.replace('/', '+')}.json"


def _gate_clients_name(namespace: str) -> str:
    return f"gate-clients/{namespace.replace('/', '+')}.json"


def _clients_name(namespace: str) -> str:
    return f"connected-clients/{namespace.replace('/', '+')}.json"
