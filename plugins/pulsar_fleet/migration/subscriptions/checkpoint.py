"""Where subscriptions were placed before a switch, kept with the run: a try that dies must not take it along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.topic_statistics import ConnectedClient, Role
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Clients, Move, Moves
from pulsar_fleet.migration.stats.clients import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a subscription without consumers continues on green, in entries of what blue held.

    :param unread: entries that it will still get on green, those that come again included.
    :param carried: entries acknowledged one by one on blue, and on green too.
    :param redelivered: entries acknowledged one by one on blue that come again.
    """

    topic: str
    subscription: str
    unread: int
    carried: int
    redelivered: int

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PlacedTopic:
    """One partition whose subscriptions are in place.

    :param end: blue's last entry when its consumed subscriptions were placed behind it; what came later is delivered on
        both sides. None where there was none.
    """

    placed: tuple[Placed, ...]
    end: Position | None

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"placed": [each.to_json() for each in self.placed], "end": str(self.end) if self.end else None}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        end = Position.parse(found["end"]) if found["end"] else None
        return cls(tuple(Placed(**each) for each in found["placed"]), end)


PlacedTopics = Mapping[TopicName, PlacedTopic]


def remember_placed(run: Run, namespace: str, placed: PlacedTopics) -> None:
    """Keep where the subscriptions of a namespace were placed; placed again, they replace the earlier ones."""
    document = {str(topic): one.to_json() for topic, one in placed.items()}
    run.artefacts.write_json(run.id, _name(namespace), {"schema_version": 1, "partitions": document})


def known_placed(run: Run, namespace: str) -> PlacedTopics:
    """What was kept for a namespace; nothing where nothing was replicated, or nothing was placed yet."""
    reference = run.artefacts.find(run.id, _name(namespace))
    if reference is None:
        return {}
    found = run.artefacts.read_json(reference)["partitions"]
    return {TopicName.parse(topic): PlacedTopic.from_json(one) for topic, one in found.items()}


def _name(namespace: str) -> str:
    return f"placed/{namespace.replace('/', '+')}.json"


def remember_roster(run: Run, namespace: str, roster: Roster) -> None:
    """Keep who was connected; counted again, while nobody can have left yet, it replaces the earlier count."""
    document = {str(topic): [client.to_json() for client in clients] for topic, clients in roster.items()}
    run.artefacts.write_json(run.id, _artefact_of_roster(namespace), {"schema_version": 1, "partitions": document})


def known_rosters(run: Run, moves: Moves) -> dict[str, Roster]:
    """Namespace → its roster, where one was kept."""
    found: dict[str, Roster] = {}
    for move in moves.moves:
        reference = run.artefacts.find(run.id, _artefact_of_roster(str(move.namespace)))
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
    readers = [client.subscription for client in now if client.role is not Role.PRODUCER]
    return Clients(
        producers=sum(client.role is Role.PRODUCER for client in now),
        consumers={name: readers.count(name) for name in sorted({*before.consumers, *readers})},
        backlog=before.backlog,
    )


def _artefact_of_roster(namespace: str) -> str:
    return f"clients/{namespace.replace('/', '+')}.json"


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one namespace; written again, the newer ones count."""

    run: Run
    namespace: str

    def clients(self, roster: Roster) -> None:
        """Keep who was connected, as long as nobody can have left."""
        remember_roster(self.run, self.namespace, roster)

    def places(self, placed: PlacedTopics) -> None:
        """Keep where the subscriptions were placed, before the flag is set."""
        remember_placed(self.run, self.namespace, placed)

    def known_places(self) -> PlacedTopics:
        """Where this or an earlier try placed them; nothing where nothing is copied."""
        return known_placed(self.run, self.namespace)
