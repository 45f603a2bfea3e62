"""Connected clients by name, so that a missing client can be named (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import ConnectedClient

ConnectedClients = Mapping[TopicName, tuple[ConnectedClient, ...]]
"""Partition → its clients."""


def absent_clients(
    before: Iterable[ConnectedClient], blue: Iterable[ConnectedClient], green: Iterable[ConnectedClient]
) -> tuple[ConnectedClient, ...]:
    """Clients that were on blue before and are on neither cluster now, where fewer are connected than before.

    The broker may give a reconnected producer another name, so a new client of the same kind counts for a missing one:
    the result has only as many clients as the number is too low.
    """
    remaining = [*blue, *green]
    here = {client.identity for client in remaining}
    counts: dict[tuple[str, str, str], int] = {}
    for client in remaining:
        counts[client.identity[:3]] = counts.get(client.identity[:3], 0) + 1
    expected: dict[tuple[str, str, str], list[ConnectedClient]] = {}
    for client in before:
        expected.setdefault(client.identity[:3], []).append(client)
    missing: list[ConnectedClient] = []
    for key, clients in expected.items():
        too_few = len(clients) - counts.get(key, 0)
        missing += [client for client in clients if client.identity not in here][: max(too_few, 0)]
    return tuple(missing)
