"""Pairs of compatible clusters, generated from a seed; each fault of a test makes one thing incompatible."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any

from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.admin.partial_reads import Area
from pulsar_fleet.cluster.admin.permissions import Right
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.preflight.context import Measurements, Probes
from pulsar_fleet.snapshot.model import (
    BrokerState,
    ClusterDataState,
    InventoryState,
    NamespaceState,
    ResourceGroupState,
    SchemaState,
    Snapshot,
    SubscriptionState,
    TenantState,
    TopicPolicyState,
    TopicState,
)

ORDERS = "acme/orders"
EVENTS, PLAIN = f"persistent://{ORDERS}/events", f"persistent://{ORDERS}/plain"
CHANGES = f"persistent://{ORDERS}/__change_events"
RATE = {"dispatchThrottlingRateInMsg": 100, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
LIMITS = {"publishRateInMsgs": 100, "dispatchRateInMsgs": 200}
# As two brokers of 4.2.4 report them.
SETTINGS = {
    "allowAutoTopicCreation": "true",
    "allowAutoTopicCreationType": "non-partitioned",
    "defaultNumPartitions": "1",
    "allowAutoSubscriptionCreation": "true",
    "schemaCompatibilityStrategy": "FULL",
    "isAllowAutoUpdateSchemaEnabled": "true",
    "isSchemaValidationEnforced": "false",
    "createTopicToRemoteClusterForReplication": "true",
    "brokerDeduplicationEnabled": "false",
    "brokerDeleteInactiveTopicsEnabled": "true",
    "brokerClientTlsEnabled": "false",
    "defaultRetentionTimeInMinutes": "0",
    "defaultRetentionSizeInMB": "0",
    "ttlDurationDefaultInSeconds": "0",
    "topicLevelPoliciesEnabled": "true",
    "systemTopicEnabled": "true",
    "enableReplicatedSubscriptions": "true",
    "delayedDeliveryEnabled": "true",
    "transactionCoordinatorEnabled": "false",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProviders": "[org.apache.pulsar.broker.authentication.AuthenticationProviderToken]",
    "superUserRoles": "[admin, broker]",
    "entryFiltersDirectory": "",
    "maxTenants": "0",
    "maxNamespacesPerTenant": "0",
    "maxTopicsPerNamespace": "0",
    "maxNumPartitionsPerPartitionedTopic": "0",
    "maxSubscriptionsPerTopic": "0",
    "managedLedgerMaxEnsembleSize": "5",
    "managedLedgerMaxWriteQuorum": "5",
    "managedLedgerMaxAckQuorum": "5",
    "maxMessageSize": "5242880",
    "configurationMetadataStoreUrl": "",
}
_POLICIES: tuple[dict[str, Any], ...] = (
    {"retention_policies": {"retentionTimeInMinutes": 1440, "retentionSizeInMB": 1024}},
    {"message_ttl_in_seconds": 864_000},
    {"autoTopicCreationOverride": {"allowAutoTopicCreation": False}},
    {
        "autoTopicCreationOverride": {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 3,
        }
    },
    {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}},
    {"schema_compatibility_strategy": "BACKWARD_TRANSITIVE"},
    {"schema_auto_update_compatibility_strategy": "Full"},
    {"schema_validation_enforced": True},
    {"deduplicationEnabled": True},
    {"max_topics_per_namespace": 1000, "max_subscriptions_per_topic": 40},
    {"persistence": {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2}},
    {"delayed_delivery_policies": {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}},
    {"resource_group_name": "gold"},
    {"properties": {"owner": "billing"}},
    {"max_producers_per_topic": 11},
    {
        "backlog_quota_map": {
            "message_age": {"limitSize": -1, "limitTime": 864_000, "policy": "consumer_backlog_eviction"}
        }
    },
)


def record(*fields: tuple[str, Any]) -> str:
    """An Avro record; a field with a default is a pair of type and default."""
    entries = [
        {"name": name, "type": kind[0], "default": kind[1]} if isinstance(kind, tuple) else {"name": name, "type": kind}
        for name, kind in fields
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": entries})


ID, AMOUNT, NOTE = ("id", "string"), ("amount", ("int", 0)), ("note", (["null", "string"], None))
HISTORY = (record(ID), record(ID, AMOUNT), record(ID, AMOUNT, NOTE))


@dataclass(frozen=True)
class Clusters:
    """Two clusters and their measurements."""

    source: Snapshot
    target: Snapshot
    probes: Probes

    def swapped(self) -> Clusters:
        """The same pair in the other direction."""
        probes = replace(self.probes, source=self.probes.target, target=self.probes.source)
        return Clusters(self.target, self.source, probes)


def clean_pair(seed: int) -> Clusters:
    """Blue with namespaces and topics, green with none, a part or all of them; no check has a finding."""
    chance = random.Random(seed)
    replicating = chance.random() < 0.3
    version = chance.choice(("4.0.7", "4.0.9", "4.2.4"))
    layout = _layout(chance)
    sides = [
        _cluster(own, other, layout, version=version, replicating=replicating, brokers=chance.randint(1, 3))
        for own, other in (("blue", "green"), ("green", "blue"))
    ]
    # Both may use the same name for their own ZooKeeper, as in two Kubernetes namespaces.
    store = "zk:zookeeper:2181" if chance.random() < 0.5 and not replicating else ""
    sides = [
        with_settings(snapshot, metadataStoreUrl=store or f"zk:zk-{snapshot.cluster}:2181/pulsar") for snapshot in sides
    ]
    probes = Probes(
        source=_measured(sides[0], chance), target=_measured(sides[1], chance), lag_seconds=chance.choice((0, 3600))
    )
    return Clusters(sides[0], _part(sides[1], chance.choice((0.0, 0.5, 1.0)), chance), probes)


def full_pair() -> Clusters:
    """Both have an identical `acme/orders` with two topics, two schema versions, policies and subscriptions."""
    topics = {
        EVENTS: (3, HISTORY[:2], ("billing",), {"maxProducerPerTopic": 9}),
        PLAIN: (0, (), ("tail",), {}),
    }
    layout = {ORDERS: ({"topicDispatchRate": RATE, "resource_group_name": "gold"}, topics)}
    blue = _cluster("blue", "green", layout, version="4.2.4", replicating=False, brokers=2)
    green = _cluster("green", "blue", layout, version="4.2.4", replicating=False, brokers=2)
    chance = random.Random(0)
    return Clusters(blue, green, Probes(source=_measured(blue, chance), target=_measured(green, chance)))


def with_settings(snapshot: Snapshot, broker: int | None = None, **settings: str) -> Snapshot:
    """The same cluster with other settings on one broker or all."""
    brokers = tuple(
        replace(state, configuration={**state.configuration, **settings}) if broker in (None, index) else state
        for index, state in enumerate(snapshot.brokers)
    )
    return replace(snapshot, brokers=brokers)


def with_policies(snapshot: Snapshot, name: str = ORDERS, **policies: Any) -> Snapshot:
    """The same cluster with other policies on a namespace."""
    namespaces = tuple(
        NamespaceState(namespace.name, {**namespace.policies, **policies}) if namespace.name == name else namespace
        for namespace in snapshot.namespaces
    )
    return replace(snapshot, namespaces=namespaces)


def without_namespace(snapshot: Snapshot, name: str = ORDERS) -> Snapshot:
    """The same cluster without a namespace and what is in it."""
    inside = f"://{name}/"
    return replace(
        snapshot,
        namespaces=tuple(row for row in snapshot.namespaces if row.name != name),
        topics=tuple(row for row in snapshot.topics if inside not in row.name),
        schemas=tuple(row for row in snapshot.schemas if inside not in row.topic),
        subscriptions=tuple(row for row in snapshot.subscriptions if inside not in row.topic),
        topic_policies=tuple(row for row in snapshot.topic_policies if inside not in row.topic),
        inventory=tuple(row for row in snapshot.inventory if row.namespace != name),
    )


def with_topic(snapshot: Snapshot, name: str, **changes: Any) -> Snapshot:
    """The same cluster with a topic changed or added."""
    by_name = {topic.name: topic for topic in snapshot.topics}
    by_name[name] = replace(by_name.get(name, TopicState(name, 0, {})), **changes)
    return replace(snapshot, topics=tuple(by_name.values()))


def with_schemas(snapshot: Snapshot, topic: str, *texts: str, kind: str = "AVRO") -> Snapshot:
    """The same cluster with another schema history of a topic."""
    others = tuple(schema for schema in snapshot.schemas if schema.topic != topic)
    return replace(snapshot, schemas=(*others, *_schemas(topic, texts, kind)))


def _schemas(topic: str, texts: tuple[str, ...], kind: str = "AVRO") -> tuple[SchemaState, ...]:
    return tuple(SchemaState(topic, version, kind, text, {}, 0) for version, text in enumerate(texts))


Layout = dict[str, tuple[dict[str, Any], dict[str, tuple[int, tuple[str, ...], tuple[str, ...], dict[str, Any]]]]]


def _layout(chance: random.Random) -> Layout:
    layout: Layout = {}
    for tenant in ("acme", "globex")[: chance.randint(1, 2)]:
        for space in ("orders", "audit", "mail")[: chance.randint(1, 3)]:
            policies: dict[str, Any] = {}
            for chosen in chance.sample(_POLICIES, chance.randint(0, 5)):
                policies |= chosen
            if chance.random() < 0.5:
                policies["topicDispatchRate"] = RATE
            names = [f"persistent://{tenant}/{space}/t{index}" for index in range(chance.randint(0, 6))]
            layout[f"{tenant}/{space}"] = (policies, {name: _topic(chance) for name in names})
    return layout


def _topic(chance: random.Random) -> tuple[int, tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    policies = chance.choice(({}, {"maxProducerPerTopic": 5}, {"schemaCompatibilityStrategy": "BACKWARD"}))
    subscriptions = ("billing", "audit", "late")[: chance.randint(0, 3)]
    return chance.choice((0, 0, 2, 5)), HISTORY[: chance.randint(0, 3)], subscriptions, policies


def _cluster(own: str, other: str, layout: Layout, *, version: str, replicating: bool, brokers: int) -> Snapshot:
    listed = [own, other] if replicating else [own]
    topics = [(name, topic) for _, topics_by_name in layout.values() for name, topic in topics_by_name.items()]
    peer = {
        "serviceUrl": f"http://{other}.example:8080",
        "brokerServiceUrl": f"pulsar://{other}.example:6650",
        "brokerClientTlsEnabled": False,
    }
    return Snapshot(
        cluster=own,
        began="",
        ended="",
        key_id="k",
        known_clusters=tuple(sorted(listed)),
        clusters=(ClusterDataState(other, peer),) if replicating else (),
        resource_groups=(ResourceGroupState("gold", LIMITS),),
        brokers=tuple(BrokerState(f"{own}-{index}.example:8080", version, dict(SETTINGS)) for index in range(brokers)),
        tenants=tuple(
            TenantState(name, ("owner",), tuple(sorted(listed)))
            for name in sorted({name.partition("/")[0] for name in layout})
        ),
        namespaces=tuple(
            NamespaceState(name, _document(own, listed, policies)) for name, (policies, _) in layout.items()
        ),
        topics=tuple(TopicState(name, topic[0], {"team": "billing"}) for name, topic in topics),
        schemas=tuple(schema for name, topic in topics for schema in _schemas(name, topic[1])),
        subscriptions=tuple(
            SubscriptionState(name, str(place), sub, "1:1", replicating)
            for name, topic in topics
            for sub in topic[2]
            for place in TopicName.parse(name).partitions(topic[0])
        ),
        topic_policies=tuple(TopicPolicyState(name, "local", topic[3], 0) for name, topic in topics if topic[3]),
        inventory=tuple(
            InventoryState("system topic", name, f"persistent://{name}/__change_events", {"partitions": 0})
            for name in layout
        ),
    )


def _document(own: str, listed: list[str], policies: dict[str, Any]) -> dict[str, Any]:
    keyed = {"topicDispatchRate": {own: policies["topicDispatchRate"]}} if "topicDispatchRate" in policies else {}
    grants = {"namespace_auth": {"app": ["produce", "consume"]}, "destination_auth": {}, "subscription_auth_roles": {}}
    return {
        "replication_clusters": listed,
        "is_allow_auto_update_schema": True,
        "auth_policies": grants,
        **policies,
        **keyed,
    }


def _part(snapshot: Snapshot, share: float, chance: random.Random) -> Snapshot:
    """Without some of the namespaces; of the others, without some topics and the last schema versions."""
    for name in [row.name for row in snapshot.namespaces]:
        if chance.random() >= share:
            snapshot = without_namespace(snapshot, name)
    kept = {row.name for row in snapshot.topics if chance.random() < 0.7}
    return replace(
        snapshot,
        topics=tuple(row for row in snapshot.topics if row.name in kept),
        schemas=tuple(row for row in snapshot.schemas if row.topic in kept and row.version < 2),
        subscriptions=tuple(row for row in snapshot.subscriptions if row.topic in kept and row.name != "late"),
        topic_policies=tuple(row for row in snapshot.topic_policies if row.topic in kept),
    )


def _measured(snapshot: Snapshot, chance: random.Random) -> Measurements:
    everything = [*Area, *(f"tenant {row.name}" for row in snapshot.tenants)]
    return Measurements(
        clock=ClockSkew(chance.uniform(-1, 1), 0.6),
        rights=tuple(Right(str(row), True, True) for row in everything),
        tenants=len(snapshot.tenants),
        namespaces={row.name: 3 for row in snapshot.tenants},
    )
