"""What the checks find in pairs of clusters, and what they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.remedies import KNOWN_DEFECTS, require_harmless
from tests.support.snapshots import (
    CHANGES,
    EVENTS,
    HISTORY,
    LIMITS,
    ORDERS,
    PLAIN,
    Clusters,
    clean_pair,
    full_pair,
    record,
    with_policies,
    with_schemas,
    with_settings,
    with_topic,
    without_namespace,
)

from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.admin.partial_reads import BROKERS, FUNCTIONS, Area, Note, Problem
from pulsar_fleet.cluster.admin.permissions import Right
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.preflight.checks.schemas import replicators_may_register
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.context import Pair
from pulsar_fleet.preflight.findings import Finding, Severity, findings_markdown
from pulsar_fleet.preflight.schema_probe import SchemaAnswer
from pulsar_fleet.snapshot.model import (
    DYNAMIC_SETTING,
    SCALABLE_TOPIC,
    ClusterDataState,
    InventoryState,
    NamespaceState,
    Snapshot,
    SubscriptionState,
    TenantState,
    TopicPolicyState,
)

Spoil = Callable[[Clusters], Clusters]
Change = Callable[[Snapshot], Snapshot]


def check(clusters: Clusters) -> tuple[Finding, ...]:
    """Without the known defects of versions, which `test_defects` plants one by one."""
    findings = check_compatibility(clusters.source, clusters.target, clusters.probes)
    return tuple(finding for finding in findings if finding.id not in KNOWN_DEFECTS)


def found(clusters: Clusters) -> set[str]:
    return {f"{finding.severity} {finding.id}: {finding.resource}" for finding in check(clusters)}


def source(change: Change) -> Spoil:
    return lambda clusters: replace(clusters, source=change(clusters.source))


def target(change: Change) -> Spoil:
    return lambda clusters: replace(clusters, target=change(clusters.target))


def both(change: Change) -> Spoil:
    return lambda clusters: source(change)(target(change)(clusters))


def steps(*spoils: Spoil) -> Spoil:
    def spoil(clusters: Clusters) -> Clusters:
        for step in spoils:
            clusters = step(clusters)
        return clusters

    return spoil


def settings(broker: int | None = None, **values: str) -> Change:
    return lambda snapshot: with_settings(snapshot, broker, **values)


def policies(**values: Any) -> Change:
    return lambda snapshot: with_policies(snapshot, **values)


def topic(name: str, **changes: Any) -> Change:
    return lambda snapshot: with_topic(snapshot, name, **changes)


def schemas(*texts: str, kind: str = "AVRO", name: str = EVENTS) -> Change:
    return lambda snapshot: with_schemas(snapshot, name, *texts, kind=kind)


def fields(**values: Any) -> Change:
    return lambda snapshot: replace(snapshot, **values)


def measured(**values: Any) -> Spoil:
    return lambda clusters: replace(
        clusters, probes=replace(clusters.probes, target=replace(clusters.probes.target, **values))
    )


def probes(**values: Any) -> Spoil:
    return lambda clusters: replace(clusters, probes=replace(clusters.probes, **values))


def versions(*numbers: str) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        brokers = (replace(broker, version=number) for broker, number in zip(snapshot.brokers, numbers, strict=True))
        return replace(snapshot, brokers=tuple(brokers))

    return change


def replicating(clusters: Clusters) -> Clusters:
    """Both know each other, and `acme/orders` replicates between them."""
    names, sides = ["blue", "green"], []
    for own, peer in ((clusters.source, "green"), (clusters.target, "blue")):
        data = {"serviceUrl": f"http://{peer}.example:8080", "brokerServiceUrl": f"pulsar://{peer}.example:6650"}
        tenants = tuple(TenantState(tenant.name, tenant.admin_roles, tuple(names)) for tenant in own.tenants)
        side = replace(own, known_clusters=tuple(names), clusters=(ClusterDataState(peer, data),), tenants=tenants)
        sides.append(with_policies(side, replication_clusters=names))
    return Clusters(sides[0], sides[1], clusters.probes)


def peer_data(**data: str) -> Change:
    return lambda snapshot: replace(snapshot, clusters=(ClusterDataState("green", data),))


def one_store(clusters: Clusters) -> Clusters:
    """Two clusters as they look when both read one configuration store."""
    shared = steps(replicating, both(settings(configurationMetadataStoreUrl="zk:global-1:2181,global-2:2181")))(
        clusters
    )
    by_namespace = {
        namespace.name: namespace.policies["topicDispatchRate"] for namespace in (*shared.source.namespaces,)
    }
    rates = {**by_namespace[ORDERS], "green": by_namespace[ORDERS]["blue"]}
    return both(policies(topicDispatchRate=rates))(shared)


def grants(**roles: list[str]) -> dict[str, Any]:
    return {"namespace_auth": roles, "destination_auth": {}, "subscription_auth_roles": {}}


def persistence(ensemble: int, writes: int, acks: int) -> dict[str, int]:
    return {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": writes, "bookkeeperAckQuorum": acks}


def topic_policies(scope: str = "local", **values: Any) -> Change:
    return fields(topic_policies=(TopicPolicyState(PLAIN, scope, values, 0),))


def retention(minutes: int, megabytes: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def roles(*names: str) -> Change:
    return lambda snapshot: replace(
        snapshot, tenants=tuple(replace(tenant, admin_roles=names) for tenant in snapshot.tenants)
    )


def system_topic(partitions: int) -> Change:
    return fields(inventory=(InventoryState("system topic", ORDERS, CHANGES, {"partitions": partitions}),))


def subscriptions(count: int) -> Change:
    return fields(
        subscriptions=tuple(SubscriptionState(PLAIN, PLAIN, f"s{number}", "1:1", False) for number in range(count))
    )


def flags(*replicated: bool) -> Change:
    """The subscription `billing` of each partition with its replicated flag."""
    return fields(
        subscriptions=tuple(
            SubscriptionState(EVENTS, f"{EVENTS}-partition-{index}", "billing", "1:1", flag)
            for index, flag in enumerate(replicated)
        )
    )


def hidden(area: Area) -> Change:
    return fields(notes=(Note(area.value, Problem.HIDDEN.value, "green answered 401."),))


def unread(resource: str, detail: str = "blue answered 500.") -> Change:
    return fields(notes=(Note(resource, Problem.UNREADABLE.value, detail),))


def dynamic(**values: str) -> Change:
    rows = tuple(InventoryState(DYNAMIC_SETTING, "", key, {"value": value}) for key, value in values.items())
    return lambda snapshot: replace(snapshot, inventory=(*snapshot.inventory, *rows))


def running(kind: str, name: str) -> Change:
    row = InventoryState(kind, ORDERS, name, {})
    return lambda snapshot: replace(snapshot, inventory=(*snapshot.inventory, row))


def stored_package(snapshot: Snapshot) -> Snapshot:
    row = InventoryState("package", ORDERS, "jdbc", {"in": "packages/sink"})
    return replace(snapshot, inventory=(*snapshot.inventory, row))


def scalable(snapshot: Snapshot) -> Snapshot:
    row = InventoryState(SCALABLE_TOPIC, ORDERS, f"topic://{ORDERS}/events")
    return replace(snapshot, inventory=(*snapshot.inventory, row))


def with_worker_state(snapshot: Snapshot) -> Snapshot:
    state = NamespaceState("public/functions", {"replication_clusters": [snapshot.cluster]})
    tenant = TenantState("public", (), (snapshot.cluster,))
    return replace(snapshot, namespaces=(*snapshot.namespaces, state), tenants=(*snapshot.tenants, tenant))


def subscription(name: str) -> Change:
    row = SubscriptionState(PLAIN, PLAIN, name, "1:1", False)
    return lambda snapshot: replace(snapshot, subscriptions=(*snapshot.subscriptions, row))


DISALLOWED = {"allowAutoTopicCreation": False}
PARTITIONED = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
QUOTA = {"message_age": {"limitSize": -1, "limitTime": 3600, "policy": "producer_exception"}}
OFFLOAD = {"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "archive"}
TWO = Bookies(count=2)
FAST: Spoil = both(policies(bookie_affinity={"bookkeeperAffinityGroupPrimary": "fast, faster"}))
OFFSETS = f"persistent://{ORDERS}/__consumer_offsets"
HANDLER: Spoil = both(settings(messagingProtocols="[kafka]"))
WIDE: Spoil = both(policies(persistence=persistence(3, 2, 2)))
NEW_NAMESPACE: Spoil = target(without_namespace)
GREEN, NUMBER_ID = "cluster green", ("id", "long")


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_estate_has_no_findings(seed: int) -> None:
    assert [finding.text() for finding in check(clean_pair(seed))] == []


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_estate_is_clean_in_the_other_direction_too(seed: int) -> None:
    assert [finding.text() for finding in check(clean_pair(seed).swapped())] == []


def test_two_equal_clusters_have_no_findings() -> None:
    assert check(full_pair()) == ()


# Every case that PIP-433 describes: what it says, how it looks, what is found.
PIP_433: tuple[tuple[str, Spoil, str], ...] = (
    (
        "all topics' partitions that have been created should be the same",
        target(topic(EVENTS, partitions=2)),
        f"warning partitions-grow: {EVENTS}",
    ),
    (
        "all topics' partitions that have been created should be the same",
        source(topic(EVENTS, partitions=2)),
        f"blocker partitions-differ: {EVENTS}",
    ),
    ("including __change_events", target(system_topic(2)), f"blocker system-topic-differs: {CHANGES}"),
    (
        "the target topic should be a non-partitioned topic or a partition",
        target(topic(PLAIN, partitions=4)),
        f"blocker partitioned-on-one-side: {PLAIN}",
    ),
    (
        "auto-creation policies should be the same, broker-level: allowAutoTopicCreation",
        target(settings(allowAutoTopicCreation="false")),
        f"warning auto-creation-differs: {GREEN}",
    ),
    (
        "problem 1: allowAutoTopicCreationType",
        target(settings(allowAutoTopicCreationType="partitioned")),
        f"warning auto-creation-differs: {GREEN}",
    ),
    (
        "problem 1: defaultNumPartitions",
        target(settings(defaultNumPartitions="2")),
        f"warning auto-creation-differs: {GREEN}",
    ),
    (
        "problem 1, with namespace-level replication enabled",
        steps(replicating, target(settings(allowAutoTopicCreationType="partitioned", defaultNumPartitions="1"))),
        f"blocker auto-creation-differs: {GREEN}",
    ),
    (
        "including namespace-level",
        target(policies(autoTopicCreationOverride=DISALLOWED)),
        f"warning auto-creation-differs: {ORDERS}",
    ),
    (
        "including namespace-level, with replication enabled",
        steps(replicating, source(policies(autoTopicCreationOverride=PARTITIONED))),
        f"blocker auto-creation-differs: {ORDERS}",
    ),
    (
        "problem 2: users do not allow auto update schema for both clusters",
        both(policies(is_allow_auto_update_schema=False)),
        f"warning schema-update-off-for-replicator: {ORDERS}",
    ),
    (
        "--enable-for-replicator set to false where the version knows it",
        steps(
            both(versions("5.0.1", "5.0.1")),
            both(
                policies(is_allow_auto_update_schema=False, is_allow_auto_update_schema_with_replicator=False),
            ),
        ),
        f"warning schema-update-off-for-replicator: {ORDERS}",
    ),
    (
        "it will be stuck once a schema is incompatible to the remote cluster",
        target(schemas(record(NUMBER_ID))),
        f"blocker schema-incompatible: {EVENTS}",
    ),
    (
        "isAllowAutoUpdateSchemaEnabled of the brokers",
        target(settings(isAllowAutoUpdateSchemaEnabled="false")),
        f"warning schema-default-differs: {GREEN}",
    ),
    (
        "createTopicToRemoteClusterForReplication is false",
        target(settings(createTopicToRemoteClusterForReplication="false")),
        f"warning remote-topic-creation-off: {GREEN}",
    ),
)


@pytest.mark.parametrize(("says", "spoil", "expected"), PIP_433, ids=lambda value: value if type(value) is str else "")
def test_a_case_of_pip_433_is_found(says: str, spoil: Spoil, expected: str) -> None:
    ours = {text for text in found(spoil(full_pair())) if "version-unknown" not in text}
    assert ours == {expected}


@pytest.mark.parametrize(("says", "spoil", "expected"), PIP_433, ids=lambda value: value if type(value) is str else "")
def test_a_case_of_pip_433_is_found_from_the_other_side(says: str, spoil: Spoil, expected: str) -> None:
    assert check(spoil(full_pair()).swapped()) != ()


def test_the_replicator_registers_schemas_by_default_where_it_has_a_choice() -> None:
    """`--enable-for-replicator` is true unless somebody says otherwise."""
    spoil = steps(both(versions("5.0.1", "5.0.1")), both(policies(is_allow_auto_update_schema=False)))
    assert {finding.id for finding in check(spoil(full_pair()))} == set()


def test_a_replicator_writes_under_the_rules_that_the_target_keeps() -> None:
    """A copy sets the policy as on the source; a plan that leaves existing namespaces as they are does not."""
    clusters = steps(
        both(versions("5.0.1", "5.0.1")),
        both(policies(is_allow_auto_update_schema=False)),
        target(policies(is_allow_auto_update_schema_with_replicator=False)),
    )(full_pair())
    translated, _ = translate_snapshot(clusters.source, clusters.target)
    pair = Pair(clusters.source, clusters.target, translated)
    assert not list(replicators_may_register(pair))
    (finding,) = replicators_may_register(pair.keeping_policies())
    assert (finding.id, finding.resource) == ("schema-update-off-for-replicator", ORDERS)
    assert finding.call == (
        f"green: POST /admin/v2/namespaces/{ORDERS}/isAllowAutoUpdateSchema"
        "?allowAutoUpdateSchemaWithReplicator=true false"
    )


def test_pulsar_3_0_is_measured_as_a_source() -> None:
    assert check(source(versions("3.0.7", "3.0.7"))(full_pair())) == ()


FAULTS: tuple[tuple[Spoil, str], ...] = (
    (steps(WIDE, measured(bookies=TWO)), f"blocker bookies-missing: {ORDERS}"),
    (
        steps(both(topic_policies(persistence=persistence(5, 3, 2))), measured(bookies=TWO)),
        f"blocker bookies-missing: {PLAIN}",
    ),
    (
        steps(both(settings(managedLedgerDefaultEnsembleSize="3")), measured(bookies=TWO)),
        f"blocker bookies-missing: {GREEN}",
    ),
    (steps(WIDE, measured(bookies=Bookies(unread="green answered 401"))), f"warning bookies-unknown: {GREEN}"),
    (steps(FAST, measured(bookies=TWO)), f"warning bookies-unknown: {ORDERS}"),
    (
        steps(FAST, measured(bookies=Bookies(count=2, groups={"fast": 0, "slow": 2}))),
        f"blocker bookie-group-missing: {ORDERS}",
    ),
    (
        steps(FAST, measured(bookies=Bookies(count=2, groups={"faster": 1, "slow": 1}))),
        f"warning bookie-group-missing: {ORDERS}",
    ),
    (
        steps(
            FAST,
            both(settings(managedLedgerDefaultEnsembleSize="2")),
            measured(bookies=Bookies(count=2, groups={"faster": 1, "slow": 1})),
        ),
        f"blocker bookie-group-missing: {ORDERS}",
    ),
    (source(settings(messagingProtocols="[kafka]")), f"warning protocol-handler-missing: {GREEN}"),
    (
        steps(HANDLER, both(topic(OFFSETS))),
        f"warning protocol-handler-state: {ORDERS}",
    ),
    (source(topic_policies(retentionPolicies=retention(0, 100))), f"blocker value-refused: {PLAIN}"),
    (source(topic_policies("global", retentionPolicies=retention(60, 0))), f"blocker value-refused: {PLAIN}"),
    (
        steps(source(policies(retention_policies=retention(60, 1))), source(topic_policies(backLogQuotaMap=QUOTA))),
        f"blocker value-refused: {PLAIN}",
    ),
    (source(policies(max_consumers_per_topic=-1)), f"blocker value-refused: {ORDERS}"),
    (source(topic_policies(maxMessageSize=5_242_881)), f"blocker value-refused: {PLAIN}"),
    (
        steps(NEW_NAMESPACE, source(policies(persistence=persistence(2, 1, 2)))),
        f"blocker value-refused: {ORDERS}",
    ),
    (source(roles("owner", "auditor ")), "blocker admin-role-refused: tenant acme"),
    (
        source(topic(f"{EVENTS}-partition-9")),
        f"blocker named-like-a-partition: {EVENTS}-partition-9",
    ),
    (
        target(settings(allowAutoSubscriptionCreation="false")),
        f"warning auto-subscription-differs: {GREEN}",
    ),
    (
        target(policies(autoSubscriptionCreationOverride={"allowAutoSubscriptionCreation": False})),
        f"warning auto-subscription-differs: {ORDERS}",
    ),
    (
        source(policies(schema_compatibility_strategy="BACKWARD")),
        f"warning schema-strategy-differs: {ORDERS}",
    ),
    (target(policies(is_allow_auto_update_schema=False)), f"warning schema-strategy-differs: {ORDERS}"),
    (target(policies(schema_validation_enforced=True)), f"warning schema-strategy-differs: {ORDERS}"),
    (target(settings(schemaCompatibilityStrategy="BACKWARD")), f"warning schema-default-differs: {GREEN}"),
    (target(schemas(*HISTORY[:2], kind="PROTOBUF")), f"blocker schema-incompatible: {EVENTS}"),
    (
        steps(source(schemas("one", kind="PROTOBUF")), target(schemas("two", kind="PROTOBUF"))),
        f"warning schema-undecided: {EVENTS}",
    ),
    (target(schemas(HISTORY[1])), f"warning schema-history-differs: {EVENTS}"),
    (source(schemas()), f"warning schema-only-on-target: {EVENTS}"),
    (
        steps(source(schemas()), both(policies(schema_validation_enforced=True))),
        f"blocker schema-only-on-target: {EVENTS}",
    ),
    (one_store, f"blocker shared-configuration-store: {GREEN}"),
    (
        source(policies(replication_clusters=["blue", "purple"])),
        "warning cluster-unknown-to-target: cluster purple",
    ),
    (
        steps(
            replicating,
            both(fields(tenants=(TenantState("acme", ("owner",), ("green",)),))),
            both(fields(known_clusters=("blue", "green", "red"))),
            both(policies(replication_clusters=["blue", "green", "red"])),
        ),
        f"blocker cluster-not-allowed: {ORDERS}",
    ),
    (
        steps(replicating, source(peer_data(brokerServiceUrl="pulsar://green.example:6650"))),
        "blocker peer-address-missing: cluster green",
    ),
    (
        steps(replicating, source(settings(brokerClientTlsEnabled="true"))),
        "blocker peer-address-missing: cluster green",
    ),
    (
        steps(
            replicating, source(peer_data(serviceUrl="http://localhost:8080", brokerServiceUrl="pulsar://localhost"))
        ),
        "warning peer-address-local: cluster green",
    ),
    (
        steps(replicating, measured(unreachable={"http://blue.example:8080": "no route to host"})),
        "warning peer-unreachable-from-here: cluster blue",
    ),
    (measured(clock=ClockSkew(61.0, 0.6)), f"warning clocks-differ: {GREEN}"),
    (target(versions("3.0.7", "3.0.7")), f"blocker version-unsupported: {GREEN} + warning target-older: {GREEN}"),
    (target(versions("3.3.1", "3.3.1")), f"blocker version-unknown: {GREEN} + warning target-older: {GREEN}"),
    (source(versions("6.0.0", "6.0.0")), f"blocker version-unknown: cluster blue + warning target-older: {GREEN}"),
    (target(versions("4.2.3", "4.2.4")), f"warning versions-mixed: {GREEN}"),
    (
        both(versions("4.2.5", "4.2.5")),
        f"warning version-not-measured: cluster blue + warning version-not-measured: {GREEN}",
    ),
    (target(versions("4.0.7", "4.0.7")), f"warning target-older: {GREEN}"),
    (target(settings(topicLevelPoliciesEnabled="false")), f"blocker topic-policies-off: {GREEN}"),
    (
        steps(
            both(fields(subscriptions=(SubscriptionState(PLAIN, PLAIN, "tail", "1:1", True),))),
            target(settings(enableReplicatedSubscriptions="false")),
        ),
        f"warning replicated-subscriptions-off: {GREEN}",
    ),
    (
        steps(
            both(policies(delayed_delivery_policies={"active": True, "tickTime": 1000})),
            target(settings(delayedDeliveryEnabled="false")),
        ),
        f"warning delayed-delivery-off: {GREEN}",
    ),
    (source(settings(transactionCoordinatorEnabled="true")), f"warning transactions-off: {GREEN}"),
    (
        steps(both(policies(deduplicationEnabled=True)), both(versions("4.0.3", "4.0.3"))),
        f"warning dedup-before-fix: cluster blue + warning dedup-before-fix: {GREEN}"
        f" + warning version-not-measured: cluster blue + warning version-not-measured: {GREEN}",
    ),
    (target(settings(1, maxTopicsPerNamespace="5000")), f"warning brokers-disagree: {GREEN}"),
    (target(settings(defaultRetentionTimeInMinutes="60")), f"warning retention-default-differs: {GREEN}"),
    (target(settings(ttlDurationDefaultInSeconds="60")), f"warning ttl-default-differs: {GREEN}"),
    (
        steps(source(settings(maxConsumersPerTopic="0")), target(settings(maxConsumersPerTopic="5"))),
        "warning behaves-differently: acme/orders",
    ),
    (target(settings(brokerDeduplicationEnabled="true")), f"warning dedup-default-differs: {GREEN}"),
    (
        steps(
            target(without_namespace), target(fields(tenants=())), target(settings(maxTenants="7")), measured(tenants=7)
        ),
        f"blocker too-many-tenants: {GREEN}",
    ),
    (
        steps(NEW_NAMESPACE, target(settings(maxNamespacesPerTenant="3"))),
        "blocker too-many-namespaces: tenant acme",
    ),
    (
        steps(NEW_NAMESPACE, target(settings(maxTopicsPerNamespace="3"))),
        f"blocker too-many-topics: {ORDERS}",
    ),
    (
        steps(NEW_NAMESPACE, source(policies(max_topics_per_namespace=3))),
        f"blocker too-many-topics: {ORDERS}",
    ),
    (
        steps(NEW_NAMESPACE, target(settings(maxNumPartitionsPerPartitionedTopic="2"))),
        f"blocker too-many-partitions: {EVENTS}",
    ),
    (
        steps(source(subscriptions(6)), target(settings(maxSubscriptionsPerTopic="5")), target(subscriptions(2))),
        f"blocker too-many-subscriptions: {PLAIN}",
    ),
    (
        steps(source(flags(True, True, True)), target(flags(True, False, True))),
        f"warning replicated-flag-differs: {EVENTS}-partition-1 billing",
    ),
    (
        steps(
            NEW_NAMESPACE,
            source(policies(persistence=persistence(4, 2, 1))),
            target(settings(managedLedgerMaxEnsembleSize="3")),
        ),
        f"blocker persistence-too-wide: {ORDERS}",
    ),
    (target(settings(maxMessageSize="1000")), f"warning max-message-size-smaller: {GREEN}"),
    (
        steps(replicating, both(policies(encryption_required=True))),
        f"blocker replicator-not-encrypted: {ORDERS}",
    ),
    (steps(target(settings(delayedDeliveryMaxDelayInMillis="5000"))), f"warning longest-delay-shorter: {ORDERS}"),
    (both(fields(resource_groups=())), f"warning resource-group-missing: {ORDERS}"),
    (
        target(
            lambda snapshot: replace(
                snapshot, resource_groups=(replace(snapshot.resource_groups[0], limits={**LIMITS, "x": 1}),)
            )
        ),
        "warning resource-group-differs: resource group gold",
    ),
    (
        steps(NEW_NAMESPACE, source(policies(max_producers_per_topic=-1))),
        f"blocker policies-invalid: {ORDERS}",
    ),
    (target(policies(deleted=True)), f"blocker namespace-deleted: {ORDERS}"),
    (source(policies(migrated=True)), f"blocker namespace-migrated: {ORDERS}"),
    (
        source(policies(offload_policies=OFFLOAD)),
        f"warning offload-driver: {ORDERS}",
    ),
    (
        source(policies(entryFilters={"entryFilterNames": "jms"})),
        f"blocker entry-filter-missing: {ORDERS}",
    ),
    (
        steps(both(policies(message_ttl_in_seconds=600)), probes(lag_seconds=3600)),
        f"warning ttl-shorter-than-lag: {ORDERS}",
    ),
    (
        steps(
            both(policies(retention_policies={"retentionTimeInMinutes": 10, "retentionSizeInMB": -1})),
            probes(lag_seconds=3600),
        ),
        f"warning retention-shorter-than-lag: {ORDERS}",
    ),
    (
        steps(
            both(
                policies(
                    backlog_quota_map={"message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"}},
                )
            ),
            probes(lag_seconds=3600),
        ),
        f"warning quota-shorter-than-lag: {ORDERS}",
    ),
    (source(settings(authorizationEnabled="false")), f"warning security-differs: {GREEN}"),
    (source(settings(superUserRoles="[admin, broker, ops]")), f"warning superuser-only-on-source: {GREEN}"),
    (
        target(fields(tenants=(TenantState("acme", ("owner", "stranger"), ("green",)),))),
        "warning role-only-on-target: tenant acme",
    ),
    (
        target(policies(auth_policies=grants(app=["produce", "consume"], stranger=["consume"]))),
        f"warning role-only-on-target: {ORDERS}",
    ),
    (
        source(settings(authenticationProviders="[a.AuthenticationProviderTls, b.AuthenticationProviderToken]")),
        f"blocker authentication-provider-missing: {GREEN}",
    ),
    (source(topic(PLAIN, terminated=True)), f"warning topic-terminated: {PLAIN}"),
    (target(topic(PLAIN, terminated=True)), f"blocker topic-terminated-on-target: {PLAIN}"),
    (source(topic(PLAIN, properties={"PULSAR.SHADOW_SOURCE": EVENTS})), f"warning shadow-topic: {PLAIN}"),
    (
        source(fields(subscriptions=(SubscriptionState(PLAIN, PLAIN, "tail", "1:1", True),))),
        f"warning replicated-flag-differs: {PLAIN} tail",
    ),
    (target(hidden(Area.RESOURCE_GROUPS)), f"warning not-visible: {Area.RESOURCE_GROUPS} of green"),
    (
        measured(rights=(Right(Area.RESOURCE_GROUPS, False, False),)),
        f"warning not-settable: {Area.RESOURCE_GROUPS} of green",
    ),
    (source(unread(ORDERS)), f"warning resource-not-readable: {ORDERS} of blue"),
    (target(unread(f"schemas of {EVENTS}")), f"warning resource-not-readable: schemas of {EVENTS} of green"),
    (target(unread("acme")), "blocker resource-not-readable: acme of green"),
    (
        source(unread(f"topic policies of {ORDERS}", "'blue' has no broker service URL, which reading needs: add it.")),
        f"blocker resource-not-readable: topic policies of {ORDERS} of blue",
    ),
    (source(unread(BROKERS)), f"warning resource-not-readable: {BROKERS} of blue"),
    (source(unread("brokers")), "blocker resource-not-readable: brokers of blue"),
    (source(unread("functions")), "blocker resource-not-readable: functions of blue"),
    (source(dynamic(maxMessageSize="7")), f"warning dynamic-settings-differ: {GREEN}"),
    (source(topic(f"{EVENTS}-partition--1")), f"warning topic-name-refused: {EVENTS}-partition--1"),
    (
        source(topic(f"{EVENTS}-partition-x", partitions=2)),
        f"warning topic-name-refused: {EVENTS}-partition-x",
    ),
    (source(running("sink", "jdbc")), f"warning functions-not-copied: {ORDERS}"),
    (source(stored_package), f"warning packages-not-copied: {ORDERS}"),
    (source(scalable), f"warning scalable-topics-not-copied: {ORDERS}"),
    (source(with_worker_state), "warning functions-worker-state: public/functions"),
    (
        steps(source(dynamic(defaultNumPartitions="1")), target(dynamic(defaultNumPartitions="2"))),
        f"warning dynamic-settings-differ: {GREEN}",
    ),
    (
        steps(source(subscription("..")), target(subscription(".."))),
        f"warning subscription-not-addressable: {PLAIN} ..",
    ),
    (
        measured(rights=(Right("namespaces of acme", True, False),)),
        "blocker no-right-to-copy: namespaces of acme on green",
    ),
)


SINCE_42 = TopicPolicyState(PLAIN, "local", {"subscriptionExpirationTimeInMinutes": 9}, 0)
MORE_FAULTS: dict[str, Spoil] = {
    "inactive-topics-default-differs": target(settings(brokerDeleteInactiveTopicsEnabled="false")),
    "policy-unknown-to-target": steps(source(fields(topic_policies=(SINCE_42,))), target(versions("4.1.0", "4.1.0"))),
    "same-cluster-name": target(fields(cluster="blue")),
}
ENTRY_FILTER = {"entryFilterNames": "jms"}
NEAREST: dict[str, Spoil] = {
    "bookies-missing": steps(both(policies(persistence=persistence(2, 2, 2))), measured(bookies=TWO)),
    "bookies-unknown": measured(bookies=Bookies(unread="green answered 401")),
    "bookie-group-missing": steps(FAST, measured(bookies=Bookies(count=2, groups={"fast": 1, "faster": 1}))),
    "protocol-handler-missing": HANDLER,
    "protocol-handler-state": both(topic(OFFSETS)),
    "admin-role-refused": both(roles("auditor ")),
    "value-refused": both(topic_policies(retentionPolicies=retention(0, 100))),
    "auto-creation-differs": both(settings(defaultNumPartitions="2")),
    "auto-subscription-differs": both(settings(allowAutoSubscriptionCreation="false")),
    "authentication-provider-missing": both(settings(authenticationProviders="[a.AuthenticationProviderTls]")),
    "behaves-differently": both(settings(maxConsumersPerTopic="5")),
    "brokers-disagree": both(settings(maxTopicsPerNamespace="5000")),
    "clocks-differ": measured(clock=ClockSkew(5.0, 0.6)),
    "cluster-not-allowed": steps(
        replicating,
        both(fields(tenants=(TenantState("acme", ("owner",), ("blue", "green", "red")),))),
        both(fields(known_clusters=("blue", "green", "red"))),
        both(policies(replication_clusters=["blue", "green", "red"])),
    ),
    "cluster-unknown-to-target": steps(
        source(policies(replication_clusters=["blue", "purple"])), target(fields(known_clusters=("green", "purple")))
    ),
    "dedup-before-fix": steps(both(policies(deduplicationEnabled=True)), both(versions("4.0.4", "4.0.4"))),
    "dedup-default-differs": steps(
        target(settings(brokerDeduplicationEnabled="true")), both(policies(deduplicationEnabled=False))
    ),
    "replicator-not-encrypted": both(policies(encryption_required=True)),
    "longest-delay-shorter": target(settings(delayedDeliveryMaxDelayInMillis="0")),
    "delayed-delivery-off": target(settings(delayedDeliveryEnabled="false")),
    "dynamic-settings-differ": both(dynamic(maxMessageSize="7")),
    "entry-filter-missing": steps(
        source(policies(entryFilters=ENTRY_FILTER)), target(settings(entryFiltersDirectory="./filters"))
    ),
    "functions-not-copied": both(running("sink", "jdbc")),
    "packages-not-copied": both(stored_package),
    "scalable-topics-not-copied": target(scalable),
    "functions-worker-state": target(with_worker_state),
    "inactive-topics-default-differs": both(settings(brokerDeleteInactiveTopicsEnabled="false")),
    "max-message-size-smaller": source(settings(maxMessageSize="1000")),
    "named-like-a-partition": source(topic(f"{EVENTS}-partition-nine")),
    "namespace-deleted": target(policies(deleted=False)),
    "namespace-migrated": source(policies(migrated=False)),
    "no-right-to-copy": measured(rights=(Right("namespaces of acme", True, True),)),
    "not-settable": measured(rights=(Right(Area.RESOURCE_GROUPS, True, True),)),
    "not-visible": target(fields(notes=(Note(FUNCTIONS, Problem.NOT_OFFERED.value, "green answered 409."),))),
    "offload-driver": steps(
        source(policies(offload_policies=OFFLOAD)),
        target(settings(managedLedgerOffloadDriver="aws-s3")),
    ),
    "partitioned-on-one-side": both(topic(PLAIN, partitions=4)),
    "partitions-differ": both(topic(EVENTS, partitions=2)),
    "partitions-grow": both(topic(EVENTS, partitions=2)),
    "peer-address-local": replicating,
    "peer-address-missing": steps(replicating, target(settings(brokerClientTlsEnabled="false"))),
    "peer-unreachable-from-here": steps(replicating, measured(unreachable={"http://red.example:8080": "refused"})),
    "persistence-too-wide": steps(
        NEW_NAMESPACE,
        source(policies(persistence=persistence(4, 2, 1))),
        target(settings(managedLedgerMaxEnsembleSize="4")),
    ),
    "policies-invalid": source(policies(max_producers_per_topic=-1)),
    "policy-unknown-to-target": source(fields(topic_policies=(SINCE_42,))),
    "quota-shorter-than-lag": steps(
        both(policies(backlog_quota_map={"message_age": {"limitTime": 3600, "policy": "consumer_backlog_eviction"}})),
        probes(lag_seconds=3600),
    ),
    "remote-topic-creation-off": both(settings(createTopicToRemoteClusterForReplication="true")),
    "replicated-flag-differs": both(fields(subscriptions=(SubscriptionState(PLAIN, PLAIN, "tail", "1:1", True),))),
    "replicated-subscriptions-off": target(settings(enableReplicatedSubscriptions="false")),
    "resource-group-differs": both(lambda snapshot: replace(snapshot, resource_groups=snapshot.resource_groups[:1])),
    "resource-group-missing": target(fields(resource_groups=())),
    "resource-not-readable": source(fields(notes=(Note(ORDERS, Problem.DELETED.value, "blue answered 404."),))),
    "retention-default-differs": both(settings(defaultRetentionTimeInMinutes="60")),
    "retention-shorter-than-lag": steps(
        both(policies(retention_policies={"retentionTimeInMinutes": 60, "retentionSizeInMB": -1})),
        probes(lag_seconds=3600),
    ),
    "role-only-on-target": both(policies(auth_policies=grants(app=["produce"], stranger=["consume"]))),
    "same-cluster-name": target(fields(known_clusters=("blue", "green"))),
    "schema-default-differs": steps(
        target(settings(schemaCompatibilityStrategy="BACKWARD")), both(policies(schema_compatibility_strategy="FULL"))
    ),
    "schema-history-differs": target(schemas(HISTORY[0])),
    "schema-incompatible": target(schemas(*HISTORY)),
    "schema-only-on-target": both(schemas()),
    "schema-strategy-differs": both(policies(schema_compatibility_strategy="BACKWARD")),
    "schema-undecided": both(schemas("one", kind="PROTOBUF")),
    "schema-update-off-for-replicator": steps(
        both(versions("5.0.1", "5.0.1")), both(policies(is_allow_auto_update_schema=False))
    ),
    "security-differs": both(settings(authorizationEnabled="false")),
    "shadow-topic": source(topic(PLAIN, properties={"PULSAR.SHADOW": EVENTS})),
    "shared-configuration-store": both(settings(configurationMetadataStoreUrl="zk:zookeeper:2181")),
    "subscription-not-addressable": both(subscription("a..b")),
    "superuser-only-on-source": steps(
        source(settings(superUserRoles="[admin, broker, ops]")), both(settings(authorizationEnabled="false"))
    ),
    "system-topic-differs": both(system_topic(2)),
    "target-older": target(versions("4.2.0", "4.2.0")),
    "too-many-namespaces": steps(NEW_NAMESPACE, target(settings(maxNamespacesPerTenant="4"))),
    "too-many-partitions": steps(NEW_NAMESPACE, target(settings(maxNumPartitionsPerPartitionedTopic="3"))),
    "too-many-subscriptions": steps(
        source(subscriptions(6)), target(settings(maxSubscriptionsPerTopic="6")), target(subscriptions(2))
    ),
    "too-many-tenants": steps(
        target(without_namespace), target(fields(tenants=())), target(settings(maxTenants="8")), measured(tenants=7)
    ),
    "too-many-topics": steps(NEW_NAMESPACE, target(settings(maxTopicsPerNamespace="4"))),
    "topic-name-refused": source(topic(f"{EVENTS}-partition-x")),
    "topic-policies-off": steps(both(fields(topic_policies=())), target(settings(topicLevelPoliciesEnabled="false"))),
    "topic-terminated": both(topic(PLAIN, terminated=True)),
    "topic-terminated-on-target": both(topic(PLAIN, terminated=True)),
    "transactions-off": both(settings(transactionCoordinatorEnabled="true")),
    "ttl-default-differs": steps(
        target(settings(ttlDurationDefaultInSeconds="60")), both(policies(message_ttl_in_seconds=9))
    ),
    "ttl-shorter-than-lag": steps(both(policies(message_ttl_in_seconds=3600)), probes(lag_seconds=3600)),
    "version-not-measured": both(versions("4.2.3", "4.2.3")),
    "version-unknown": both(versions("4.0.0", "4.0.0")),
    "version-unsupported": steps(source(versions("3.0.0", "3.0.0")), target(versions("4.0.0", "4.0.0"))),
    "versions-mixed": both(versions("4.2.3", "4.2.3")),
}
"""By finding: the state nearest to its fault in which its remedy would be wrong."""


@pytest.mark.parametrize("id_", NEAREST)
def test_a_remedy_is_not_printed_in_the_nearest_state_where_it_is_wrong(id_: str) -> None:
    assert id_ not in {finding.id for finding in check(NEAREST[id_](full_pair()))}


@pytest.mark.parametrize("id_", MORE_FAULTS)
def test_a_fault_beside_others_is_found(id_: str) -> None:
    assert id_ in {finding.id for finding in check(MORE_FAULTS[id_](full_pair()))}


def test_every_fault_has_a_nearest_state() -> None:
    texts = [expected for _, expected in FAULTS] + [expected for _, _, expected in PIP_433]
    seeded = {part.split()[1].rstrip(":") for text in texts for part in text.split(" + ")}
    assert seeded | set(MORE_FAULTS) == set(NEAREST)


@pytest.mark.parametrize(("spoil", "expected"), FAULTS, ids=lambda value: value if type(value) is str else "")
def test_a_seeded_fault_is_found_and_nothing_else(spoil: Spoil, expected: str) -> None:
    assert found(spoil(full_pair())) == set(expected.split(" + "))


def test_the_limit_of_subscriptions_holds_for_each_partition_alone() -> None:
    rows = tuple(
        SubscriptionState(EVENTS, f"{EVENTS}-partition-{index}", f"job{number}", "1:1", False)
        for index in range(3)
        for number in range(index, 2 * index + 1)
    )
    clusters = steps(source(fields(subscriptions=rows)), target(fields(subscriptions=())))(full_pair())
    limited = {most: target(settings(maxSubscriptionsPerTopic=str(most)))(clusters) for most in (2, 3)}
    assert {most: found(pair) for most, pair in limited.items()} == {
        2: {f"blocker too-many-subscriptions: {EVENTS}"},
        3: set(),
    }


def test_a_dynamic_setting_in_the_targets_configuration_is_no_finding() -> None:
    assert found(source(dynamic(defaultNumPartitions="1"))(full_pair())) == set()


def test_dynamic_settings_are_named_with_their_values_and_secrets_are_not() -> None:
    """Some belong to one cluster only, so that no printed call sets them."""
    secret = Redactor(b"0123456789abcdef").redact({"tokenSecretKey": "hush"})
    (finding,) = check(source(dynamic(maxMessageSize="a/b", **secret))(full_pair()))
    assert "maxMessageSize = a/b, tokenSecretKey = (secret)" in finding.evidence
    assert finding.call == "blue: GET /admin/v2/brokers/configuration/values"


def test_a_type_that_differs_is_named_and_the_remedy_registers_nothing() -> None:
    clusters = steps(source(schemas("", kind="STRING")), target(schemas(HISTORY[0], kind="JSON")))(full_pair())
    (finding,) = check(probes(schemas=(SchemaAnswer(EVENTS, 0, False, ""),))(clusters))
    assert (finding.id, finding.severity) == ("schema-incompatible", Severity.BLOCKER)
    assert "blue 1 STRING version, green 1 JSON version" in finding.evidence
    assert "ALWAYS_COMPATIBLE" not in finding.remedy


def test_a_cluster_that_the_plan_creates_is_not_reported_as_left_out() -> None:
    third = ClusterDataState("third", {"serviceUrl": "http://third:8080", "brokerServiceUrl": "pulsar://third:6650"})
    listed = source(policies(replication_clusters=["blue", "third"]))
    registered = source(
        lambda snapshot: replace(snapshot, clusters=(*snapshot.clusters, third), known_clusters=("blue", "third"))
    )
    ids = {finding.id for finding in check(steps(listed, registered)(full_pair()))}
    assert "cluster-unknown-to-target" not in ids
    hush = source(
        lambda snapshot: replace(snapshot, clusters=(replace(third, data={"a": "redacted:12", **third.data}),))
    )
    assert "cluster-unknown-to-target" in {
        finding.id for finding in check(steps(listed, registered, hush)(full_pair()))
    }


@pytest.mark.parametrize(
    ("detail", "remedy"),
    [
        ("blue answered 412: Namespace missing local cluster name in clusters list: ns=a/b", "allowed clusters"),
        ("blue answered 403. The token is accepted, but its role may not do this: ask for the right.", "superuser"),
        ("blue answered 500 to GET /x", "the cause that the broker names"),
    ],
)
def test_the_remedy_of_what_could_not_be_read_fits_its_cause(detail: str, remedy: str) -> None:
    (finding,) = check(source(unread(ORDERS, detail))(full_pair()))
    assert remedy in finding.remedy
    assert "again" not in finding.remedy


def test_one_name_for_two_clusters_is_found() -> None:
    assert "blocker same-cluster-name: blue" in found(target(fields(cluster="blue"))(full_pair()))


def test_a_finding_names_both_values_and_the_exact_call() -> None:
    (finding,) = check(source(topic(EVENTS, partitions=2))(full_pair()))
    assert (finding.evidence, finding.source, finding.target) == ("blue 2, green 3", 2, 3)
    assert finding.call == ("blue: POST /admin/v2/persistent/acme/orders/events/partitions?updateLocalTopicOnly=true 3")


@pytest.mark.parametrize("spoil", [row[0] for row in FAULTS] + [row[1] for row in PIP_433])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_remedy_with_a_hazard_names_its_precondition(spoil: Spoil, reverse: bool) -> None:
    clusters = spoil(full_pair())
    for finding in check(clusters.swapped() if reverse else clusters):
        require_harmless(finding)


MIGRATED = {"migrated": True}


def remedies(spoil: Spoil) -> dict[str, str]:
    return {finding.id: finding.remedy for finding in check(spoil(full_pair()))}


def test_a_topic_terminated_by_a_migration_stays_open_on_the_other_cluster() -> None:
    terminated = source(topic(PLAIN, terminated=True))
    assert "topic-terminated" in remedies(terminated)
    moved = remedies(steps(terminated, source(policies(**MIGRATED))))
    assert "topic-terminated" not in moved
    assert moved["namespace-migrated"].startswith("leave the flag")


def test_a_flag_without_terminated_topics_depends_on_the_redirect() -> None:
    assert "has no redirect (404)" in remedies(source(policies(**MIGRATED)))["namespace-migrated"]


def test_a_topic_that_a_migration_left_on_the_target_is_not_to_be_deleted() -> None:
    terminated = target(topic(PLAIN, terminated=True))
    assert "storageSize 0" in remedies(terminated)["topic-terminated-on-target"]
    moved = remedies(steps(terminated, target(policies(**MIGRATED))))
    assert moved["topic-terminated-on-target"].startswith("keep it")


def test_the_topic_of_the_policies_is_never_to_be_deleted() -> None:
    differs = target(system_topic(2))
    for spoil in (differs, steps(differs, both(fields(topic_policies=())))):
        assert "Do not delete the topic" in remedies(spoil)["system-topic-differs"]


def test_a_secured_target_is_never_to_be_opened() -> None:
    off = source(settings(authorizationEnabled="false"))
    assert remedies(off)["security-differs"].startswith("give every client credentials")
    open_target = target(settings(authorizationEnabled="false"))
    assert "set authorizationEnabled=true" in remedies(open_target)["security-differs"]


def test_a_default_of_the_target_is_no_fault_under_policies_everywhere() -> None:
    differs = target(settings(ttlDurationDefaultInSeconds="3600"))
    assert "ttl-default-differs" in remedies(differs)
    assert "ttl-default-differs" not in remedies(steps(differs, both(policies(message_ttl_in_seconds=60))))


def test_a_tenant_keeps_its_roles_and_clusters_when_a_role_is_removed() -> None:
    extra = target(fields(tenants=(TenantState("acme", ("owner", "stranger"), ("green", "red")),)))
    (call,) = [finding.call for finding in check(extra(full_pair())) if finding.id == "role-only-on-target"]
    assert call == (
        "green: GET /admin/v2/tenants/acme; "
        'green: POST /admin/v2/tenants/acme {"adminRoles": ["owner"], "allowedClusters": ["green", "red"]}'
    )


def test_the_call_is_shown_wherever_a_finding_is() -> None:
    (finding,) = check(target(settings(defaultNumPartitions="2"))(full_pair()))
    assert finding.call == (
        "blue: POST /admin/v2/namespaces/acme/orders/autoTopicCreation "
        '{"allowAutoTopicCreation": true, "topicType": "non-partitioned"}'
    )
    assert finding.call in finding.text()
    assert finding.call in findings_markdown([finding])
    assert Finding.from_json(finding.to_json()) == finding


def test_blockers_come_first() -> None:
    spoil = steps(target(settings(defaultNumPartitions="2")), target(topic(PLAIN, partitions=4)))
    assert [finding.severity for finding in check(spoil(full_pair()))] == [Severity.BLOCKER, Severity.WARNING]


def test_the_answer_of_the_broker_counts_more_than_our_rules() -> None:
    clusters = steps(source(schemas("one", kind="PROTOBUF")), target(schemas("two", kind="PROTOBUF")))(full_pair())
    answers = probes(schemas=(SchemaAnswer(EVENTS, 0, False, "FULL"),))
    assert found(answers(clusters)) == {f"blocker schema-incompatible: {EVENTS}"}


def test_brokers_that_do_not_tell_their_settings_are_told_and_not_compared() -> None:
    blind = steps(
        target(
            lambda snapshot: replace(
                snapshot, brokers=tuple(replace(broker, configuration={}) for broker in snapshot.brokers)
            )
        ),
        target(hidden(Area.BROKERS)),
    )
    assert found(blind(full_pair())) == {f"warning not-visible: {Area.BROKERS} of green"}


def test_nothing_measured_finds_nothing() -> None:
    clusters = full_pair()
    assert check_compatibility(clusters.source, clusters.target) == ()
