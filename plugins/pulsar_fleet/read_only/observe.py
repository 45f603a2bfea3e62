"""Read what a cluster has of sources, shadow topics and their namespace; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import RETIRED_FROM
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import effective_value, is_set
from pulsar_fleet.cluster.policies.model import TopicPolicy
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_comparable
from pulsar_fleet.cluster.statistics import COMPACTION
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.planning.diff import schema_values
from pulsar_fleet.read_only.isolation import recorded_brokers
from pulsar_fleet.read_only.owners import owners_of, read_brokers
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState, retained_minutes_and_megabytes
from pulsar_fleet.snapshot.resources import read_migrated_to, read_partition_counts, schema_state
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_RETENTION, _COMPACTION = TOPIC_BY_FIELD["retentionPolicies"], TOPIC_BY_FIELD["compactionThreshold"]
_EXPLICIT_LAC = "bookkeeperExplicitLacIntervalInMills"


async def observe(admin: AdminClient, request: Request) -> Observed:
    """Read the cluster: one call, and one for each broker.

    Two for each namespace of a source, up to eight for each topic, and two for each of its partitions.

    If the namespace exists, two, up to three for each topic in it, and one for each namespace of their sources.

    With brokers of their own: one call for each of these and two for each topic or partition that serves readers. It
    loads the sources.
    """
    own = await admin.cluster_name()
    brokers = await admin.brokers()
    configurations = await asyncio.gather(*(admin.runtime_configuration(broker) for broker in brokers))
    document = await admin.namespace(request.namespace)
    wanted = request.brokers or recorded_brokers(document)
    shadow_names = [request.shadow(topic) for topic in request.topics]
    namespaces = {topic.namespace for topic in request.topics}
    places = dict(zip(namespaces, await asyncio.gather(*(_place(admin, name) for name in namespaces)), strict=True))
    sources, shadows = await asyncio.gather(
        asyncio.gather(
            *(_source(admin, own, topic, places[topic.namespace], configurations) for topic in request.topics)
        ),
        asyncio.gather(*(_shadow(admin, topic, owned=bool(wanted)) for topic in shadow_names)),
    )
    return Observed(
        cluster=own,
        tenant_exists=await admin.tenant(request.namespace.tenant) is not None,
        document=document,
        brokers=await read_brokers(admin, request.namespace, wanted, dict(zip(brokers, configurations, strict=True))),
        served=await _served(admin, request) if document else {},
        sources=tuple(sources),
        shadows={state.topic: state for state in shadows},
        without_explicit_lac=tuple(
            broker
            for broker, configuration in zip(brokers, configurations, strict=True)
            if int(configuration.get(_EXPLICIT_LAC) or 0) <= 0
        ),
        peers=tuple(name for name in await admin.clusters() if name != own),
        configuration=dict(configurations[0]) if configurations else {},
        existing=await read_partition_counts(admin, request.namespace) if document else {},
    )


async def with_own_policies(admin: AdminClient, observed: Observed) -> Observed:
    """The same with the policies of the sources themselves: one pass over the topic policies of each namespace."""
    policies: dict[str, set[str]] = {}
    unread: dict[NamespaceName, str] = {}
    async with TopicPolicyReader(admin, open_redactor()) as reader:
        for namespace in {
            one.topic.namespace for one in observed.sources if one.partitions is not None and not one.migration
        }:
            try:
                states = await reader.read(namespace)
            except FleetError as error:
                unread[namespace] = str(error)
                continue
            for state in states:
                own = (name for name, value in topic_comparable(state.policies).items() if is_set(value))
                policies.setdefault(state.topic, set()).update(own)
    return replace(
        observed,
        sources=tuple(
            replace(
                source,
                own_policies=tuple(sorted(policies.get(str(source.topic), ()))),
                policies_unread=unread.get(source.topic.namespace, ""),
            )
            for source in observed.sources
        ),
    )


async def sources_served_in(admin: AdminClient, namespace: NamespaceName) -> tuple[TopicName, ...]:
    """The sources of the shadow topics of a namespace; also those that are missing by now.

    :raises NotFound: the namespace does not exist.
    """
    names = {shadow: source_in(await properties_of(admin, shadow)) for shadow in await topics_in(admin, namespace)}
    sources = {shadow: TopicName.parse(name) for shadow, name in names.items() if name}
    return tuple(source for shadow, source in sources.items() if source.local == shadow.local)


async def policies_for_readers(admin: AdminClient, namespace: NamespaceName) -> JsonObject:
    """The policies of a namespace for readers.

    :raises NotFound: the namespace does not exist.
    """
    if (document := await admin.namespace(namespace)) is None:
        raise NotFound(
            f"{await admin.cluster_name()} has no namespace {namespace}: correct the name, or serve topics in it with "
            "serve_read_only first. Nothing has been changed.",
            cluster=admin.connection.name,
        )
    return document


async def topics_in(admin: AdminClient, namespace: NamespaceName) -> list[TopicName]:
    """The persistent topics of a namespace for readers, partitioned ones by their own names.

    :raises NotFound: the namespace does not exist.
    """
    await policies_for_readers(admin, namespace)
    partitioned = await admin.partitioned_topics(namespace)
    plain = {topic for topic in await admin.topics(namespace) if topic.parent not in partitioned}
    return sorted(topic for topic in {*partitioned, *plain} if topic.persistent)


async def _served(admin: AdminClient, request: Request) -> dict[TopicName, JsonObject]:
    sources = await sources_served_in(admin, request.namespace)
    documents = {name: await admin.namespace(name) or {} for name in {source.namespace for source in sources}}
    return {source: documents[source.namespace] for source in sources}


async def partitions_of(admin: AdminClient, topic: TopicName) -> int | None:
    """The number of partitions, 0 of a topic without, None of a topic that is missing."""
    try:
        return (await admin.partition_metadata(topic)).partitions
    except NotFound:
        return None


async def shadow_topics_of(admin: AdminClient, source: TopicName) -> tuple[str, ...]:
    """The shadow topics of a source, by its own list."""
    return tuple(sorted(await admin.get(f"/{source.path}/shadowTopics") or ()))


async def properties_of(admin: AdminClient, topic: TopicName) -> Mapping[str, str]:
    """The properties of an existing topic; it is not loaded."""
    metadata = await admin.partition_metadata(topic)
    if metadata.partitions:
        return metadata.properties
    return dict((await admin.internal_info(topic)).get("properties") or {})


def source_in(properties: Mapping[str, str]) -> str:
    """The source with which a topic of these properties shares ledgers; empty of an ordinary topic."""
    return properties.get(RETIRED_FROM) or properties.get(SHADOW_SOURCE) or ""


async def _place(admin: AdminClient, namespace: NamespaceName) -> tuple[JsonObject, str]:
    """The policies of a namespace, and the migration that ended it here."""
    document = await admin.namespace(namespace) or {}
    return document, await read_migrated_to(admin, namespace, document)


async def _source(
    admin: AdminClient,
    own: str,
    topic: TopicName,
    place: tuple[JsonObject, str],
    configurations: Sequence[Mapping[str, Json]],
) -> SourceState:
    partitions = await partitions_of(admin, topic)
    if partitions is None:
        return SourceState(topic=topic)
    document, migration = place
    if migration:
        # Its topics do not load any more once they were unloaded (observed).
        linked = await shadow_topics_of(admin, topic)
        return SourceState(topic=topic, partitions=partitions, migration=migration, linked=linked, namespace=document)
    stored = topic.partitions(partitions)
    statistics = [await admin.stats(partition, precise=False) for partition in stored]
    information = [await admin.internal_info(partition) for partition in stored]
    versions = [schema_state(topic, version) for version in await admin.schemas(topic)]
    policies = comparable(document, own)
    retentions = await policy_in_effect(admin, topic, _RETENTION, policies, configurations)
    compactions = await policy_in_effect(admin, topic, _COMPACTION, policies, configurations)
    return SourceState(
        topic=topic,
        partitions=partitions,
        shadow_of=source_in(await properties_of(admin, topic)),
        terminated=any("terminatedPosition" in info for info in information),
        compacted=any(COMPACTION in (info.get("cursors") or {}) for info in information),
        compaction_bytes=max((int(value or 0) for value in compactions), default=0),
        linked=await shadow_topics_of(admin, topic),
        retention=min(retentions, key=retained_minutes_and_megabytes, default=None),
        bytes_per_second=sum(float(stats.get("msgThroughputIn") or 0) for stats in statistics),
        stored_bytes=sum(int(stats.get("storageSize") or 0) for stats in statistics),
        sent=await _sent(admin, dict(zip(stored, statistics, strict=True))),
        namespace=document,
        schemas=tuple(schema_values(versions)),
        schemas_are_numbered=all(schema.version == number for number, schema in enumerate(versions)),
    )


async def _sent(admin: AdminClient, statistics: Mapping[TopicName, JsonObject]) -> dict[str, float]:
    """By owner, the bytes per second that the subscriptions of topics are sent."""
    sent: dict[str, float] = {}
    for topic, owner in (await owners_of(admin, statistics)).items():
        subscriptions = (statistics[topic].get("subscriptions") or {}).values()
        rate = sum(float(subscription.get("msgThroughputOut") or 0) for subscription in subscriptions)
        sent[owner] = sent.get(owner, 0.0) + rate
    return sent


async def _shadow(admin: AdminClient, topic: TopicName, *, owned: bool) -> ShadowState:
    partitions = await partitions_of(admin, topic)
    if partitions is None:
        return ShadowState(topic=topic)
    properties = await properties_of(admin, topic)
    stored = topic.partitions(partitions) if owned else ()
    return ShadowState(
        topic=topic,
        partitions=partitions,
        source=source_in(properties),
        retiring=RETIRED_FROM in properties,
        retentions=await _own(admin, topic, _RETENTION.path),
        schemas=tuple(schema_values(schema_state(topic, version) for version in await admin.schemas(topic))),
        owners=await owners_of(admin, stored),
        bundles={partition: await admin.bundle(partition) for partition in stored},
    )


async def _own(admin: AdminClient, topic: TopicName, path: str) -> dict[str, Json]:
    """A policy of the topic itself, by scope; two calls."""
    scopes = {"local": False, "global": True}
    values = {scope: await admin.get(f"/{topic.path}/{path}", isGlobal=value) for scope, value in scopes.items()}
    return {scope: value for scope, value in values.items() if value is not None}


async def policy_in_effect(
    admin: AdminClient,
    topic: TopicName,
    policy: TopicPolicy,
    namespace: Mapping[str, Json],
    configurations: Sequence[Mapping[str, Json]],
    *,
    path: str = "",
) -> list[Json]:
    """A policy in effect for a topic, under the settings of each broker; two calls.

    Not what brokers answer to `applied`: that leaves out global policies, and the question for quotas writes the
    defaults into the broker's copy of the namespace's policies, which the next change stores (observed on 4.2.4).

    :param namespace: the comparable policies of its namespace.
    :param path: where the policy is read, if not where it is set.
    """
    own = await _own(admin, topic, path or policy.path)
    local, shared = {policy.field: own.get("local")}, {policy.field: own.get("global")}
    return [
        effective_value(policy, local=local, shared=shared, namespace=namespace, configuration=configuration)
        for configuration in configurations
    ]
