"""Who was connected to blue right before each switch, kept with the run: as many must arrive on green."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.clients import ConnectedClient, Role, Roster
from pulsar_fleet.migration.moves import Clients, Move, Moves
from pulsar_fleet.records.run import Run


def remember_roster(run: Run, namespace: str, roster: Roster) -> None:
    """Keep who was connected; counted again, while nobody can have left yet, it replaces the earlier count."""
    document = {str(topic): [client.to_json() for client in clients] for topic, clients in roster.items()}
    run.artefacts.write_json(run.id, _name(namespace), {"schema_version": 1, "partitions": document})


def known_rosters(run: Run, moves: Moves) -> dict[str, Roster]:
    """Namespace → its roster, where one was kept."""
    found: dict[str, Roster] = {}
    for move in moves.moves:
        reference = run.artefacts.find(run.id, _name(str(move.namespace)))
        if reference is not None:
            document = run.artefacts.read_json(reference)["partitions"]
            found[str(move.namespace)] = {
                TopicName.parse(topic): tuple(ConnectedClient.from_json(client) for client in clients)
                for topic, clients in document.items()
            }
    return found


def with_roster(move: Move, rosters: Mapping[str, Roster]) -> Move:
    """The move with the clients that were there right before its switch, instead of those at the time of the gates."""
    roster = rosters.get(str(move.namespace), {})
    counted = {topic: _counted(clients, roster[topic]) for topic, clients in move.partitions.items() if topic in roster}
    return replace(move, partitions={**move.partitions, **counted})


def _counted(before: Clients, now: tuple[ConnectedClient, ...]) -> Clients:
    readers = [client.subscription for client in now if client.role is Role.CONSUMER]
    return Clients(
        producers=sum(client.role is Role.PRODUCER for client in now),
        consumers={name: readers.count(name) for name in sorted({*before.consumers, *readers})},
        backlog=before.backlog,
    )


def _name(namespace: str) -> str:
    return f"clients/{namespace.replace('/', '+')}.json"
