"""Each known defect is reported where the version has it and the estate meets its condition, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.remedies import KNOWN_DEFECTS, require_harmless
from tests.support.snapshots import EVENTS, ORDERS, PLAIN, full_pair, with_policies, with_settings, with_topic

from pulsar_fleet.cluster.defects.catalogue import DEFECTS
from pulsar_fleet.cluster.defects.model import Condition
from pulsar_fleet.cluster.names import SHADOW_SOURCE
from pulsar_fleet.preflight.checks.defects import MET_BY
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.snapshot.model import InventoryState, Snapshot, SubscriptionState, TopicPolicyState

Change = Callable[[Snapshot], Snapshot]
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
RATE = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
NO_RATE = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 0, "ratePeriodInSecond": 1}


def on(version: str, *changes: Change) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        brokers = tuple(replace(broker, version=version) for broker in snapshot.brokers)
        snapshot = replace(snapshot, brokers=brokers, topic_policies=())
        for step in changes:
            snapshot = step(snapshot)
        return snapshot

    return change


def settings(**values: str) -> Change:
    return lambda snapshot: with_settings(snapshot, **values)


def policies(**values: Any) -> Change:
    return lambda snapshot: with_policies(snapshot, **values)


def topic_policies(**values: Any) -> Change:
    return lambda snapshot: replace(snapshot, topic_policies=(TopicPolicyState(PLAIN, "local", values, 0),))


def shadow(snapshot: Snapshot) -> Snapshot:
    return with_topic(snapshot, PLAIN, properties={SHADOW_SOURCE: EVENTS})


def subscription(*, ranges: int = -1, replicated: bool = False) -> Change:
    row = SubscriptionState(PLAIN, PLAIN, "tail", "1:1", replicated, {}, ranges)
    return lambda snapshot: replace(snapshot, subscriptions=(row,))


def clients(**numbers: int) -> Change:
    item = InventoryState("client", ORDERS, "Pulsar-Java-v4.2.4", {"producers": 0, "consumers": 0, **numbers})
    return lambda snapshot: replace(snapshot, inventory=(item,))


BATCHES, NO_BATCHES = (settings(acknowledgmentAtBatchIndexLevelEnabled=value) for value in ("true", "false"))
REPLICATING = policies(replication_clusters=["blue", "west"])
COMPACTING, NOT_COMPACTING = policies(compaction_threshold=100), policies(compaction_threshold=0)
FAULTS: dict[str, Change] = {
    "shadow-deletes-source": on("4.2.4", shadow),
    "shadow-replicator-leaks": on("5.0.0-M1", shadow),
    "batch-acknowledgments-forgotten": on("4.2.4", BATCHES, subscription(ranges=2)),
    "cursor-properties-forgotten": on("4.2.4", topic_policies(compactionThreshold=100)),
    "offload-forgotten": on("4.2.4", policies(offload_policies={"managedLedgerOffloadDriver": "aws-s3"})),
    "compacted-read-stuck": on("4.2.2", COMPACTING),
    "compaction-blocks-deletion": on("4.0.7", settings(brokerServiceCompactionThresholdInBytes="100")),
    "subscribe-rate-stalls-compaction": on(
        "4.0.7", policies(clusterSubscribeRate={"blue": {"subscribeThrottlingRatePerConsumer": 1}})
    ),
    "expiry-skips-readers": on("4.2.4", policies(message_ttl_in_seconds=9), clients(readers=1)),
    "replicator-stops-at-rate": on("4.0.7", REPLICATING, policies(replicatorDispatchRate={"blue": RATE})),
    "inactive-topic-deleted": on("4.0.7", REPLICATING),
    "dotted-cluster-name": on("4.2.4", policies(replication_clusters=["blue", "eu.west"])),
    "empty-list-of-clusters": on("4.0.7", policies(replication_clusters=[])),
    "snapshot-lost": on("4.2.3", subscription(replicated=True)),
    "subscription-activity-forgotten": on("4.2.4", subscription(replicated=True)),
    "replicated-subscription-stalls": on("4.0.7", subscription(replicated=True)),
    "policies-cache-stuck": on("4.0.7", topic_policies(maxProducerPerTopic=9)),
    "proxy-answers-502": on("4.0.7", settings(proxyRoles="[proxy]")),
    "interceptor-answers-400": on("4.0.12", settings(brokerInterceptors="[audit]")),
    "lookup-mixes-listeners": on(
        "4.0.7",
        settings(loadManagerClassName=MODULAR, advertisedListeners="internal:pulsar://a:1,external:pulsar://b:2"),
    ),
    "metadata-events-lost": on("4.0.7", settings(metadataSyncEventTopic="persistent://a/b/events")),
}
NEAREST: dict[str, Change] = {
    "shadow-deletes-source": on(
        "4.2.4", lambda snapshot: with_topic(snapshot, PLAIN, properties={"PULSAR.SHADOW": ""})
    ),
    "shadow-replicator-leaks": on("5.0.0-M1"),
    "batch-acknowledgments-forgotten": on("4.2.4", NO_BATCHES, subscription(ranges=2)),
    "cursor-properties-forgotten": on("4.2.4", topic_policies(compactionThreshold=0)),
    "offload-forgotten": on("4.2.4", policies(offload_policies={"managedLedgerOffloadDriver": None})),
    "compacted-read-stuck": on("4.2.2", NOT_COMPACTING),
    "compaction-blocks-deletion": on("4.0.7", settings(brokerServiceCompactionThresholdInBytes="0")),
    "subscribe-rate-stalls-compaction": on(
        "4.0.7", policies(clusterSubscribeRate={"blue": {"subscribeThrottlingRatePerConsumer": -1}})
    ),
    "expiry-skips-readers": on("4.2.4", policies(message_ttl_in_seconds=9), clients(consumers=1)),
    "replicator-stops-at-rate": on("4.0.7", REPLICATING, policies(replicatorDispatchRate={"blue": NO_RATE})),
    "inactive-topic-deleted": on(
        "4.0.7", REPLICATING, policies(inactive_topic_policies={"deleteWhileInactive": False})
    ),
    "dotted-cluster-name": on("4.2.4", REPLICATING),
    "empty-list-of-clusters": on("4.0.7", policies(replication_clusters=["blue"])),
    "snapshot-lost": on("4.2.3", subscription()),
    "subscription-activity-forgotten": on("4.2.4", subscription()),
    "replicated-subscription-stalls": on("4.0.7", subscription()),
    "policies-cache-stuck": on("4.0.7"),
    "proxy-answers-502": on("4.0.7", settings(proxyRoles="[]")),
    "interceptor-answers-400": on("4.0.12", settings(brokerInterceptors="[]")),
    "lookup-mixes-listeners": on("4.0.7", settings(loadManagerClassName=MODULAR, advertisedListeners="a:pulsar://a:1")),
    "metadata-events-lost": on("4.0.7", settings(metadataSyncEventTopic="null")),
}
"""By finding: the same version and the nearest estate that cannot meet the defect."""


NEWER = on("4.2.5")


def found(source: Change, target: Change = NEWER) -> dict[str, Finding]:
    """Those of the source; the target has a patch without them."""
    pair = full_pair()
    findings = check_compatibility(source(pair.source), target(pair.target), pair.probes)
    return {finding.id: finding for finding in findings if finding.id in KNOWN_DEFECTS}


@pytest.mark.parametrize("id_", FAULTS)
def test_a_defect_is_reported_where_version_and_estate_meet_it(id_: str) -> None:
    finding = found(FAULTS[id_])[id_]
    assert (finding.severity, finding.resource) == (Severity.WARNING, "cluster blue")
    assert re.search(r" apache/pulsar#\d+ \(fixed in \S+", finding.consequence)
    require_harmless(finding)


@pytest.mark.parametrize("id_", NEAREST)
def test_a_defect_is_not_reported_in_the_nearest_estate_without_it(id_: str) -> None:
    assert id_ not in found(NEAREST[id_])


@pytest.mark.parametrize("id_", FAULTS)
@pytest.mark.parametrize("version", ["4.0.14", "4.2.5", "4.1.9", "5.1.0", "3.0.7"])
def test_a_version_without_it_or_unknown_has_no_warning(id_: str, version: str) -> None:
    def upgraded(snapshot: Snapshot) -> Snapshot:
        spoiled = FAULTS[id_](snapshot)
        return replace(spoiled, brokers=tuple(replace(broker, version=version) for broker in spoiled.brokers))

    assert found(upgraded) == {}


def test_every_condition_is_met_and_not_met_once() -> None:
    assert set(FAULTS) == set(NEAREST) == KNOWN_DEFECTS
    assert {defect.condition for defect in DEFECTS} == {*MET_BY, Condition.SYMPTOM}


@pytest.mark.parametrize("version", ["4.0.7", "4.2.4", "5.0.0-M1"])
def test_a_plain_estate_has_no_warning(version: str) -> None:
    assert found(on(version, BATCHES, subscription(ranges=0)), on(version)) == {}


def test_one_broker_that_has_it_is_enough_and_is_named() -> None:
    def rolling(snapshot: Snapshot) -> Snapshot:
        first, second = shadow(replace(snapshot, topic_policies=())).brokers
        return replace(shadow(snapshot), brokers=(replace(first, version="4.2.5"), second), topic_policies=())

    assert found(rolling)["shadow-deletes-source"].evidence.startswith("brokers run 4.2.4; there are shadow topics")


def test_the_target_is_judged_by_what_it_will_have() -> None:
    pair = full_pair()
    source, target = on("4.2.5", topic_policies(maxProducerPerTopic=9)), on("4.0.7")
    findings = check_compatibility(source(pair.source), target(pair.target), pair.probes)
    resources = {finding.resource for finding in findings if finding.id == "policies-cache-stuck"}
    assert resources == {"cluster green"}
    # A shadow is not copied, and neither is what was acknowledged on the source.
    spoiled = on("4.2.5", shadow, BATCHES, subscription(ranges=2))(pair.source)
    ids = {finding.id for finding in check_compatibility(spoiled, on("4.2.4", BATCHES)(pair.target), pair.probes)}
    assert not ids & {"shadow-deletes-source", "batch-acknowledgments-forgotten"}


def test_acknowledgments_that_were_not_read_are_no_warning() -> None:
    assert found(on("4.2.4", BATCHES, subscription())) == {}


def test_a_limit_of_the_brokers_counts_for_readers() -> None:
    default = settings(ttlDurationDefaultInSeconds="60")
    assert found(on("4.2.4", default, clients(readers=1)))["expiry-skips-readers"].evidence.endswith(ORDERS)
    of_a_topic = topic_policies(messageTTLInSeconds=60)
    assert "expiry-skips-readers" in found(on("4.2.4", of_a_topic, clients(readers=1)))
