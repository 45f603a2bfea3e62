"""Where blue redirects its clients: addresses, stored and read back before a flag, and the flags themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic, stored_redirect
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.links.partition_stats import required_stats, stats_of
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.scope import namespaces_besides

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_END = 2**63 - 1
_RECONNECT_SECONDS = 20.0
_RECONNECT_POLL_SECONDS = 0.5
_ATTEMPT_SECONDS = 5.0
"""A consumer of a Failover subscription begins to read a second after it connected (observed)."""


class ClusterFlag:
    """The flag of blue, which is set when every namespace that waits for it has called `set`.

    :param moves: of the run; blue may have no other namespace.
    :param waiting: how many of them are still to be cut over.
    """

    def __init__(self, blue: AdminClient, moves: Sequence[Move], redirect: Redirect, *, waiting: int) -> None:
        self._blue, self._moves, self._redirect, self._waiting = blue, moves, redirect, waiting
        self._held: list[Callable[[], Awaitable[None]]] = []
        self._is_set = asyncio.Event()

    async def require_all(self) -> None:
        """`PreconditionFailed` if blue has a namespace that does not move: the flag would terminate its topics."""
        names = {move.namespace for move in self._moves}
        if besides := await namespaces_besides(self._blue, names):
            raise PreconditionFailed(
                f"{self._blue.connection.name} has {counted(len(besides), 'namespace')} that this run does not move: "
                f"{listed(besides)}. The flag of the cluster would terminate their topics, so nothing was flagged. "
                "Delete them if nobody uses them, and clear the task; otherwise abort the run, and start it again with "
                "every namespace.",
                cluster=self._blue.connection.name,
            )

    async def set(self, require_held: Callable[[], Awaitable[None]]) -> None:
        """Wait until every namespace has come here, then set the flag, unless an earlier attempt did.

        :param require_held: raises an error if the producers of the namespace are not throttled any more.
        """
        self._held.append(require_held)
        if len(self._held) == self._waiting:
            if not await redirects_every_topic(self._blue):
                await self.require_all()
                await asyncio.gather(*(require() for require in self._held))
                await set_cluster_flag(self._blue, self._redirect, migrated=True)
            self._is_set.set()
        await self._is_set.wait()


async def together(cut_over: Callable[[Move], Awaitable[Result]], moves: Sequence[Move]) -> list[Result]:
    """Cut over all of these at once; when one fails, the others stop before its error is raised."""
    tasks = [asyncio.ensure_future(cut_over(move)) for move in moves]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in sorted(failures, key=lambda error: isinstance(error, asyncio.CancelledError)):
        raise failure
    return [result for result in results if not isinstance(result, BaseException)]


async def reconnect_consumers(blue: AdminClient, partitions: Sequence[TopicName]) -> None:
    """Disconnect consumers that have read everything, so that blue redirects them when they connect again.

    A broker of Pulsar 3.0 redirects a consumer that acknowledges the last message or reads behind it; one that waits
    for messages at the termination stays (observed: 9 of 9). A reset of its cursor to the end, where it is,
    disconnects it, and delivers nothing again. One with a backlog is left alone; the drain sees to what is left.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _RECONNECT_SECONDS
    attempted: dict[tuple[TopicName, str], float] = {}
    while (now := loop.time()) < end:
        waiting = await waiting_subscriptions(blue, partitions)
        if not waiting:
            return
        due = [key for key in waiting if now - attempted.get(key, -_ATTEMPT_SECONDS) >= _ATTEMPT_SECONDS]
        if due:
            log.info("%s: consumers of %s are reconnected", blue.connection.name, counted(len(due), "subscription"))
        attempted |= dict.fromkeys(due, now)
        await asyncio.gather(*(set_to_end(blue, topic, name) for topic, name in due))
        await asyncio.sleep(_RECONNECT_POLL_SECONDS)
    log.warning("%s: consumers that have read everything are still connected", blue.connection.name)


async def waiting_subscriptions(blue: AdminClient, partitions: Sequence[TopicName]) -> list[tuple[TopicName, str]]:
    """The subscriptions whose connected consumers have nothing more to read; two calls for each topic at most."""
    statistics = await stats_of(blue, partitions, precise=True)
    return [
        (topic, name)
        for topic, stats in statistics.items()
        if isinstance(stats, TopicStats)
        for name, subscription in stats.subscriptions.items()
        if subscription.durable and subscription.consumers and not subscription.backlog
    ]


async def set_to_end(blue: AdminClient, topic: TopicName, subscription: str) -> None:
    """Reset the cursor to the end, which disconnects its consumers."""
    await blue.post(
        f"{topic.subscription_path(subscription)}/resetcursor",
        {"ledgerId": _END, "entryId": _END, "partitionIndex": -1, "batchIndex": -1},
    )


ADDRESS_SCHEMES = {
    "serviceUrl": "http",
    "serviceUrlTls": "https",
    "brokerServiceUrl": "pulsar",
    "brokerServiceUrlTls": "pulsar+ssl",
}
"""Key of each address of a redirect → its URL scheme."""


