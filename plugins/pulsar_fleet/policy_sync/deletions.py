"""What a deletion needs from its cluster: the current document, and that nobody uses the topic (client)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.apply.outcome import ChangeResult, Outcome
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Plan
from pulsar_fleet.snapshot.resources import read_namespace


async def current_documents(
    admin: AdminClient, namespaces: Iterable[str], own: str, redactor: Redactor
) -> dict[str, JsonObject]:
    """The current documents of namespaces that may be deleted: an apply compares them with the live state."""
    documents: dict[str, JsonObject] = {}
    for name in namespaces:
        document = await read_namespace(admin, NamespaceName.parse(name), redactor)
        documents[name] = comparable(document or {}, own)
    return documents


async def without_used_topics(
    plan: Plan, admin: AdminClient, allow: Collection[str]
) -> tuple[Plan, tuple[ChangeResult, ...]]:
    """The plan without the allowed deletions of topics that are in use, and the refusal of each of them.

    The broker itself refuses to delete a topic with connected clients or a replicator and a namespace with topics, but
    deletes a topic with a backlog (observed). One call for each partition that exists, which loads it.
    """
    refused: list[ChangeResult] = []
    for change in plan.changes:
        if change.resource is Resource.TOPIC and change.action is Action.DELETE and change.id in allow:
            reason = await _use_of(admin, TopicName.parse(change.name), int(change.before["partitions"]))
            refused += [ChangeResult(change, Outcome.REFUSED, reason)] if reason else []
    kept = {result.change.id for result in refused}
    return replace(plan, changes=tuple(change for change in plan.changes if change.id not in kept)), tuple(refused)


async def _use_of(admin: AdminClient, topic: TopicName, partitions: int) -> str:
    """Why a topic is in use, empty if it is not; a partition that cannot be read is in use."""
    try:
        existing = set(await admin.topics(topic.namespace))
        for partition in topic.partitions(partitions):
            if partition not in existing:
                continue
            if reason := use_text(TopicStats.of(partition, await admin.stats(partition))):
                return f"{partition} {reason}: it is not deleted"
    except NotFound:
        return ""
    except FleetError as error:
        return f"it is unknown whether {topic} is in use, so it is not deleted: {error}"
    return ""


def use_text(stats: TopicStats) -> str:
    """What of a topic would be lost or disturbed by its deletion, as the rest of a sentence; empty for nothing."""
    if stats.clients:
        return f"has {counted(len(stats.clients), 'connected client')}, first {stats.clients[0].text()}"
    backlogs = {name: entry.backlog for name, entry in stats.subscriptions.items() if entry.backlog}
    if backlogs:
        name, backlog = next(iter(sorted(backlogs.items())))
        entries = "1 entry" if backlog == 1 else f"{backlog:,} entries"
        return f"has a backlog: {entries} in subscription {name!r}"
    return f"is replicated between this cluster and {', '.join(sorted(stats.links))}" if stats.links else ""
