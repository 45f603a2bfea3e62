"""What an estate consists of, derived from its specification alone: the same one gives the same layout (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar
from zlib import crc32

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox.workload.live import CONSUMED, EVENTS_PARTITIONS, IDLE_SUBSCRIPTION, SubscriptionType, live_topics
from pulsar_sandbox.workload.schemas import SchemaKind

_GIB = 1024**3
_DAY_MINUTES = 1440


@dataclass(frozen=True, slots=True)
class PolicyProfile:
    """Policies of one kind of namespace; none can throttle or expire a demo's messages.

    :param keyed: policies that the broker keys by its own cluster's name.
    """

    policies: JsonObject
    keyed: JsonObject = field(default_factory=dict)


def _retention(days: int, gib: int) -> JsonObject:
    return {"retentionTimeInMinutes": days * _DAY_MINUTES, "retentionSizeInMB": gib * 1024}


def _storage_quota(gib: int, policy: str) -> JsonObject:
    return {"destination_storage": {"limitSize": gib * _GIB, "limitTime": -1, "policy": policy}}


def _dispatch_rate(messages: int) -> JsonObject:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }


LIVE_POLICIES: JsonObject = {
    "bundles": {"numBundles": 4},
    "retention_policies": _retention(1, 1),
    "schema_compatibility_strategy": "BACKWARD",
    "max_consumers_per_topic": 100,
    "properties": {"owner": "team-orders", "criticality": "high"},
}
"""The live namespace: retention 1 day and 1 GiB, no rates."""

PROFILES: tuple[PolicyProfile, ...] = (
    PolicyProfile(
        {
            "bundles": {"numBundles": 4},
            "retention_policies": _retention(30, 50),
            "message_ttl_in_seconds": 14 * 86_400,
            "backlog_quota_map": _storage_quota(10, "producer_request_hold"),
            "schema_compatibility_strategy": "FULL",
            "max_producers_per_topic": 200,
        },
        keyed={"topicDispatchRate": _dispatch_rate(20_000)},
    ),
    PolicyProfile(
        {
            "bundles": {"numBundles": 2},
            "retention_policies": _retention(7, 10),
            "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
            "schema_compatibility_strategy": "BACKWARD_TRANSITIVE",
            "schema_validation_enforced": False,
            "deduplicationEnabled": True,
            "subscription_types_enabled": ["Exclusive", "Shared", "Failover", "Key_Shared"],
        },
        keyed={"publishMaxMessageRate": {"publishThrottlingRateInMsg": 50_000, "publishThrottlingRateInByte": -1}},
    ),
    PolicyProfile(
        {
            "bundles": {"numBundles": 1},
            "message_ttl_in_seconds": 7 * 86_400,
            "autoTopicCreationOverride": {
                "allowAutoTopicCreation": True,
                "topicType": "partitioned",
                "defaultNumPartitions": 3,
            },
            "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
            "delayed_delivery_policies": {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 0},
            "schema_compatibility_strategy": "ALWAYS_COMPATIBLE",
            "compaction_threshold": 100 * 1024**2,
        },
        keyed={"subscriptionDispatchRate": _dispatch_rate(30_000)},
    ),
    PolicyProfile(
        {
            "bundles": {"numBundles": 4},
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            "inactive_topic_policies": {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 86_400,
                "deleteWhileInactive": False,
            },
            "max_unacked_messages_per_consumer": 20_000,
            "subscription_expiration_time_minutes": 90 * _DAY_MINUTES,
            "is_allow_auto_update_schema": True,
        },
    ),
)
"""Given to the other namespaces in turn."""

LIVE_TOPIC_POLICIES: Mapping[str, Json] = {"retention": _retention(2, 2), "maxConsumers": 50}
"""Local topic policies of the live topic `audit`, by their path in the REST API."""

TOPIC_POLICIES: tuple[Mapping[str, Json], ...] = (
    {"retention": _retention(60, 80)},
    {"dispatchRate": _dispatch_rate(5_000), "maxConsumers": 20},
    {"deduplicationEnabled": False, "compactionThreshold": 50 * 1024**2},
    {"maxProducers": 40, "maxUnackedMessagesOnConsumer": 9_000},
)
"""Local topic policies of every fifth other topic, in turn."""


_TENANTS = ("acme", "globex", "initech", "umbrella", "stark", "wayne")
_NAMESPACES = ("orders", "billing", "audit", "metrics", "shipping", "search", "mail", "risk")
_TOPICS = ("created", "changed", "closed", "returns", "totals", "errors", "exports", "imports")
_SCHEMAS = (SchemaKind.JSON, None, SchemaKind.AVRO, None)
_TIERS = ("gold", "silver", "bronze")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EstateSpec:
    """How large an estate is.

    :param live: the namespace that the traffic uses, `tenant/namespace`; its tenant is the first one.
    :param tenants: how many tenants, the live one included.
    :param namespaces_per_tenant: how many namespaces each has, the live one included.
    :param topics_per_namespace: topics of every namespace but the live one, which has exactly two.
    :param messages_per_topic: backlog of a topic that has messages: every third one.
    :param history: messages on each of the two live topics before any traffic.
    :param prefix: put before the names of the other tenants, so that several estates fit on one cluster.
    :param seed: varies properties, limits and the choice of topics.
    """

    live: str = "acme/orders"
    tenants: int = 3
    namespaces_per_tenant: int = 3
    topics_per_namespace: int = 5
    messages_per_topic: int = 300
    history: int = 400
    prefix: str = ""
    seed: int = 7

    def __post_init__(self) -> None:
        NamespaceName.parse(self.live)
        for name in ("tenants", "namespaces_per_tenant"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"EstateSpec.{name} is {getattr(self, name)!r}: give at least 1.")
        for name in ("topics_per_namespace", "messages_per_topic", "history"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"EstateSpec.{name} is {getattr(self, name)!r}: give 0 or more.")


class Acknowledged(Enum):
    """Which messages of a topic a subscription has acknowledged when the estate is done."""

    NOTHING = auto()
    FRONT = auto()
    """The batched first half: the cursor has moved."""
    HOLES = auto()
    """Every third unbatched message: individually, behind an unmoved cursor."""


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """A durable subscription and what it has acknowledged."""

    name: str
    type: SubscriptionType
    acknowledged: Acknowledged = Acknowledged.NOTHING


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic; `partitions` is 0 for a plain one. Messages are numbered from 0, the first half is batched."""

    name: TopicName
    partitions: int
    properties: Mapping[str, str]
    schema: SchemaKind | None = None
    schema_versions: int = 0
    messages: int = 0
    delayed: int = 0
    subscriptions: tuple[SubscriptionPlan, ...] = ()
    policies: Mapping[str, Json] = field(default_factory=dict)

    @property
    def batched(self) -> int:
        """How many of the first messages are published in batches."""
        return self.messages // 2

    def is_delayed(self, number: int) -> bool:
        """Whether the message is not to be delivered for an hour."""
        return number >= self.messages - self.delayed

    def acknowledged(self, subscription: SubscriptionPlan) -> frozenset[int]:
        """The numbers that `subscription` has acknowledged; the rest is its backlog."""
        if subscription.acknowledged is Acknowledged.FRONT:
            return frozenset(range(self.batched))
        if subscription.acknowledged is Acknowledged.HOLES:
            return frozenset(range(self.batched + 1, self.messages - self.delayed, 3))
        return frozenset()


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """A namespace, its policies (those keyed by cluster apart) and its topics."""

    name: NamespaceName
    policies: JsonObject
    keyed_policies: JsonObject
    topics: tuple[TopicPlan, ...]

    def document(self, cluster: str) -> JsonObject:
        """The policies document that creates the namespace on `cluster`."""
        keyed = {name: {cluster: value} for name, value in self.keyed_policies.items()}
        return {**self.policies, **keyed, "replication_clusters": [cluster]}


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """A tenant with its admin roles."""

    name: str
    admin_roles: tuple[str, ...]
    namespaces: tuple[NamespacePlan, ...]