def has_addresses(stored: JsonObject | None, document: JsonObject) -> bool:
    """Whether a cluster redirects to these addresses.

    :param stored: as `stored_redirect` returns it.
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


_PAIRS = (("serviceUrl", "serviceUrlTls"), ("brokerServiceUrl", "brokerServiceUrlTls"))
_PORTS = {"http": 8080, "https": 8443, "pulsar": 6650, "pulsar+ssl": 6651}


def redirect_to(green: ClusterConnection, offered: Mapping[str, str] | None = None, *, admin: bool = True) -> Redirect:
    """All four addresses of green: those of its applications if the connection has them, else those of the connection.

    An address that the connection does not have is taken from the addresses that green's only broker offers. Without
    them it gets the other address's host and the default port: Java 3.0 and 3.1 clients fail on a redirect
    without a TLS address even when they do not use TLS (observed).

    :param offered: key → address of the only broker of green, for the services that it offers.
    :param admin: with the addresses of the admin API, which brokers of Pulsar 3.0 do not keep.
    """
    document: JsonObject = {}
    placeholders = []
    owned = zip(_PAIRS, (green.admin_url.rstrip("/"), green.require_service_url()), strict=True)
    for keys, own in owned if admin else list(owned)[1:]:
        given = _by_key(keys, green.client_urls)
        known = given or {**_of_keys(keys, offered or {}), **_by_key(keys, [own])}
        host = urlsplit(next(iter(given.values()), own)).hostname
        for key in keys:
            scheme = ADDRESS_SCHEMES[key]
            document[key] = known.get(key) or f"{scheme}://{host}:{_PORTS[scheme]}"
            if key not in known:
                placeholders.append(key)
    return Redirect(document, tuple(placeholders))


def _by_key(keys: Iterable[str], urls: Iterable[str]) -> dict[str, str]:
    by_scheme = {urlsplit(url).scheme: url for url in urls}
    return {key: by_scheme[ADDRESS_SCHEMES[key]] for key in keys if ADDRESS_SCHEMES[key] in by_scheme}


def _of_keys(keys: Iterable[str], addresses: Mapping[str, str]) -> dict[str, str]:
    return {key: addresses[key] for key in keys if key in addresses}


async def is_stored(blue: AdminClient, cluster: str, redirect: Redirect) -> bool:
    """Whether blue redirects its clients to exactly these addresses."""
    return has_addresses(await stored_redirect(blue, cluster), redirect.document)


async def store_redirect(blue: AdminClient, cluster: str, redirect: Redirect) -> bool:
    """Store the redirect for blue's clients, without changing the cluster's flag; True if it had to be written.

    The broker accepts any cluster name and any address with 200, so the redirect is read back. `PreconditionFailed`
    if it differs.
    """
    stored = await stored_redirect(blue, cluster)
    if has_addresses(stored, redirect.document):
        return False
    flagged = bool((stored or {}).get("migrated"))
    await blue.post(f"/clusters/{cluster}/migrate", redirect.document, migrated=flagged)
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


async def set_cluster_flag(blue: AdminClient, redirect: Redirect, *, migrated: bool) -> None:
    """Flag a whole cluster as migrated, or clear the flag, and read it back together with the addresses.

    `PreconditionFailed` if either was not kept.
    """
    cluster = await blue.cluster_name()

    async def flagged() -> bool:
        stored = await stored_redirect(blue, cluster) or {}
        return has_addresses(stored, redirect.document) and bool(stored.get("migrated")) is migrated

    if await flagged():
        return
    await blue.post(f"/clusters/{cluster}/migrate", redirect.document, migrated=migrated)
    if not await is_kept(flagged):
        raise PreconditionFailed(
            f"{cluster} did not keep migrated={migrated} with {redirect.document['brokerServiceUrl']}. Check "
            f"GET /admin/v2/clusters/{cluster}.",
            cluster=cluster,
        )


async def is_flagged(blue: AdminClient, move: Move) -> bool:
    """Whether blue redirects the clients of this namespace, by its own flag or by the cluster's."""
    if move.strategy.flags_cluster:
        return await redirects_every_topic(blue)
    return bool((await blue.namespace(move.namespace) or {}).get("migrated"))


async def clear_flag(blue: AdminClient, move: Move) -> bool:
    """Clear the flag by which blue redirects the clients of this namespace; True if it was set."""
    if not await is_flagged(blue, move):
        return False
    if move.strategy.flags_cluster:
        stored = await stored_redirect(blue, await blue.cluster_name()) or {}
        addresses = {key: url for key, url in stored["migratedClusterUrl"].items() if key in ADDRESS_SCHEMES}
        await set_cluster_flag(blue, Redirect(addresses, ()), migrated=False)
    else:
        await set_flag(blue, move.namespace, migrated=False)
    return True


async def require_green(green: AdminClient, move: Move) -> None:
    """`PreconditionFailed` unless green has every topic of the namespace and does not redirect its clients itself.

    `Unavailable` for a cluster that does not answer. Nothing has been changed for this namespace then.
    """
    policies = await green.namespace(move.namespace)
    partitioned, topics = await asyncio.gather(green.partitioned_topics(move.namespace), green.topics(move.namespace))
    existing = {*partitioned, *topics}
    missing = [topic for topic in move.stored_topics if topic not in existing]
    if policies is None or missing:
        to_do = (
            "applications could not go on there. Nothing was terminated. Create it there, or delete it on the cluster "
            "that they have left if no application needs it; then clear this task."
            if move.strategy.is_moved_before
            else "redirected clients would fail. Nothing was flagged. Clear the task of this run that prepares it "
            "(prepare_green, in a failback prepare_blue), then this one."
        )
        lacking = "the namespace" if policies is None else f"{len(missing)} topics, for example {missing[0]},"
        raise PreconditionFailed(
            f"{green.connection.name} lacks {lacking} of {move.namespace}: {to_do}",
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
