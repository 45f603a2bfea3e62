"""Lists that brokers store whole, so that a change of one name may undo another's: of clusters, of shadow topics.

Also what replication of a namespace needs besides: cluster data, and the end of its replicators.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime
from urllib.parse import quote, unquote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.policies.documents import configuration_servers, stored_policies
from pulsar_fleet.cluster.policies.effective import clusters_of_topic
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, Scope
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_policy_calls
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.links.partition_stats import required_internal_stats, required_stats, stats_of
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.planning.hazards import cluster_lists, guard_cluster_lists
from pulsar_fleet.snapshot.resources import (
    lists_of_topics,
    read_clusters_in_effect,
    read_partition_counts,
    read_topic_lists,
)
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

EARLIEST, LATEST = "earliest", "latest"


async def copy_from(source: AdminClient, topic: TopicName, cluster: str, since: datetime | None = None) -> None:
    """Let the replicator to `cluster` begin in what is stored; call it before replication begins.

    It creates the replicator's cursor, which would begin at the newest message. The topic must stay loaded until
    replication begins: a topic that is loaded without it removes the cursor (observed). Where the topic replicates
    to the cluster already, it stays where it is: the call would set it back, and everything would be sent twice
    (observed on 4.2.4). That of a replicator which is ending is set back.

    :param topic: a plain topic or a partition.
    :param since: begin at the first message that was published then or later; None: at the first stored message.
    """
    name = replicator_cursor(cluster)
    try:
        stored = await source.internal_stats(topic)
    except NotFound:
        # A partition that nobody has used yet.
        await source.create_subscription(topic, name, EARLIEST)
        return
    if name in cursors_in_stats(stored) and cluster in await read_clusters_in_effect(source, topic.parent):
        return
    # Observed on 4.2.4: a terminated topic that never had a message has no ledger when it is loaded again, and the
    # broker never answers the call that sets a cursor to its earliest position.
    first = EARLIEST if stored.get("ledgers") else LATEST
    position = first if since is None else await _first_since(source, topic, since)
    try:
        await source.create_subscription(topic, name, position)
    except Conflict:
        if name in cursors_in_stats(await source.internal_stats(topic)):
            return
        # Replication ended since the topic was loaded: the cursor is gone, its name is still listed (observed).
        await source.delete_subscription(topic, name)
        await source.create_subscription(topic, name, position)


async def _first_since(source: AdminClient, topic: TopicName, since: datetime) -> Position | str:
    """The position of the first message published at a time or later; after the last one if there is none."""
    try:
        answer = await source.get(f"/{topic.path}/messageid/{int(since.timestamp() * 1000)}")
    except NotFound:
        # A partition that nobody has used yet.
        return EARLIEST
    return Position(int(answer["ledgerId"]), int(answer["entryId"]))


log = logging.getLogger(__name__)

_PRECONDITION_FAILED = 412
END_SECONDS = 30.0
_RESUMED_SECONDS, _LOOK_SECONDS = 8.0, 0.3
_TRIES = 5
_REPEAT_SECONDS = 1.0


async def register_cluster(blue: AdminClient, name: str, green: ClusterConnection) -> bool:
    """Create green's cluster data on blue, under its own name; True if it was missing. Existing data stays."""
    if await blue.cluster_data(name) is not None:
        return False
    await blue.put_cluster(name, green.cluster_data())
    return True


async def share_store(first: AdminClient, second: AdminClient, namespace: NamespaceName) -> bool:
    """Whether two clusters seem to have one configuration store: what is deleted there is deleted for both.

    Both have one address of it, know each other, and have the same policies of a namespace. Clusters that call servers
    of their own by one name can look so too. Two calls where the addresses differ, else eight.
    """
    sides = (first, second)
    stores = await asyncio.gather(*(admin.get("/brokers/internal-configuration") for admin in sides))
    if not frozenset.intersection(*map(configuration_servers, stores)):
        return False
    own = {await admin.cluster_name() for admin in sides}
    known = await asyncio.gather(*(admin.clusters() for admin in sides))
    documents = await asyncio.gather(*(admin.namespace(namespace) for admin in sides))
    ours, theirs = (stored_policies(document or {}) for document in documents)
    return all(own.issubset(names) for names in known) and ours == theirs