def plan_estate(spec: EstateSpec) -> tuple[TenantPlan, ...]:
    """Lay out the estate; the live namespace is the first of the first tenant."""
    live = NamespaceName.parse(spec.live)
    names = [live.tenant, *(spec.prefix + name for name in _names(_TENANTS, spec.tenants + 1, without=live.tenant))]
    return tuple(
        TenantPlan(name, (f"{name}-admin", "platform"), _namespaces(spec, name, index, live))
        for index, name in enumerate(names[: spec.tenants])
    )


def _namespaces(spec: EstateSpec, tenant: str, tenant_index: int, live: NamespaceName) -> tuple[NamespacePlan, ...]:
    is_live = tenant_index == 0
    count = spec.namespaces_per_tenant - is_live
    names = _names(_NAMESPACES, count, without=live.name if is_live else None)
    others = tuple(
        _namespace(spec, NamespaceName(tenant, name), tenant_index * spec.namespaces_per_tenant + index)
        for index, name in enumerate(names)
    )
    return (_live_namespace(spec, live), *others) if is_live else others


def _namespace(spec: EstateSpec, name: NamespaceName, index: int) -> NamespacePlan:
    profile = PROFILES[index % len(PROFILES)]
    topics = tuple(
        _topic(spec, TopicName(name, local), index * spec.topics_per_namespace + position)
        for position, local in enumerate(_names(_TOPICS, spec.topics_per_namespace))
    )
    described = {"owner": f"team-{_pick(range(1, 10), spec.seed, name)}", "tier": _pick(_TIERS, spec.seed, name)}
    grants = {f"{name.tenant}-app": ["produce", "consume"], f"{name.name}-reader": ["consume"]}
    policies = {**profile.policies, "properties": described, "auth_policies": _grants(grants)}
    return NamespacePlan(name, policies, profile.keyed, topics)


