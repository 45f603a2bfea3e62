"""Who is connected: each client by name, so that one that does not arrive can be named (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import ConnectedClient

Roster = Mapping[TopicName, tuple[ConnectedClient, ...]]
"""Partition → its clients."""


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
