"""The addresses to which blue redirects its clients: stored in full, read back before the flag is set."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.read_back import is_kept
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.stats.clients import ConnectedClients
from pulsar_fleet.migration.stats.read import required_stats

ADDRESS_SCHEMES = {
    "serviceUrl": "http",
    "serviceUrlTls": "https",
    "brokerServiceUrl": "pulsar",
    "brokerServiceUrlTls": "pulsar+ssl",
}
"""Key of each address of a redirect → its URL scheme."""


def has_addresses(stored: JsonObject | None, document: JsonObject) -> bool:
    """Whether a cluster redirects to these addresses.

    :param stored: as `redirect.stored_redirect` returns it.
    """
    address = (stored or {}).get("migratedClusterUrl") or {}
    return all(address.get(key) == value for key, value in document.items())


@dataclass(frozen=True, slots=True)
class Redirect:
    """A `ClusterUrl` with all four addresses.

    :param placeholders: keys whose address has no listener, because green has no service of that kind.
    """

    document: JsonObject
    placeholders: tuple[str, ...]

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """The redirect that was probed before anything changed."""
        return cls(dict(document["document"]), tuple(document["placeholders"]))


def redirect_to(green: ClusterConnection, offered: Mapping[str, str] | None = None) -> Redirect:
    """All four addresses of green.

    An address that the connection does not have is taken from the addresses that green's brokers offer. Where they
    offer none, it gets the other address's host and the default port: Java 3.0 and 3.1 clients fail on a redirect
    without a TLS address even when they do not use TLS (observed).

    :param offered: key → address of a broker of green, for the services that it offers.
    """
    admin, service = urlsplit(green.admin_url), urlsplit(green.require_service_url())
    secure_admin, secure_service = admin.scheme == "https", service.scheme == "pulsar+ssl"
    document = {
        "serviceUrl": f"http://{admin.hostname}:8080" if secure_admin else green.admin_url.rstrip("/"),
        "serviceUrlTls": green.admin_url.rstrip("/") if secure_admin else f"https://{admin.hostname}:8443",
        "brokerServiceUrl": f"pulsar://{service.hostname}:6650" if secure_service else green.service_url,
        "brokerServiceUrlTls": green.service_url if secure_service else f"pulsar+ssl://{service.hostname}:6651",
    }
    placeholders = (
        "serviceUrl" if secure_admin else "serviceUrlTls",
        "brokerServiceUrl" if secure_service else "brokerServiceUrlTls",
    )
    replaced = {key: offered[key] for key in placeholders if offered and key in offered}
    return Redirect({**document, **replaced}, tuple(key for key in placeholders if key not in replaced))


async def stored_redirect(admin: AdminClient, cluster: str) -> JsonObject | None:
    """Where the cluster redirects to; None if nothing was ever stored (the broker answers 404 then).

    Pulsar 3.0 has only the call that writes it (405) and shows it in the cluster's data.
    """
    try:
        return dict(await admin.get(f"/clusters/{cluster}/migrate"))
    except NotFound:
        return None
    except InvalidRequest as error:
        if error.status != HTTPStatus.METHOD_NOT_ALLOWED:
            raise
    data = await admin.get(f"/clusters/{cluster}")
    keys = ("migrated", "migratedClusterUrl")
    return {key: data[key] for key in keys} if data.get("migratedClusterUrl") else None


async def is_stored(blue: AdminClient, cluster: str, redirect: Redirect) -> bool:
    """Whether blue redirects its clients to exactly these addresses."""
    return has_addresses(await stored_redirect(blue, cluster), redirect.document)


async def store_redirect(blue: AdminClient, cluster: str, redirect: Redirect) -> bool:
    """Store the redirect for blue's clients, without flagging the cluster; True if it had to be written.

    The broker accepts any cluster name and any address with 200, so the redirect is read back. `PreconditionFailed`
    if it differs.
    """
    if await is_stored(blue, cluster, redirect):
        return False
    await blue.post(f"/clusters/{cluster}/migrate", redirect.document, migrated=False)
    if not await is_kept(lambda: is_stored(blue, cluster, redirect)):
        raise PreconditionFailed(
            f"{cluster} did not keep the redirect to {redirect.document['brokerServiceUrl']}; nothing was flagged. "
            f"Check GET /admin/v2/clusters/{cluster}/migrate.",
            cluster=cluster,
        )
    return True


async def set_flag(blue: AdminClient, namespace: NamespaceName, *, migrated: bool) -> None:
    """Flag a namespace as migrated, or clear the flag, and read it back.

    The broker answers 204 for a namespace that does not exist, and its topics are terminated when it is created later,
    so the namespace is read first. `NotFound` if it does not exist; `PreconditionFailed` if the flag was not kept.
    """
    policies = await blue.namespace(namespace)
    if policies is None:
        raise NotFound(f"Namespace {namespace} does not exist on {blue.connection.name}; the flag was not set.")
    if bool(policies.get("migrated")) is migrated:
        return
    await blue.post(f"/namespaces/{namespace.path}/migration", migrated)

    async def flagged() -> bool:
        after = await blue.namespace(namespace)
        return after is not None and bool(after.get("migrated")) is migrated

    if not await is_kept(flagged):
        raise PreconditionFailed(f"{blue.connection.name} did not keep migrated={migrated} for namespace {namespace}.")


async def require_green(green: AdminClient, move: Move) -> None:
    """`PreconditionFailed` unless green has every topic of the namespace and does not redirect its clients itself.

    `Unavailable` for a cluster that does not answer. Nothing has been changed for this namespace then.
    """
    policies = await green.namespace(move.namespace)
    partitioned, topics = await asyncio.gather(green.partitioned_topics(move.namespace), green.topics(move.namespace))
    existing = {*partitioned, *topics}
    missing = [topic for topic in move.stored_topics if topic not in existing]
    if policies is None or missing:
        lacking = "the namespace" if policies is None else f"{len(missing)} topics, for example {missing[0]},"
        raise PreconditionFailed(
            f"{green.connection.name} lacks {lacking} of {move.namespace}: redirected clients would fail. "
            "Nothing was flagged. Clear the task prepare_green of this run, then this one.",
            cluster=green.connection.name,
        )
    if policies.get("migrated"):
        raise PreconditionFailed(
            f"{move.namespace} is flagged as migrated on {green.connection.name}: both clusters would "
            "redirect their clients to each other. Nothing was flagged on blue. Trigger a dry run: its findings say "
            "which of the two flags may be cleared.",
            cluster=green.connection.name,
        )


async def read_clients(blue: AdminClient, move: Move) -> ConnectedClients:
    """The connected clients of each partition; this loads them all, which is impossible once the flag is set."""
    stats = await required_stats(blue, move.partitions, precise=False)
    return {topic: partition.clients for topic, partition in stats.items()}