def _topic(spec: EstateSpec, name: TopicName, index: int) -> TopicPlan:
    messages = spec.messages_per_topic if index % 3 == 0 else 0
    partitions = (0, 2, 0, 3)[index % 4]
    kind = _pick(_SCHEMAS, spec.seed, name)
    return TopicPlan(
        name=name,
        partitions=partitions,
        properties={"purpose": name.local, "tier": _pick(_TIERS, name, spec.seed)},
        schema=kind,
        schema_versions=_pick(range(1, 4), spec.seed, name, "versions") if kind else 0,
        messages=messages,
        delayed=min(5, messages // 4) if index % 2 == 0 else 0,
        subscriptions=_subscriptions(index, has_messages=messages > 0, partitions=partitions),
        policies=TOPIC_POLICIES[index % len(TOPIC_POLICIES)] if index % 5 == 0 else {},
    )


def _subscriptions(index: int, *, has_messages: bool, partitions: int) -> tuple[SubscriptionPlan, ...]:
    """Those of a topic with messages are of all four types; a plain topic without one would be deleted when idle."""
    if not has_messages:
        return (SubscriptionPlan("keep", SubscriptionType.SHARED),) if partitions == 0 else ()
    front, holes = Acknowledged.FRONT, Acknowledged.HOLES
    every = (
        SubscriptionPlan("workers", SubscriptionType.SHARED, holes),
        SubscriptionPlan("active", SubscriptionType.FAILOVER, front),
        SubscriptionPlan("index", SubscriptionType.KEY_SHARED, holes),
        SubscriptionPlan("report", SubscriptionType.EXCLUSIVE, front),
    )
    return every if index % 2 == 0 else (every[index // 2 % 4], SubscriptionPlan("late", SubscriptionType.SHARED))


def _live_namespace(spec: EstateSpec, name: NamespaceName) -> NamespacePlan:
    events, audit = live_topics(name)
    subscriptions = tuple(SubscriptionPlan(sub, kind) for sub, kind in CONSUMED.items())
    everyone = (*subscriptions, SubscriptionPlan(IDLE_SUBSCRIPTION, SubscriptionType.SHARED))
    grants = {"checkout": ["produce"], "billing": ["consume"], f"{name.tenant}-app": ["produce", "consume"]}
    topics = (
        TopicPlan(events, EVENTS_PARTITIONS, {"purpose": "orders"}, messages=spec.history, subscriptions=everyone),
        TopicPlan(
            audit,
            0,
            {"purpose": "audit trail", "tier": "gold"},
            schema=SchemaKind.JSON,
            schema_versions=2,
            messages=spec.history,
            subscriptions=everyone,
            policies=LIVE_TOPIC_POLICIES,
        ),
    )
    return NamespacePlan(name, {**LIVE_POLICIES, "auth_policies": _grants(grants)}, {}, topics)


def _grants(roles: Mapping[str, list[str]]) -> JsonObject:
    return {"namespace_auth": dict(roles), "destination_auth": {}, "subscription_auth_roles": {}}


def _names(given_names: tuple[str, ...], count: int, *, without: str | None = None) -> list[str]:
    usable = [name for name in given_names if name != without]
    return [usable[index] if index < len(usable) else f"{given_names[0]}-{index}" for index in range(count)]


def _pick(choices: Sequence[_T], *what: object) -> _T:
    """One of the choices, always the same one for the same `what` on every machine."""
    return choices[crc32("/".join(map(str, what)).encode()) % len(choices)]
