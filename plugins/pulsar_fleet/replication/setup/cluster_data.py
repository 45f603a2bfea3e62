"""Whether the data that a cluster stores about another one leads to that cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection, split_admin_url
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import without_user_info
from pulsar_fleet.replication.topology import Link, Topology
from pulsar_fleet.snapshot.model import Snapshot

_PATIENCE = 2.0
_ADMIN, _SERVICE = ("serviceUrl", "serviceUrlTls"), ("brokerServiceUrl", "brokerServiceUrlTls")


async def wrong_addresses(
    snapshots: Mapping[str, Snapshot], connections: Mapping[str, ClusterConnection], topology: Topology
) -> dict[Link, str]:
    """Links whose source has data about the target that does not lead there, and why.

    Data with the addresses of the target's connection is right. Other addresses are asked for the name of their
    cluster, from here and with the credentials of that connection: one call for each.
    """
    stored = {
        Link(name, peer.name): peer.data
        for name, snapshot in snapshots.items()
        for peer in snapshot.clusters
        if Link(name, peer.name) in {*topology.links()}
    }
    problems = await asyncio.gather(*(_problem(link, data, connections) for link, data in stored.items()))
    return {link: problem for link, problem in zip(stored, problems, strict=True) if problem}


async def _problem(link: Link, data: JsonObject, connections: Mapping[str, ClusterConnection]) -> str:
    target = connections[link.target]
    if not any(data.get(key) for key in _SERVICE):
        return "it has no brokerServiceUrl"
    if missing := _missing_credentials(data, target):
        return missing
    data = without_user_info(data)
    known = {*_addresses(target.cluster_data()), *map(_address, target.client_urls)}
    stored = {*_addresses(data)}
    if stored <= known:
        return ""
    url = next((str(data[key]) for key in reversed(_ADMIN) if data.get(key)), "")
    if not url:
        return f"brokerServiceUrl leads to {', '.join(sorted(stored - known))}, the connection to another address"
    try:
        async with AdminClient(replace(target, admin_url=url, broker_urls=()), retry_seconds=_PATIENCE) as admin:
            name = await admin.cluster_name()
    except FleetError as error:
        return f"{url} is not an address of connection {target.name!r}, and does not answer from here: {error}"
    return "" if name == link.target else f"{url} leads to cluster {name}"


def _missing_credentials(data: JsonObject, target: ClusterConnection) -> str:
    link = target.replication_auth.cluster_data() if target.replication_auth else {}
    if link.get("authenticationPlugin") and not data.get("authenticationPlugin"):
        return "it has no credentials, and the connection's replication_auth has some"
    return ""


def _addresses(data: JsonObject) -> Iterator[str]:
    for key in (*_ADMIN, *_SERVICE):
        if value := data.get(key):
            yield from map(_address, split_admin_url(str(value)))


def _address(url: str) -> str:
    return urlsplit(url).netloc
