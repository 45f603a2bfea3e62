"""What topics store: nothing, so that a history that is copied there is not stored twice, or how much.

A run that was interrupted has created topics and copied nothing: it must be able to go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, PlanOutdated
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats
from pulsar_fleet.links.partition_stats import internal_stats_documents, stats_of
from pulsar_fleet.replication.clusters import Clusters
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.snapshot.resources import read_clusters_in_effect, read_partition_counts


async def never_used(admin: AdminClient, topics: Mapping[TopicName, int]) -> frozenset[str]:
    """Those of these topics that hold no message, and have no producer and no subscription; it loads them.

    What cannot be read is not among them. A topic with a subscription may have had messages that were read: the broker
    deletes their ledgers, and looks as before the first message when it loads the topic again (observed, 4.2.4).
    Calls: two for each topic.

    :param topics: topic → partition count, 0 for a plain topic.
    """
    partitions = [partition for topic, count in topics.items() for partition in topic.partitions(count)]
    # First the clients: one that connects later and publishes is seen in the ledgers.
    statistics = await stats_of(admin, partitions)
    ledgers = await internal_stats_documents(admin, partitions)
    return frozenset(
        str(topic)
        for topic, count in topics.items()
        if all(_is_unused(statistics[one], ledgers[one]) for one in topic.partitions(count))
    )


async def stored_bytes(admin: AdminClient, topics: Mapping[TopicName, int]) -> dict[str, int]:
    """Topic → bytes of its largest partition; without those that could not be read. One call for each partition.

    :param topics: topic → partition count, 0 for a plain topic.
    """
    statistics = await stats_of(admin, [part for topic, count in topics.items() for part in topic.partitions(count)])
    parts = {topic: [statistics[part] for part in topic.partitions(count)] for topic, count in topics.items()}
    read = {topic: [one for one in stats if isinstance(one, TopicStats)] for topic, stats in parts.items()}
    return {
        str(topic): max((one.stored_bytes for one in read[topic]), default=0)
        for topic, stats in parts.items()
        if len(read[topic]) == len(stats)
    }


async def require_unused(clusters: Clusters, stored: ReplicationPlan) -> None:
    """Return if the topics that the plan found empty still are; a link that began has filled its topics.

    :raises PlanOutdated: one has been used since, as while the plan waited for its approval.
    """
    for namespace, links in stored.new_links.items():
        name = NamespaceName.parse(namespace)
        relied = {cluster: _inside(name, topics) for cluster, topics in stored.unused.items()}
        # Of a run about topics: others of them may have the link already, by the list of their namespace.
        topics = _inside(name, stored.topics) & frozenset().union(*relied.values())
        if not any(relied.values()) or await _any_began(clusters, name, topics, links):
            continue
        unused = {cluster: await _still_unused(clusters.admins[cluster], name, relied[cluster]) for cluster in relied}
        for link in links:
            before = {*relied.get(link.source, ()), *relied.get(link.target, ())}
            now = {*unused.get(link.source, ()), *unused.get(link.target, ())}
            if used := sorted(before - now):
                raise PlanOutdated(
                    f"{used[0]} was empty on {link.source} or {link.target} when this run was planned, and is used on "
                    "both now: a copied history could be stored twice. Start a new run. No link of "
                    f"{namespace} has been started."
                )


def _inside(namespace: NamespaceName, topics: Collection[str]) -> frozenset[str]:
    return frozenset(topic for topic in topics if TopicName.parse(topic).namespace == namespace)


async def _any_began(
    clusters: Clusters, namespace: NamespaceName, topics: Collection[str], links: Sequence[Link]
) -> bool:
    """Whether a list has a new link already: that of the namespace, or in a run about topics one of theirs."""
    for link in links:
        admin = clusters.admins[link.source]
        lists = [await read_clusters_in_effect(admin, TopicName.parse(topic)) for topic in topics]
        if not topics:
            lists.append((await admin.namespace(namespace) or {}).get("replication_clusters") or [])
        if any(link.target in listed for listed in lists):
            return True
    return False


async def _still_unused(admin: AdminClient, namespace: NamespaceName, topics: Collection[str]) -> frozenset[str]:
    counts = await read_partition_counts(admin, namespace) if topics else {}
    return await never_used(admin, {topic: count for topic, count in counts.items() if str(topic) in topics})


def _is_unused(stats: TopicStats | FleetError, ledgers: JsonObject | FleetError) -> bool:
    if isinstance(stats, FleetError) or isinstance(ledgers, FleetError):
        return False
    used = stats.producers or stats.subscriptions or stats.inbound or stats.messages_in
    return not used and has_stored_nothing(ledgers)


def has_stored_nothing(internal_stats: JsonObject) -> bool:
    """Whether a topic has one ledger without an entry, and all its cursors before it.

    An answer without these fields says nothing.
    """
    try:
        last = Position.parse(internal_stats["lastConfirmedEntry"])
        own = [int(ledger["ledgerId"]) for ledger in internal_stats["ledgers"]]
        added, kept = int(internal_stats["entriesAddedCounter"]), int(internal_stats["numberOfEntries"])
        cursors = cursors_in_stats(internal_stats)
    except (KeyError, TypeError, ValueError):
        return False
    before_first = Position(own[0], -1) if len(own) == 1 else None
    at_start = all(cursor.mark_delete == last and not cursor.consumed for cursor in cursors.values())
    return last == before_first and added == 0 and kept == 0 and at_start
