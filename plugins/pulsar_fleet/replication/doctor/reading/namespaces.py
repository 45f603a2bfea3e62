"""Read namespaces that replicate: lists, tenants, topics, policies of topics (client)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.model import Scope
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.cluster.runs.overrides import without_overrides
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.replication.doctor.facts import NamespaceFacts, TopicPolicies, Unread
from pulsar_fleet.snapshot.cluster_reader import tenant_names
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_AFFINITY = "bookie_affinity"


async def list_selected(
    admins: Mapping[str, AdminClient], selection: Selection, unread: list[Unread]
) -> tuple[NamespaceName, ...]:
    """The selected namespaces of any cluster: for each cluster one call, and one for each tenant."""

    async def namespaces(own: str, tenant: str) -> tuple[NamespaceName, ...]:
        try:
            return await admins[own].namespaces(tenant)
        except NotFound:
            return ()
        except NotAllowed as error:
            about = frozenset({tenant})
            unread.append(
                Unread(cluster=own, resource=f"namespaces of tenant {tenant}", reason=str(error), about=about)
            )
            return ()

    async def listed(own: str) -> list[NamespaceName]:
        tenants = await tenant_names(admins[own], selection)
        lists = await asyncio.gather(*(namespaces(own, tenant) for tenant in tenants))
        return [name for names in lists for name in names if selection.has(name)]

    every = await asyncio.gather(*map(listed, admins))
    return tuple(sorted({name for names in every for name in names} | selection.namespaces))


async def read_namespaces(
    admin: AdminClient, own: str, names: Iterable[NamespaceName], unread: list[Unread]
) -> dict[NamespaceName, NamespaceFacts]:
    """The documents of namespaces and their tenants: one call for each."""
    listed = list(names)
    tenants = dict.fromkeys(name.tenant for name in listed)
    documents = await asyncio.gather(*(_tenant(admin, own, tenant, unread) for tenant in tenants))
    by_tenant = dict(zip(tenants, documents, strict=True))

    async def read(name: NamespaceName) -> NamespaceFacts:
        exists, tenant = by_tenant[name.tenant]
        facts = NamespaceFacts(cluster=own, name=name, tenant_exists=exists, tenant=tenant)
        try:
            document = await admin.namespace(name)
        except FleetError as error:
            unread.append(_unread(facts, f"namespace {name}", error))
            return facts
        return replace(facts, exists=False) if document is None else _with_policies(facts, document)

    return dict(zip(listed, await asyncio.gather(*map(read, listed)), strict=True))


def _with_policies(facts: NamespaceFacts, document: JsonObject) -> NamespaceFacts:
    stored, document = document, without_overrides(document)
    original = document.get("replication_clusters") or ()
    # The list in effect: the replicators of a migration's copy can stand still like others. Its cut-over ends them.
    clusters = original if document.get("migrated") else stored.get("replication_clusters") or ()
    return replace(
        facts,
        exists=True,
        clusters=tuple(sorted(clusters)),
        added_by_run=frozenset({*clusters} - {*original}),
        allowed_clusters=tuple(sorted(document.get("allowed_clusters") or ())),
        policies=comparable(document, facts.cluster),
        allows_schema_update=bool(document.get("is_allow_auto_update_schema", True)),
        excepts_replicators=bool(document.get("is_allow_auto_update_schema_with_replicator", True)),
        migrated=bool(document.get("migrated")),
    )


async def with_affinity(admin: AdminClient, facts: NamespaceFacts, unread: list[Unread]) -> NamespaceFacts:
    """The namespace with its bookie affinity, which its policies do not have: one call."""
    if not facts.exists:
        return facts
    try:
        affinity = await admin.get(f"/namespaces/{facts.name.path}/{BY_FIELD[_AFFINITY].path}")
    except NotFound:
        return facts
    except FleetError as error:
        unread.append(_unread(facts, f"bookie affinity of {facts.name}", error))
        return facts
    return replace(facts, policies={**facts.policies, _AFFINITY: affinity})


async def _tenant(
    admin: AdminClient, own: str, tenant: str, unread: list[Unread]
) -> tuple[bool | None, JsonObject | None]:
    try:
        document = await admin.tenant(tenant)
    except FleetError as error:
        about = frozenset({tenant})
        unread.append(Unread(cluster=own, resource=f"tenant {tenant}", reason=str(error), about=about))
        return None, None
    return document is not None, document


async def read_topics(
    admin: AdminClient, facts: NamespaceFacts, reader: TopicPolicyReader, unread: list[Unread]
) -> NamespaceFacts:
    """Topics with their partition counts, and the policies of topics; loads `__change_events`, no other topic.

    Calls: two, one for each partitioned topic, and one pass over `__change_events` where it exists.
    """
    if not facts.exists:
        return facts
    if not facts.is_served:
        reason = f"no list of the namespace has {facts.cluster}, so that brokers refuse its topics"
        unread.append(_unread(facts, f"topics of {facts.name}", reason))
        return facts
    try:
        topics = await _partition_counts(admin, facts.name)
    except FleetError as error:
        unread.append(_unread(facts, f"topics of {facts.name}", error))
        return facts
    facts = replace(facts, topics=topics)
    if TopicName(facts.name, POLICY_EVENTS) not in topics:
        return replace(facts, topic_policies={})
    try:
        return replace(facts, topic_policies=await _topic_policies(reader, facts.name))
    except FleetError as error:
        unread.append(_unread(facts, f"topic policies of {facts.name}", error))
        return facts


def _unread(facts: NamespaceFacts, resource: str, reason: FleetError | str) -> Unread:
    return Unread(cluster=facts.cluster, resource=resource, reason=str(reason), about=frozenset({str(facts.name)}))


async def _partition_counts(admin: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Of persistent topics without system topics, but with `__change_events`, which replicators copy too."""
    listed = await admin.get(f"/persistent/{name.path}/partitioned", includeSystemTopic=True)
    partitioned = [topic for topic in map(TopicName.parse, listed) if _is_replicated(topic)]
    metadata = await asyncio.gather(*map(admin.partition_metadata, partitioned))
    counts = {topic: answer.partitions for topic, answer in zip(partitioned, metadata, strict=True)}
    for topic in await list_persistent(admin, name):
        if _is_replicated(topic) and topic.parent not in counts:
            counts[topic] = 0
    return counts


async def list_persistent(admin: AdminClient, name: NamespaceName) -> tuple[TopicName, ...]:
    """The persistent topics, with system topics; a partitioned topic by its partitions.

    After the list of a namespace lacked the serving cluster, the call that lists both domains is never answered again,
    also not when the list is right (observed, 4.2.4).
    """
    return tuple(map(TopicName.parse, await admin.get(f"/persistent/{name.path}", includeSystemTopic=True)))


def _is_replicated(topic: TopicName) -> bool:
    return not topic.is_system or topic.parent.local == POLICY_EVENTS


async def _topic_policies(reader: TopicPolicyReader, name: NamespaceName) -> dict[TopicName, TopicPolicies]:
    policies: dict[TopicName, TopicPolicies] = {}
    for state in await reader.read(name):
        topic, document = TopicName.parse(state.topic), topic_comparable(state.policies)
        current = policies.get(topic, TopicPolicies())
        shared = state.scope == Scope.GLOBAL
        policies[topic] = replace(current, shared=document) if shared else replace(current, local=document)
    return policies
