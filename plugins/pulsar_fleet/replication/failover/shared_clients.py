"""Clients that use topics of the namespaces that move, and topics of others: with one service URL they move whole."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.statistics import ConnectedClient

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
        for namespace, bundles in json.loads(await admin.loaded_topics(broker)).items():
            if namespace not in own and not namespace.startswith(_OF_BROKERS):
                for address in addresses.intersection(_addresses(bundles)):
                    found.setdefault(address, set()).add(namespace)
    return found


def _addresses(bundles: JsonObject) -> Iterator[str]:
    for domains in bundles.values():
        for topics in domains.values():
            for stats in topics.values():
                consumers = (one.get("consumers") or () for one in (stats.get("subscriptions") or {}).values())
                for clients in (stats.get("publishers") or (), *consumers):
                    # As in `connected_clients`.
                    yield from (str(client.get("address") or "").rpartition("/")[2] for client in clients)
