"""Read what a cluster says about itself and about its peers (client)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.probes import addresses, host_urls, unreachable
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, PermissionDenied, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import is_secret_key, without_user_info
from pulsar_fleet.preflight.bookies import read_bookies
from pulsar_fleet.replication.doctor.facts import ClusterFacts, PeerData, Unread
from pulsar_fleet.replication.doctor.model import placeholder

_SETTINGS = (
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "authenticationEnabled",
    "backlogQuotaDefaultLimitBytes",
    "backlogQuotaDefaultLimitGB",
    "backlogQuotaDefaultLimitSecond",
    "backlogQuotaDefaultRetentionPolicy",
    "brokerClientAuthenticationPlugin",
    "brokerClientTlsEnabled",
    "brokerServicePort",
    "createTopicToRemoteClusterForReplication",
    "defaultNumPartitions",
    "delayedDeliveryEnabled",
    "delayedDeliveryMaxDelayInMillis",
    "dispatchThrottlingRatePerReplicatorInByte",
    "dispatchThrottlingRatePerReplicatorInMsg",
    "encryptionRequireOnProducer",
    "isAllowAutoUpdateSchemaEnabled",
    "managedLedgerDefaultAckQuorum",
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "maxMessageSize",
    "maxPublishRatePerTopicInBytes",
    "maxPublishRatePerTopicInMessages",
    "maxTopicsPerNamespace",
    "schemaCompatibilityStrategy",
    "ttlDurationDefaultInSeconds",
)
_SCHEME = "token:"
_PROBE_SECONDS = 1.0


async def read_cluster(admin: AdminClient, unread: list[Unread]) -> ClusterFacts:
    """The version and settings of a broker, the bookies, and the data of every peer: 7 calls, and one for each peer."""
    own, connection = await admin.cluster_name(), admin.connection
    try:
        answer = await admin.runtime_configuration()
        configuration: Mapping[str, str] | None = {key: answer[key] for key in _SETTINGS if key in answer}
    except FleetError as error:
        unread.append(Unread(cluster=own, resource="settings of the brokers", reason=str(error)))
        configuration = None
    try:
        version = await admin.version()
    except FleetError as error:
        unread.append(Unread(cluster=own, resource="version of the brokers", reason=str(error)))
        version = ""
    bookies = await read_bookies(admin)
    if bookies.unread:
        unread.append(Unread(cluster=own, resource="bookies", reason=bookies.unread))
    known = {*_known_addresses(connection)}
    try:
        documents = {name: await admin.cluster_data(name) or {} for name in await admin.clusters()}
        known |= {*addresses(documents.get(own, {}))}
        peers: dict[str, PeerData] | None = {name: _peer(name, document) for name, document in documents.items()}
    except FleetError as error:
        unread.append(Unread(cluster=own, resource="cluster data", reason=str(error)))
        peers = None
    return ClusterFacts(
        name=own,
        connection=connection.argument,
        configuration=configuration,
        peers=peers,
        addresses=frozenset(known),
        data=_data(connection),
        version=version,
        bookies=bookies,
    )


def _peer(name: str, document: JsonObject) -> PeerData:
    trust = ("brokerClientTrustCertsFilePath", "brokerClientTlsTrustStore", "tlsAllowInsecureConnection")
    return PeerData(
        name=name,
        service_url=_address(document, "serviceUrl"),
        service_url_tls=_address(document, "serviceUrlTls"),
        broker_url=_address(document, "brokerServiceUrl"),
        broker_url_tls=_address(document, "brokerServiceUrlTls"),
        tls=bool(document.get("brokerClientTlsEnabled")),
        plugin=str(document.get("authenticationPlugin") or ""),
        trusts=any(document.get(key) for key in trust),
        data=_without_secrets(document, "as it is stored now"),
    )


def _address(document: JsonObject, key: str) -> str:
    return str(without_user_info(document.get(key)) or "")


def _without_secrets(document: JsonObject, where: str) -> JsonObject:
    """The values that are set; a placeholder that says where a secret is to be found stands for it."""
    return {
        key: placeholder(f"{key} {where}") if is_secret_key(key) or without_user_info(value) != value else value
        for key, value in document.items()
        if value not in (None, "", [])
    }


def _known_addresses(connection: ClusterConnection) -> Iterator[str]:
    """The addresses in a connection, one for each host."""
    yield from connection.admin_urls
    yield from connection.client_urls
    if not isinstance(connection.broker_urls, str):
        yield from (url for _, url in connection.broker_urls)
    yield from host_urls(connection.service_url or "")


def _data(connection: ClusterConnection) -> JsonObject | None:
    """What its peers store; None without a service URL."""
    if not connection.service_url:
        return None
    return _without_secrets(connection.cluster_data(), f"of the replication_auth of connection {connection.name}")


async def locate_peers(
    cluster: ClusterFacts,
    fleet: Mapping[str, ClusterFacts],
    names: Collection[str],
    connections: Mapping[str, ClusterConnection],
) -> ClusterFacts:
    """Where the stored addresses of these peers lead; no call where they are known ones.

    Other addresses are asked without credentials: one call for an address of the admin API, one connection for
    another.
    """
    if cluster.peers is None:
        return cluster
    wanted = [peer for name, peer in cluster.peers.items() if name in names and name != cluster.name]
    located = await asyncio.gather(*(_locate(peer, fleet, connections.get(peer.name)) for peer in wanted))
    return replace(cluster, peers={**cluster.peers, **{peer.name: peer for peer in located}})


async def _locate(peer: PeerData, fleet: Mapping[str, ClusterFacts], connection: ClusterConnection | None) -> PeerData:
    right = fleet.get(peer.name)
    if right is None or right.outage:
        return peer
    leads_to: dict[str, str | None] = {}
    silent: dict[str, str] = {}
    for url in _single(peer):
        owners = {name for name, facts in fleet.items() if url in facts.addresses}
        if owners:
            leads_to[url] = peer.name if peer.name in owners else min(owners)
        elif url.startswith("http"):
            leads_to[url], reason = await _name_at(url, connection)
            silent |= {url: reason} if reason else {}
        else:
            silent |= await unreachable([url])
    return replace(peer, leads_to=leads_to, unreachable=silent)


def _single(peer: PeerData) -> tuple[str, ...]:
    keys = ("serviceUrlTls", "brokerServiceUrlTls") if peer.tls else ("serviceUrl", "brokerServiceUrl")
    return addresses(dict(zip(keys, peer.addresses, strict=False)))


async def _name_at(url: str, connection: ClusterConnection | None) -> tuple[str | None, str]:
    """The name of the cluster that answers at an admin URL, and why there is no answer."""
    try:
        trust = connection.tls_trust_file if connection else None
        probe = ClusterConnection(name=url, admin_url=url, tls_trust_file=trust, timeout_seconds=5)
        async with AdminClient(probe, retry_seconds=_PROBE_SECONDS) as admin:
            return await admin.cluster_name(), ""
    except Unavailable as error:
        return None, str(error)
    except FleetError:
        return None, ""


async def try_credentials(admin: AdminClient, peer: str, target: ClusterConnection) -> str | None:
    """Why `target` does not accept the token that `admin`'s cluster stores for it: two calls.

    None where the credentials are of another kind: they are files of brokers, or belong to an issuer.
    """
    document = await admin.cluster_data(peer) or {}
    parameters = str(document.get("authenticationParameters") or "")
    if not parameters.startswith(_SCHEME):
        return None
    stored = replace(target.with_credentials_of(None), token=parameters.removeprefix(_SCHEME))
    async with AdminClient(stored, retry_seconds=_PROBE_SECONDS) as probe:
        try:
            await probe.get("/tenants")
        except PermissionDenied as error:
            may = "does not accept the token" if error.status == 401 else "accepts the token, but its role may not"
            return f"{peer} {may} in the data of {peer} (status {error.status} for the list of tenants)."
        except FleetError:
            return None
    return ""
