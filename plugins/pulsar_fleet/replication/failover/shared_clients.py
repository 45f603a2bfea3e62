"""Clients that use topics of the namespaces that move, and topics of others: with one service URL they move whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.statistics import ConnectedClient, connected_clients
from pulsar_fleet.snapshot.inventory import members, topics_in

_OF_BROKERS = ("pulsar/", "public/functions")


async def used_elsewhere(
    admin: AdminClient, clients: Iterable[ConnectedClient], namespaces: Collection[NamespaceName]
) -> dict[str, set[str]]:
    """Address of a connection among those of `clients` → the other namespaces that it uses on the same broker.

    One call for each broker, by its list of loaded topics, which is up to a minute old. A client whose topics lie on
    several brokers has a connection to each: what it uses on another broker is not found.

    :raises PermissionDenied: the list needs a superuser.
    """
    addresses, own = {client.address for client in clients} - {""}, {str(name) for name in namespaces}
    found: dict[str, set[str]] = {}
    # One broker at a time: a list may be tens of MB.
    for broker in await admin.brokers():
        for namespace, bundles in members(await admin.loaded_topics(broker)):
            if namespace in own or namespace.startswith(_OF_BROKERS):
                continue
            for _, topic, stats in topics_in(bundles):
                for address in addresses & {client.address for client in connected_clients(topic, stats)}:
                    found.setdefault(address, set()).add(namespace)
    return found
