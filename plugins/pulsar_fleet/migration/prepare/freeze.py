"""Freeze blue while namespaces move: turn off load shedding, bundle splits and the deletion of inactive topics."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName, own_topic_properties
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.cluster.runs.overrides import (
    PROPERTY,
    NamespaceOverrides,
    never_deleting,
    overrides_in,
    without_overrides,
)
from pulsar_fleet.cluster.runs.state_topic import read_runs
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import ORIGINAL_SETTINGS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.prepare.brokers import freeze_brokers
from pulsar_fleet.migration.prepare.overrides import INACTIVE, RATE, OriginalSettings, override
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY
from pulsar_fleet.snapshot.namespace_reader import original_state
from pulsar_fleet.snapshot.resources import lists_of_topics
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)


async def recreate_missing(
    admin: AdminClient, namespace: NamespaceName, topics: Mapping[TopicName, int], other: AdminClient
) -> tuple[TopicName, ...]:
    """Create the topics and partitions that a cluster lacks, empty; returns the topics that lacked something.

    A topic without subscriptions, producers and kept messages is deleted after a minute by default; of a partitioned
    topic the partitions are deleted, and the topic stays. A namespace that is flagged needs every partition to be
    loaded before. Two calls, and one or two for each topic that lacks something; a second call creates nothing.

    :param topics: topic → partition count, 0 for a plain topic.
    :param other: the other cluster, whose properties a topic gets.
    """
    existing = await _existing(admin, namespace)
    incomplete = _incomplete(topics, existing)
    for topic in incomplete:
        await _create(admin, topic, topics[topic], other, exists=topic in existing)
    if incomplete:
        log.info("%s: %d inactive topics created again, first %s", namespace, len(incomplete), incomplete[0])
    return incomplete


async def missing_topics(
    admin: AdminClient, namespace: NamespaceName, topics: Mapping[TopicName, int]
) -> tuple[TopicName, ...]:
    """Those of the topics that a cluster lacks, or lacks a partition of; two calls."""
    return _incomplete(topics, await _existing(admin, namespace))


async def _existing(admin: AdminClient, namespace: NamespaceName) -> frozenset[TopicName]:
    return frozenset().union(*await asyncio.gather(admin.topics(namespace), admin.partitioned_topics(namespace)))


def _incomplete(topics: Mapping[TopicName, int], existing: Collection[TopicName]) -> tuple[TopicName, ...]:
    return tuple(
        topic
        for topic, count in topics.items()
        if topic.persistent and not {topic, *topic.partitions(count)}.issubset(existing)
    )


async def keep_unused(admin: AdminClient, topics: Iterable[TopicName]) -> None:
    """Load empty topics without subscriptions and clients again: they count as inactive a minute later at the earliest.

    So none is deleted between the last look at it and the arrival of its producers, which would make it again without
    its policies. One call for each topic or partition, three for each that is unused.
    """

    async def keep(topic: TopicName) -> None:
        stats = await admin.stats(topic, precise=False)
        if not (stats.get("subscriptions") or stats.get("publishers") or stats.get("storageSize")):
            await admin.put(f"/{topic.path}/unload")
            await admin.stats(topic, precise=False)

    await asyncio.gather(*(keep(topic) for topic in topics if topic.persistent))


async def _create(admin: AdminClient, topic: TopicName, count: int, other: AdminClient, *, exists: bool) -> None:
    if exists:
        await admin.create_missing_partitions(topic)
        return
    try:
        if count:
            properties = (await other.partition_metadata(topic)).properties
        else:
            info = await other.internal_info(topic, answered_retry_seconds=0)
            properties = own_topic_properties(info.get("properties"))
            properties.pop(MIGRATED_PROPERTY, None)
    except (NotFound, Unavailable):
        # The broker answers 500 for a topic that does not exist: no cluster has its properties any more.
        properties = {}
    if count:
        await admin.create_partitioned_topic(topic, count, properties)
    else:
        await admin.create_topic(topic, properties)


async def freeze_blue(sides: Sides, run: Run, moves: Moves) -> Reference:
    """Record blue's settings on blue and in the ledger, then stop everything that could unload or delete a topic.

    Inactive topics and partitions that were deleted before are created again.

    A second call keeps the settings that the first call stored: it does not store this run's overrides as originals,
    nor those that another run left.
    """
    async with sides.open() as (blue, green):
        reference = run.artefacts.find(run.id, ORIGINAL_SETTINGS)
        if reference is None:
            settings = await read_original_settings(blue, [move.namespace for move in moves.moves], moves.green)
            reference = run.artefacts.write_json(run.id, ORIGINAL_SETTINGS, settings.to_json())
        original = OriginalSettings.from_json(run.artefacts.read_json(reference))
        await freeze(blue, run, original)
        for move in moves.moves:
            await recreate_missing(blue, move.namespace, move.topics, green)
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.FROZEN)
    return reference


async def read_original_settings(
    blue: AdminClient, namespaces: Iterable[NamespaceName], green: str
) -> OriginalSettings:
    """Read everything in the namespaces that the migration is going to override.

    Where another run left overrides, it takes the original values from that run's records.
    """
    names = list(namespaces)
    own_name = await blue.cluster_name()
    documents = await asyncio.gather(*(_policies(blue, name) for name in names))
    records = {name: overrides_in(document) for name, document in zip(names, documents, strict=True)}
    policies = [without_overrides(document) for document in documents]
    rates = [(document.get("publishMaxMessageRate") or {}).get(own_name) for document in policies]
    topics, lists = await _topics_with_own_policies(blue, records)
    for record in filter(None, records.values()):
        topics[RATE] |= {TopicName.parse(topic) for topic in record.topic_rates}
        topics[INACTIVE] |= {TopicName.parse(topic) for topic in record.topic_inactive}
    return OriginalSettings(
        green=green,
        publish_rates={str(name): rate for name, rate in zip(names, rates, strict=True)},
        replication={
            str(name): list(document.get("replication_clusters") or [])
            for name, document in zip(names, policies, strict=True)
        },
        allowed={
            tenant: await _allowed_clusters(blue, tenant, green, records) for tenant in {name.tenant for name in names}
        },
        inactive={
            str(name): document.get("inactive_topic_policies") for name, document in zip(names, policies, strict=True)
        },
        topic_rates=await _local(blue, topics[RATE], RATE, records),
        topic_inactive=await _local(blue, topics[INACTIVE], INACTIVE, records),
        topic_replication={topic: sorted(clusters) for topic, clusters in lists.items() if green not in clusters},
    )


async def _allowed_clusters(
    blue: AdminClient, tenant: str, green: str, records: Mapping[NamespaceName, NamespaceOverrides | None]
) -> list[str]:
    """The clusters that a tenant allows, without green if a run added it: a dead one, or one for another namespace."""
    allowed: Sequence[str] = (await blue.tenant(tenant) or {}).get("allowedClusters") or ()
    if green in allowed:
        others = {*map(NamespaceName.parse, (await read_runs(blue)).leases)} - records.keys()
        documents = await asyncio.gather(*(blue.namespace(name) for name in others if name.tenant == tenant))
        own = [record for name, record in records.items() if name.tenant == tenant]
        for record in filter(None, [*own, *(overrides_in(document or {}) for document in documents)]):
            allowed = record.original_clusters(allowed)
    return list(allowed)


def find_original_settings(run: Run) -> OriginalSettings | None:
    """The settings of blue that a run stored; None before it froze blue."""
    document = run.stored(ORIGINAL_SETTINGS)
    return OriginalSettings.from_json(document) if document else None


async def freeze(blue: AdminClient, run: Run, original: OriginalSettings) -> None:
    """Stop what could unload or delete a topic: settings of the brokers, and policies of the namespaces. Idempotent.

    What is overridden is recorded on blue first. A namespace without inactive-topic policies gets policies that delete
    nothing: they override each broker's setting.

    :raises PreconditionFailed: a broker did not apply a value within 10 s (the broker accepts any text with 200).
    """
    await asyncio.gather(*(record_overrides(blue, run, name, original) for name in original.namespaces))
    await freeze_brokers(blue, run)
    await asyncio.gather(*(_keep_inactive_topics(blue, name, original) for name in original.namespaces))


async def record_overrides(blue: AdminClient, run: Run, name: NamespaceName, original: OriginalSettings) -> None:
    """Record what is overridden in a namespace, unless this run has; its values are those of a record found there."""
    current = overrides_in(await _policies(blue, name))
    if current and current.run == run.id:
        return
    since = datetime.now(UTC).isoformat(timespec="seconds")
    await store_record(blue, name, original.record(name, run=run.id, since=since, cluster=await blue.cluster_name()))


async def store_record(admin: AdminClient, name: NamespaceName, record: NamespaceOverrides) -> None:
    """Record on a cluster what is overridden in a namespace there; call it before the first override.

    :raises PreconditionFailed: it could not be read back.
    """
    text = json.dumps(record.to_json(), separators=(",", ":"))
    await admin.put(f"/namespaces/{name.path}/properties", {PROPERTY: text})

    async def recorded() -> bool:
        return overrides_in(await _policies(admin, name)) == record

    if not await is_kept(recorded):
        raise PreconditionFailed(
            f"{admin.connection.name} did not keep the property {PROPERTY} of {name}, which records what this run "
            "overrides. Nothing was overridden in it. Run this step again.",
            cluster=admin.connection.name,
        )


async def _keep_inactive_topics(blue: AdminClient, name: NamespaceName, original: OriginalSettings) -> None:
    await override(blue, name, INACTIVE, never_deleting(original.inactive[str(name)]))
    for topic, value in original.own_inactive(name).items():
        await override(blue, topic, INACTIVE, never_deleting(value))


async def _policies(blue: AdminClient, name: NamespaceName) -> JsonObject:
    policies = await blue.namespace(name)
    if policies is None:
        raise NotFound(f"Namespace {name} does not exist on {blue.connection.name}; nothing was changed.")
    return policies


async def _topics_with_own_policies(
    blue: AdminClient, records: Mapping[NamespaceName, NamespaceOverrides | None]
) -> tuple[dict[str, set[TopicName]], dict[str, frozenset[str]]]:
    """Policy → topics with a value of their own, local or global; topic with a list of clusters of its own → that list.

    One pass per namespace, no call per topic. The lists are the original ones.
    """
    topics: dict[str, set[TopicName]] = {RATE: set(), INACTIVE: set()}
    lists: dict[str, frozenset[str]] = {}
    async with TopicPolicyReader(blue, None) as reader:
        for name, record in records.items():
            states = await reader.read(name)
            originals = [original_state(record, state) for state in states] if record else states
            lists |= {str(topic): clusters for topic, clusters in lists_of_topics(originals).items()}
            for state in states:
                if state.policies.get("publishRate"):
                    topics[RATE].add(TopicName.parse(state.topic))
                if state.policies.get("inactiveTopicPolicies"):
                    topics[INACTIVE].add(TopicName.parse(state.topic))
    return topics, lists


async def _local(
    blue: AdminClient,
    topics: Set[TopicName],
    policy: str,
    records: Mapping[NamespaceName, NamespaceOverrides | None],
) -> dict[str, JsonObject | None]:
    names = sorted(topics, key=str)
    values = await asyncio.gather(*(blue.get(f"/{topic.path}/{policy}") for topic in names))
    originals: dict[str, JsonObject | None] = {}
    for topic, value in zip(names, values, strict=True):
        record = records[topic.namespace]
        original = record.original_topic_policies(str(topic), {policy: value})[policy] if record else value
        originals[str(topic)] = original
    return originals
