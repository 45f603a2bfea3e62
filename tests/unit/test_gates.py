"""Gates: each fault is found by its name, and a clean estate passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsar_fleet.change.findings import Severity, blockers, count_line, findings_markdown
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.client_versions import behaviour
from pulsar_fleet.migration.facts import ClusterFacts, NamespaceFacts, PartitionFacts
from pulsar_fleet.migration.gates import check

ORDERS = NamespaceName("acme", "orders")
EVENTS = TopicName(ORDERS, "events")
GREEN_URL = "pulsar://green:6650"
BROKER = {"clusterMigrationCheckDurationSeconds": "1", "clusterMigrationAutoResourceCreation": "false"}
BLUE = ClusterFacts(name="blue", brokers={"b1:8080": BROKER, "b2:8080": BROKER}, redirect=None)
GREEN = ClusterFacts(name="green", brokers={"g1:8080": BROKER}, redirect=None)


def partition(topic: TopicName = EVENTS, version: str = "Pulsar-Java-v4.2.4", **stats: object) -> PartitionFacts:
    client = {"clientVersion": version, "producerName": "checkout", "address": "/10.0.0.1:1"}
    return PartitionFacts.from_stats(topic, {"publishers": [client], "subscriptions": {}, **stats})


CLEAN = NamespaceFacts(
    namespace=ORDERS,
    blue={"replication_clusters": ["blue"]},
    green={"replication_clusters": ["green"]},
    topics={EVENTS: 0},
    green_topics={EVENTS: 0},
    partitions=(partition(),),
)


def found(facts: NamespaceFacts = CLEAN, blue: ClusterFacts = BLUE, green: ClusterFacts = GREEN) -> set[str]:
    return {finding.id for finding in check(blue, green, GREEN_URL, (facts,))}


def redirecting_to(url: str) -> ClusterFacts:
    return replace(BLUE, redirect={"migrated": False, "migratedClusterUrl": {"brokerServiceUrl": url}})


def test_a_clean_estate_passes() -> None:
    assert found() == set()


def test_a_namespace_that_green_does_not_have_yet_passes() -> None:
    assert found(replace(CLEAN, green=None, green_topics={})) == set()


def test_the_redirect_of_an_earlier_wave_to_the_same_green_passes() -> None:
    assert found(blue=redirecting_to(GREEN_URL)) == set()


@pytest.mark.parametrize("value", ["0", None, ""])
def test_one_broker_whose_check_is_off_is_found_and_named(value: str | None) -> None:
    off = {
        key: text for key, text in {**BROKER, "clusterMigrationCheckDurationSeconds": value}.items() if text is not None
    }
    findings = check(replace(BLUE, brokers={"b1:8080": BROKER, "b2:8080": off}), GREEN, GREEN_URL, (CLEAN,))
    assert [(finding.id, "b2:8080" in finding.resource) for finding in findings] == [("migration-check-off", True)]


@pytest.mark.parametrize(
    ("expected", "facts"),
    [
        ("namespace-missing", replace(CLEAN, blue=None)),
        ("migrated-flag-left", replace(CLEAN, blue={"migrated": True})),
        ("migrated-flag-left", replace(CLEAN, green={"replication_clusters": ["green"], "migrated": True})),
        ("green-not-in-list", replace(CLEAN, green={"replication_clusters": ["blue"]})),
        ("green-not-in-list", replace(CLEAN, green={"replication_clusters": ["green"], "allowed_clusters": ["blue"]})),
        ("partitions-differ", replace(CLEAN, topics={EVENTS: 12}, green_topics={EVENTS: 8})),
        ("partitions-differ", replace(CLEAN, topics={EVENTS: 1}, green_topics={EVENTS: 0})),
        ("green-in-use", replace(CLEAN, green_partitions=(partition(),))),
        ("transactions-in-use", replace(CLEAN, partitions=(partition(committedTxnCount=1),))),
        ("topic-publish-rate", replace(CLEAN, topic_publish_rates=(EVENTS,))),
        ("non-persistent-topic", replace(CLEAN, topics={TopicName(ORDERS, "live", persistent=False): 0})),
        ("client-may-hang", replace(CLEAN, partitions=(partition(version="Pulsar-CPP-v4.2.0"),))),
        ("client-cannot-follow", replace(CLEAN, partitions=(partition(version="2.11.4"),))),
    ],
)
def test_a_fault_of_a_namespace_is_found(expected: str, facts: NamespaceFacts) -> None:
    assert found(facts) == {expected}


@pytest.mark.parametrize(
    ("expected", "blue", "green"),
    [
        (
            "auto-resource-creation-on",
            replace(BLUE, brokers={"b1:8080": {**BROKER, "clusterMigrationAutoResourceCreation": "true"}}),
            GREEN,
        ),
        ("redirect-to-another-cluster", redirecting_to("pulsar://third:6650"), GREEN),
        ("green-is-migrated", BLUE, replace(GREEN, redirect={"migrated": True})),
    ],
)
def test_a_fault_of_a_cluster_is_found(expected: str, blue: ClusterFacts, green: ClusterFacts) -> None:
    assert found(blue=blue, green=green) == {expected}


def test_all_faults_are_told_at_once() -> None:
    facts = replace(CLEAN, blue={"migrated": True}, topic_publish_rates=(EVENTS,))
    assert found(facts, blue=redirecting_to("pulsar://third:6650")) == {
        "migrated-flag-left",
        "topic-publish-rate",
        "redirect-to-another-cluster",
    }


def test_a_warning_does_not_stop_the_run() -> None:
    findings = check(BLUE, GREEN, GREEN_URL, (replace(CLEAN, partitions=(partition(version="Pulsar-Go-v0.19.0"),)),))
    assert (len(findings), blockers(findings)) == (1, ())


def test_findings_are_counted_and_shown_blockers_first() -> None:
    facts = replace(CLEAN, blue={"migrated": True}, partitions=(partition(version="Pulsar-CPP-v4.2.0"),))
    findings = check(BLUE, GREEN, GREEN_URL, (facts,))
    table = findings_markdown(findings)
    assert count_line(findings) == "1 blocker, 1 warning"
    assert table.index("migrated-flag-left") < table.index("client-may-hang")


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("Pulsar-Java-v4.2.4", None),
        ("Pulsar-Java-v3.3.9", None),
        ("Pulsar-Java-v3.0.7", Severity.WARNING),
        ("Pulsar-Java-v2.11.4", Severity.BLOCKER),
        ("2.11.4", Severity.BLOCKER),
        ("Pulsar-CPP-v4.2.0", Severity.WARNING),
        ("Pulsar-Go-v0.19.0", Severity.WARNING),
        ("unknown", Severity.WARNING),
    ],
)
def test_each_client_version_is_told_by_what_it_was_seen_to_do(version: str, severity: Severity | None) -> None:
    assert behaviour(version).severity is severity
