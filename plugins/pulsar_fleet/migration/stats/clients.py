"""Who is connected: each producer and consumer by name, so that one that does not arrive can be named (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName

_OF_BROKERS = "pulsar.repl"


class Role(StrEnum):
    """What a client does on a topic."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedClient:
    """A producer or consumer of one partition, as the broker's statistics show it.

    :param subscription: empty for a producer.
    :param since: when it connected, in the broker's words.
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
        """What stays the same when it connects to another cluster; its address has another port then."""
        return self.topic, self.role.value, self.subscription, self.name

    def __str__(self) -> str:
        return f'{self.role} "{self.name}" ({self.address or "address unknown"}, {self.version})'

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{**found, "role": Role(found["role"])})


Roster = Mapping[TopicName, tuple[ConnectedClient, ...]]
"""Partition → its clients."""


def clients_of(topic: TopicName, stats: JsonObject) -> tuple[ConnectedClient, ...]:
    """Every client in a `stats` document, without the brokers' own."""
    found = [_client(topic, Role.PRODUCER, "", one) for one in stats.get("publishers") or ()]
    for name, document in (stats.get("subscriptions") or {}).items():
        found += [_client(topic, Role.CONSUMER, name, one) for one in document.get("consumers") or ()]
    return tuple(client for client in found if not client.name.startswith(_OF_BROKERS))


def vanished(
    before: Iterable[ConnectedClient], blue: Iterable[ConnectedClient], green: Iterable[ConnectedClient]
) -> tuple[ConnectedClient, ...]:
    """Clients that were on blue and are on neither side, where fewer are connected than before.

    One that came back under another name (producer names may be given by the broker) fills the place of one that is
    missing: only as many are named as there are too few.
    """
    remaining = [*blue, *green]
    here = {client.identity for client in remaining}
    counts: dict[tuple[str, str, str], int] = {}
    for client in remaining:
        counts[client.identity[:3]] = counts.get(client.identity[:3], 0) + 1
    wanted: dict[tuple[str, str, str], list[ConnectedClient]] = {}
    for client in before:
        wanted.setdefault(client.identity[:3], []).append(client)
    missing: list[ConnectedClient] = []
    for key, clients in wanted.items():
        too_few = len(clients) - counts.get(key, 0)
        missing += [client for client in clients if client.identity not in here][: max(too_few, 0)]
    return tuple(missing)


def _client(topic: TopicName, role: Role, subscription: str, document: JsonObject) -> ConnectedClient:
    return ConnectedClient(
        topic=str(topic),
        role=role,
        subscription=subscription,
        name=str(document.get("producerName" if role is Role.PRODUCER else "consumerName") or ""),
        address=str(document.get("address") or "").removeprefix("/"),
        version=str(document.get("clientVersion") or "unknown"),
        since=str(document.get("connectedSince") or ""),
    )