async def change_list(
    read: Callable[[], Awaitable[Collection[str]]],
    write: Callable[[list[str], list[str]], Awaitable[None]],
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    again: bool = False,
) -> bool:
    """Add names to a list that is stored whole, and take names out; what others put there meanwhile stays.

    Brokers have no compare-and-set, so the list is read directly before it is written, and read back: if another writer
    came in between, once more. Whether it was written. A second call changes nothing.

    :param write: stores the list, given as it was read and as it is to be.
    :param again: store it although it has all names already.
    :raises Conflict: others write it at the same time again and again.
    """

    async def is_shown() -> bool:
        now = {*await read()}
        return {*add} <= now and not {*remove} & now

    for attempt in range(_TRIES):
        current = {*await read()}
        desired = (current | {*add}) - {*remove}
        if desired == current and not (again and attempt == 0):
            return attempt > 0
        await write(sorted(current), sorted(desired))
        if await is_kept(is_shown):
            return True
    raise Conflict(
        f"Others write the list {sorted(desired)} at the same time. Run this step again when they have ended."
    )


async def require_list_as_read(admin: AdminClient, call: Call, names: Collection[str] | None) -> None:
    """Refuse a call that stores a list of clusters which was made some time ago, if the list is another one by now.

    A tenant is stored with its admin roles. A call that creates what has the list is refused by the broker instead. A
    list that is in place already is no reason: a second attempt sends it again.

    :param names: the list from which the call was made; None if it is unknown.
    :raises PreconditionFailed: the list, or the roles, are others now. Nothing was sent.
    """
    if call.method != "POST" or not cluster_lists(call):
        return
    kind, _, name = call.path.lstrip("/").partition("/")
    if kind == "tenants":
        tenant = await admin.tenant(unquote(name)) or {}
        current = {*(tenant.get("allowedClusters") or ())}
        same = {*(tenant.get("adminRoles") or ())} == {*(call.body or {}).get("adminRoles", ())}
    elif kind == "namespaces":
        field = "replication_clusters" if call.path.endswith("/replication") else "allowed_clusters"
        current, same = {*((await admin.get(call.path.rpartition("/")[0])).get(field) or ())}, True
    else:
        current, same = {*(await admin.get(call.path) or ())}, True
    desired = {name for _, listed in cluster_lists(call) for name in listed}
    if same and current == desired:
        return
    if names is None or current != {*names} or not same:
        before = "unknown" if names is None else ", ".join(sorted(names)) or "empty"
        raise PreconditionFailed(
            f"{call.text()} replaces a list that was {before}, and is {', '.join(sorted(current)) or 'empty'} now"
            f"{'' if same else ', with other roles'}. Nothing was sent: examine the clusters again.",
            cluster=admin.connection.name,
        )


async def allow_cluster(blue: AdminClient, tenant: str, cluster: str) -> bool:
    """Allow the tenant's namespaces on blue to replicate to `cluster`; True if it was not allowed."""
    return await _change_allowed(blue, tenant, add=[cluster])


async def allow_in_namespace(admin: AdminClient, own: str, namespace: NamespaceName, clusters: Collection[str]) -> None:
    """Add clusters to the allowed clusters of a namespace that has any: brokers refuse others in its lists (PIP-321).

    A namespace without allowed clusters allows those of its tenant. A second call changes nothing.
    """

    async def read() -> Collection[str]:
        return (await admin.namespace(namespace) or {}).get("allowed_clusters") or ()

    async def write(_: list[str], allowed: list[str]) -> None:
        call = with_body("POST", f"/namespaces/{namespace.path}/allowedClusters", allowed)
        guard_cluster_lists(call, own)
        await admin.post(call.path, call.body)

    if await read():
        await change_list(read, write, add=clusters)


