"""Where subscriptions were placed before a switch, kept with the run: a try that dies must not take it along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.records.run import Run


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
