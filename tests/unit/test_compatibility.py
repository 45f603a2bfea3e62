from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_fleet.cluster.states import BrokerState, NamespaceState, Snapshot, TopicState
from pulsar_fleet.onboarding.compatibility import check_compatibility

EVENTS = "persistent://acme/orders/events"


def snapshot(cluster: str, version: str = "4.2.4", settings: dict[str, str] | None = None, **tables: Any) -> Snapshot:
    brokers = (BrokerState("localhost:8080", version, settings or {"defaultNumPartitions": "1"}),)
    return Snapshot(
        cluster=cluster, began="", ended="", key_id="k", known_clusters=(cluster,), brokers=brokers, **tables
    )


def topics(partitions: int, name: str = EVENTS, **properties: str) -> tuple[TopicState, ...]:
    return (TopicState(name, partitions, dict(properties)),)


def namespace(cluster: str, **policies: Any) -> tuple[NamespaceState, ...]:
    return (NamespaceState("acme/orders", {"replication_clusters": [cluster], **policies}),)


def ids(source: Snapshot, target: Snapshot) -> list[str]:
    return [f"{finding.severity} {finding.id}" for finding in check_compatibility(source, target)]


def test_two_alike_clusters_have_no_findings() -> None:
    source = snapshot("blue", topics=topics(3), namespaces=namespace("blue"))
    assert ids(source, snapshot("green", topics=topics(3), namespaces=namespace("green"))) == []


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (snapshot("blue"), snapshot("blue"), "blocker same-cluster-name"),
        (snapshot("blue", "3.3.1"), snapshot("green"), "blocker version-unsupported"),
        (snapshot("blue"), snapshot("green", "4.0.7"), "warning target-older"),
        (snapshot("blue", topics=topics(8)), snapshot("green", topics=topics(12)), "blocker partitions-differ"),
        (snapshot("blue", topics=topics(12)), snapshot("green", topics=topics(8)), "warning partitions-grow"),
        (snapshot("blue", topics=topics(3)), snapshot("green", topics=topics(0)), "blocker partitioned-on-one-side"),
        (
            snapshot("blue", topics=topics(0, f"{EVENTS}-partition-0")),
            snapshot("green", topics=topics(3)),
            "blocker named-like-a-partition",
        ),
        (
            snapshot("blue", topics=topics(0, f"{EVENTS}-partition-0")),
            snapshot("green"),
            "warning named-like-a-partition",
        ),
        (
            snapshot("blue"),
            snapshot("green", settings={"defaultNumPartitions": "4"}),
            "warning auto-creation-differs",
        ),
        (
            snapshot("blue", namespaces=namespace("blue", schema_compatibility_strategy="FULL")),
            snapshot("green", namespaces=namespace("green")),
            "warning schema-strategy-differs",
        ),
        (
            snapshot("blue", namespaces=namespace("blue", max_producers_per_topic=-1)),
            snapshot("green"),
            "blocker policies-invalid",
        ),
        (
            snapshot("blue", namespaces=namespace("blue", resource_group_name="gold")),
            snapshot("green"),
            "warning resource-group-missing",
        ),
        (
            snapshot("blue", namespaces=namespace("blue", offload_policies={"managedLedgerOffloadDriver": "aws-s3"})),
            snapshot("green"),
            "warning offload-driver",
        ),
        (
            snapshot("blue", topics=topics(0, **{"PULSAR.SHADOW_SOURCE": EVENTS})),
            snapshot("green"),
            "warning shadow-topic",
        ),
        (
            snapshot("blue", topics=(TopicState(EVENTS, 0, {}, True),)),
            snapshot("green"),
            "warning topic-terminated",
        ),
    ],
)
def test_a_finding(source: Snapshot, target: Snapshot, expected: str) -> None:
    assert ids(source, target) == [expected]


def test_brokers_of_two_versions_are_told() -> None:
    target = snapshot("green")
    mixed = replace(
        target, brokers=(*target.brokers, BrokerState("localhost:8081", "4.2.3", target.brokers[0].configuration))
    )
    assert ids(snapshot("blue", "4.2.3"), mixed) == ["warning versions-mixed"]


def test_a_finding_names_both_values_and_what_to_do() -> None:
    finding = check_compatibility(snapshot("blue", topics=topics(8)), snapshot("green", topics=topics(12)))[0]
    assert (finding.resource, finding.evidence) == (EVENTS, "blue 8, green 12")
    assert finding.remedy.startswith("grow blue to 12")