async def disallow_cluster(blue: AdminClient, tenant: str, cluster: str) -> tuple[str, ...]:
    """Undo `allow_cluster`, unless a namespace of the tenant replicates to `cluster`: the broker refuses it then."""
    if await blue.tenant(tenant) is None:
        return ()
    try:
        changed = await _change_allowed(blue, tenant, remove=[cluster])
    except FleetError as error:
        if error.status != _PRECONDITION_FAILED:
            raise
        log.info("tenant %s still replicates to %s", tenant, cluster)
        return ()
    return (f"allowed clusters of {tenant}",) if changed else ()


async def _change_allowed(
    blue: AdminClient, tenant: str, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> bool:
    document: JsonObject = {}

    async def read() -> Collection[str]:
        nonlocal document
        stored = await blue.tenant(tenant)
        if stored is None:
            raise NotFound(f"Tenant {tenant!r} does not exist on {blue.connection.name}.")
        document = stored
        return list(stored.get("allowedClusters") or [])

    async def write(_: list[str], clusters: list[str]) -> None:
        call = with_body("POST", f"/tenants/{quote(tenant, safe='')}", {**document, "allowedClusters": clusters})
        guard_cluster_lists(call, await blue.cluster_name())
        await blue.post(call.path, call.body)

    return await change_list(read, write, add=add, remove=remove)


async def topics_without(
    blue: AdminClient,
    namespace: NamespaceName,
    cluster: str,
    topics: Iterable[TopicName],
) -> frozenset[TopicName]:
    """Those of the topics, never partitions, that do not replicate to `cluster` now, by their own lists too."""
    own = await own_lists(blue, namespace)
    listed = frozenset(await _clusters(blue, namespace))
    return frozenset(topic for topic in topics if cluster not in own.get(topic, listed))


async def own_lists_without(blue: AdminClient, namespace: NamespaceName, cluster: str) -> tuple[TopicName, ...]:
    """The topics of a namespace, never partitions, with a list of their own that does not name `cluster`."""
    own = await own_lists(blue, namespace)
    return tuple(sorted(topic for topic, clusters in own.items() if cluster not in clusters))


async def own_lists(admin: AdminClient, namespace: NamespaceName) -> dict[TopicName, frozenset[str]]:
    """Topic → the list of clusters that it has itself; one pass over the topic policies of its namespace."""
    async with TopicPolicyReader(admin, None) as reader:
        return lists_of_topics(await reader.read(namespace))


async def topics_with(blue: AdminClient, cluster: str, topics: Collection[TopicName]) -> tuple[TopicName, ...]:
    """Those of the topics that name `cluster` in a list of their own; two calls for each."""
    return tuple(topic for topic, listed in (await _listing(blue, cluster, topics)).items() if listed)


async def _listing(blue: AdminClient, cluster: str, topics: Collection[TopicName]) -> dict[TopicName, bool]:
    """Of topics with a list of their own, whether it names `cluster`."""
    names = list(topics)
    lists = await asyncio.gather(*(_own_clusters(blue, topic) for topic in names))
    return {topic: cluster in clusters for topic, clusters in zip(names, lists, strict=True) if clusters}


async def begin_replication(
    blue: AdminClient, own: str, namespace: NamespaceName, cluster: str, topics: Collection[TopicName] = ()
) -> bool:
    """Add `cluster` to the namespace's replication clusters on blue; True if it was missing.

    :param topics: those for which a list of their own counts instead of it: `cluster` is added there too.
    """
    await allow_in_namespace(blue, own, namespace, [cluster])
    for topic in topics:
        await _change_topic(blue, own, topic, add=[own, cluster])
    return await _change(blue, own, namespace, add=[own, cluster])


async def end_replication(
    blue: AdminClient,
    own: str,
    namespace: NamespaceName,
    cluster: str,
    original: Collection[str],
    topics: Collection[TopicName] = (),
) -> bool:
    """Remove `cluster` from the replication clusters, unless the namespace had it before; True if it was there.

    Other changes since then stay. Blue's own name always stays: without it blue would delete the topics. Returns when
    no topic has a replicator to `cluster`: a broker keeps one that was being started when the list changed (observed),
    and ends it when it reads the list again. Loads the topics. A second call does what is left.

    :param original: the namespace's replication clusters before the run.
    :param topics: those whose own lists did not have `cluster` before the run; it is removed there too.
    :raises PreconditionFailed: a topic still has a replicator to `cluster`, or cannot be read; the list is shorter.
    """
    if topics and await redirects_every_topic(blue):
        topics = ()
    shorter = [await _change_topic(blue, own, topic, remove=[cluster]) for topic in topics]
    if cluster not in original:
        shorter.append(await _change(blue, own, namespace, remove=[cluster]))
        await wait_ended(blue, own, namespace, cluster)
    elif with_lists := await _listing(blue, cluster, topics):
        await wait_ended(blue, own, namespace, cluster, only=with_lists)
    return any(shorter)


async def replace_cluster(
    admin: AdminClient, own: str, namespace: NamespaceName, old: str, new: str, topics: Collection[TopicName] = ()
) -> bool:
    """Put one cluster in the place of another in the replication clusters, in one write; True if a list was changed.

    A list that lacks `old`, or has `new` already, stays as it is.

    :param topics: with lists of their own, in which it is replaced too.
    """
    listing = {*(await topics_with(admin, old, topics))} - {*(await topics_with(admin, new, topics))}
    changed = [await _change_topic(admin, own, topic, add=[own, new], remove=[old]) for topic in sorted(listing)]
    if {old, new}.intersection(await _clusters(admin, namespace)) == {old}:
        changed.append(await _change(admin, own, namespace, add=[own, new], remove=[old]))
    return any(changed)


async def start_replicators(admin: AdminClient, namespace: NamespaceName) -> None:
    """Unload the partitions of a namespace of which a connected replicator has entries to send and sends none for 8 s.

    One that has reached its rate may stand still for good, also when the rate is lifted (4.0 before 4.0.12, 4.2 before
    4.2.3; observed on 4.0.7). Loads the topics.
    """
    topics = [topic for topic in await admin.topics(namespace) if topic.persistent and not topic.is_system]
    before = await _unsent(admin, topics)
    end = time.monotonic() + _RESUMED_SECONDS
    waiting = {key for key, (_, unsent) in before.items() if unsent}
    while waiting and time.monotonic() < end:
        await asyncio.sleep(_LOOK_SECONDS)
        now = await _unsent(admin, {topic for topic, _ in waiting})
        waiting = {key for key in waiting if key in now and now[key][1] and now[key][0] == before[key][0]}
    read = await required_stats(admin, {topic for topic, _ in waiting}, precise=False)
    # The cursor of a replication that has ended, or has not begun yet, stands still by right.
    still = {topic for topic, cluster in waiting if read[topic].replication_connected.get(cluster)}
    for topic in sorted(still):
        log.warning("%s: a replicator stands still, so the topic is unloaded on %s", topic, admin.connection.name)
        await admin.put(f"/{topic.path}/unload")


async def _unsent(
    admin: AdminClient, partitions: Sequence[TopicName] | set[TopicName]
) -> dict[tuple[TopicName, str], tuple[Position, int]]:
    """(partition, cluster) → the mark-delete position of the cursor for it, and how many entries are behind that."""
    prefix = replicator_cursor("")
    return {
        (topic, name.removeprefix(prefix)): (cursor.mark_delete, len(ledgers) - ledgers.index_after(cursor.mark_delete))
        for topic, internal in (await required_internal_stats(admin, partitions)).items()
        for ledgers in [Ledgers.of(internal)]
        for name, cursor in cursors_in_stats(internal).items()
        if name.startswith(prefix)
    }


async def wait_ended(
    blue: AdminClient, own: str, namespace: NamespaceName, cluster: str, *, only: Collection[TopicName] = ()
) -> None:
    """Wait until no topic of a namespace whose list lacks `cluster` has a replicator to it. It loads the topics.

    The list is stored again as it is, once a second, while a replicator is left: see `end_replication`.

    :param only: of these topics alone, where the namespace's list has `cluster`.
    :raises PreconditionFailed: after 30 s a topic still has a replicator to `cluster`, or cannot be read.
    """
    partitions = [
        partition
        for topic, count in (await read_partition_counts(blue, namespace)).items()
        for partition in topic.partitions(count)
        if not only or topic in only
    ]
    loop = asyncio.get_running_loop()
    end = loop.time() + END_SECONDS
    while left := await _replicating(blue, partitions, cluster):
        if loop.time() >= end:
            raise PreconditionFailed(
                f"{namespace} does not list {cluster} any more, but {blue.connection.name} replicates "
                f"{len(left)} partitions to it still, or does not say whether it does, first {left[0]}. Store the "
                "namespace's list of clusters once more as it is."
            )
        await asyncio.sleep(_REPEAT_SECONDS)
        await _store(blue, own, namespace, await _clusters(blue, namespace))


async def _replicating(blue: AdminClient, partitions: Sequence[TopicName], cluster: str) -> list[TopicName]:
    """Partitions with a replicator to `cluster` that no policy of theirs asks for, and those that are unreadable."""
    answers = await stats_of(blue, partitions, precise=False)
    linked = [topic for topic, stats in answers.items() if _is_linked(stats, cluster)]
    listing = await topics_with(blue, cluster, {topic.parent for topic in linked})
    return [topic for topic in linked if topic.parent not in listing]


def _is_linked(stats: TopicStats | FleetError, cluster: str) -> bool:
    if isinstance(stats, FleetError):
        # Unloaded under the flag of a migration it has no replicator, and the broker loads it no more.
        return not isinstance(stats, Conflict | NotFound)
    return cluster in stats.replication_connected


async def _own_clusters(blue: AdminClient, topic: TopicName) -> list[str]:
    """The list that counts for a topic instead of its namespace's; empty without one, or without the topic."""
    try:
        local, shared = await read_topic_lists(blue, topic)
    except NotFound:
        return []
    return clusters_of_topic(local=local, shared=shared) or []


async def _change_topic(
    blue: AdminClient, own: str, topic: TopicName, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> bool:
    """Change the list that a topic has itself; one that it has in its global policies stays, and counts again later."""
    if not await _own_clusters(blue, topic):
        return False

    async def read() -> Collection[str]:
        return await _own_clusters(blue, topic)

    async def write(before: list[str], clusters: list[str]) -> None:
        _, shared = await read_topic_lists(blue, topic)
        after = None if clusters == sorted(shared[TOPIC_CLUSTERS] or ()) else clusters
        for call in topic_policy_calls(TOPIC_BY_FIELD[TOPIC_CLUSTERS], topic, Scope.LOCAL, before, after):
            guard_cluster_lists(call, own)
            await blue.send(call)

    return await change_list(read, write, add=add, remove=remove)


async def _clusters(blue: AdminClient, namespace: NamespaceName) -> list[str]:
    return list((await blue.namespace(namespace) or {}).get("replication_clusters") or [])


async def _change(
    blue: AdminClient, own: str, namespace: NamespaceName, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> bool:
    async def read() -> Collection[str]:
        return await _clusters(blue, namespace)

    async def write(_: list[str], clusters: list[str]) -> None:
        await _store(blue, own, namespace, clusters)

    return await change_list(read, write, add=add, remove=remove)


async def _store(blue: AdminClient, own: str, namespace: NamespaceName, clusters: Collection[str]) -> None:
    call = with_body("POST", f"/namespaces/{namespace.path}/replication", sorted(clusters))
    guard_cluster_lists(call, own)
    await blue.post(call.path, call.body)
