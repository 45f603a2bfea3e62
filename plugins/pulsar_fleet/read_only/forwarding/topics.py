"""The shadow topics of a namespace whose acknowledgments can be forwarded, with their sources; nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import RETIRED_FROM
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD
from pulsar_fleet.read_only.forwarding.request import Request
from pulsar_fleet.read_only.observe import partitions_of, policy_in_effect, properties_of, source_in, topics_in
from pulsar_fleet.snapshot.resources import read_migrated_to

_EVICTS = "consumer_backlog_eviction"
_TTL, _QUOTAS = TOPIC_BY_FIELD["messageTTLInSeconds"], TOPIC_BY_FIELD["backLogQuotaMap"]
_LIMITS = {"destination_storage": "backlogQuotaLimitSize", "message_age": "backlogQuotaLimitTime"}


@dataclass(frozen=True, slots=True)
class Link:
    """A source and its shadow topic, both without partitions or one partition."""

    source: TopicName
    shadow: TopicName


@dataclass(frozen=True, slots=True)
class _Readers:
    """The policies of the readers' namespace, and each broker's settings; none where the role may not read them."""

    policies: Mapping[str, Json]
    configurations: tuple[Mapping[str, Json], ...]

    @classmethod
    async def read(cls, admin: AdminClient, namespace: NamespaceName) -> _Readers:
        policies = comparable(await admin.namespace(namespace) or {}, await admin.cluster_name())
        try:
            brokers = await admin.brokers()
            return cls(policies, tuple([await admin.runtime_configuration(broker) for broker in brokers]))
        except NotAllowed:
            return cls(policies, ())


@dataclass(frozen=True, slots=True)
class Links:
    """What is forwarded.

    :param problems: a sentence for each shadow topic that is not.
    """

    links: tuple[Link, ...]
    problems: tuple[str, ...]


async def read_links(admin: AdminClient, request: Request) -> Links:
    """The links of the namespace. Calls: five for it, up to nine for each topic, two for each namespace of a source.

    What the cluster refuses for one topic is its problem. A name in `topics` is only wrong where all could be read.

    :raises FleetError: `NotFound` if the namespace does not exist, or the topics cannot be listed.
    """
    links: list[Link] = []
    problems: list[str] = []
    unread: list[str] = []
    migrations: dict[NamespaceName, str] = {}
    unknown = set(request.topics)
    listed = await topics_in(admin, request.namespace)
    readers = await _Readers.read(admin, request.namespace)
    for shadow in listed:
        try:
            source = await _source(admin, shadow)
            if source is None or (request.topics and not {shadow, source} & set(request.topics)):
                continue
            unknown -= {shadow, source}
            count, of_source = await partitions_of(admin, shadow), await partitions_of(admin, source)
            if source.namespace not in migrations:
                policies = await admin.namespace(source.namespace) or {}
                migrations[source.namespace] = await read_migrated_to(admin, source.namespace, policies)
            migration = migrations[source.namespace]
            problem = await _problem(admin, shadow, source, (count, of_source), migration, readers)
        except Unavailable:
            raise
        except FleetError as error:
            unread.append(f"{shadow} is not forwarded: {error}")
            continue
        if problem:
            problems.append(problem)
        else:
            stored = zip(source.partitions(count or 0), shadow.partitions(count or 0), strict=True)
            links += [Link(*pair) for pair in stored]
    if not unread:
        problems += [
            f"{topic} is not forwarded: it is neither a shadow topic of {request.namespace} nor the source of one; "
            "correct the name."
            for topic in sorted(unknown)
        ]
    problems += unread
    return Links(tuple(links), tuple(problems))


async def _source(admin: AdminClient, shadow: TopicName) -> TopicName | None:
    """The source of a shadow topic; None of another topic, and of one that is being taken away."""
    properties = await properties_of(admin, shadow)
    name = "" if RETIRED_FROM in properties else source_in(properties)
    return TopicName.parse(name) if name else None


async def _problem(
    admin: AdminClient,
    shadow: TopicName,
    source: TopicName,
    counts: tuple[int | None, int | None],
    migration: str,
    readers: _Readers,
) -> str:
    count, of_source = counts
    if of_source is None:
        return f"{shadow} is not forwarded: its source {source} does not exist; take the shadow topic away."
    if migration:
        return (
            f"{shadow} is not forwarded: {migration}, and subscriptions of {source} go on there; take the shadow topic "
            "away."
        )
    if count != of_source:
        return (
            f"{shadow} is not forwarded: it has {count} partitions and {source} has {of_source}; run serve_read_only "
            "with remove, then without it."
        )
    configurations = readers.configurations or ({},)
    values = await policy_in_effect(admin, shadow, _TTL, readers.policies, configurations)
    if not readers.configurations and values == [None]:
        values = [await admin.get(f"/{shadow.path}/messageTTL", applied=True)]
    if (seconds := max(int(value or 0) for value in values)) > 0:
        return (
            f"{shadow} is not forwarded: messages expire there after {seconds} s, which acknowledges what no consumer "
            "has; set the message TTL of its namespace or topic to 0."
        )
    read = await policy_in_effect(admin, shadow, _QUOTAS, readers.policies, configurations, path=f"{_QUOTAS.path}Map")
    quotas = [value or {} for value in read]
    if any(_evicts(quota) for value in quotas for quota in value.values()):
        return (
            f"{shadow} is not forwarded: its backlog quota has the policy {_EVICTS}, which acknowledges what no "
            "consumer has; remove that quota."
        )
    unset = [section for section in _QUOTAS.sections if section not in quotas[0]]
    if not readers.configurations and unset and await _has_quota(admin, shadow, unset):
        return (
            f"{shadow} is not forwarded: a backlog quota of the brokers is in effect, and this role may not read "
            f"whether its policy is {_EVICTS}, which acknowledges what no consumer has; set quotas of the namespace "
            f"{shadow.namespace} for {' and '.join(unset)} with another policy."
        )
    return ""


async def _has_quota(admin: AdminClient, topic: TopicName, sections: Collection[str]) -> bool:
    """Whether a limit of one of these kinds is in effect, by the statistics; old brokers do not say it."""
    count = (await admin.partition_metadata(topic)).partitions
    statistics = [await admin.stats(partition, precise=False) for partition in topic.partitions(count)]
    limits = [stats.get(_LIMITS[section]) for stats in statistics for section in sections]
    return any(limit is None or int(limit) > 0 for limit in limits)


def _evicts(quota: JsonObject) -> bool:
    limits = (quota.get("limitSize") or quota.get("limit") or 0, quota.get("limitTime") or 0)
    return quota.get("policy") == _EVICTS and any(int(limit) > 0 for limit in limits)
