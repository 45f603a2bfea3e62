"""Names: what is taken, what is refused, how partitions are told."""

from __future__ import annotations

from urllib.parse import unquote, unquote_plus

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import (
    NamespaceName,
    Position,
    TopicName,
    own_subscription_properties,
    own_topic_properties,
)
from pulsar_fleet.cluster.statistics import SubscriptionStats
from pulsar_fleet.planning.changes.topics import property_calls
from pulsar_fleet.policy_sync.merge.fields import partitioned_values, properties_of
from pulsar_fleet.snapshot.model import TopicState

ORDERS = NamespaceName("acme", "orders")


def test_a_namespace_reads_back_as_written() -> None:
    assert str(NamespaceName.parse("acme/orders")) == "acme/orders"


@pytest.mark.parametrize("text", ["acme", "acme/", "/orders", "acme/orders/events", "", "ac me/orders"])
def test_what_is_no_namespace_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"namespace|name") as caught:
        NamespaceName.parse(text)
    assert repr(text) in str(caught.value) or "ac me" in str(caught.value)


@pytest.mark.parametrize("text", ["acme/orders\n", "acme\n/orders"])
def test_a_name_does_not_end_with_a_new_line(text: str) -> None:
    with pytest.raises(InvalidRequest, match="letters, digits"):
        NamespaceName.parse(text)


def test_a_topic_reads_back_as_written() -> None:
    assert str(TopicName.parse("persistent://acme/orders/events")) == "persistent://acme/orders/events"


@pytest.mark.parametrize("text", ["events", "acme/orders/events", "persistent://acme/orders", "http://acme/orders/x"])
def test_short_forms_of_topics_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="persistent://tenant/namespace/topic"):
        TopicName.parse(text)


def test_a_partition_knows_its_parent_and_index() -> None:
    partition = TopicName(ORDERS, "events").partition(3)
    assert (partition.parent, partition.partition_index) == (TopicName(ORDERS, "events"), 3)


def test_a_plain_topic_holds_its_messages_itself() -> None:
    audit = TopicName(ORDERS, "audit")
    assert audit.partitions(0) == (audit,)


def test_a_slash_in_a_topic_is_escaped_in_paths() -> None:
    assert TopicName(ORDERS, "a/b").path == "persistent/acme/orders/a%2Fb"


@pytest.mark.parametrize(
    "local",
    [
        *("__change_events", "__change_events-partition-0", "__transaction_buffer_snapshot"),
        "events-partition-0-billing__transaction_pending_ack",
    ],
)
def test_topics_of_the_broker_itself_are_told(local: str) -> None:
    assert TopicName(ORDERS, local).is_system


@pytest.mark.parametrize(
    "local",
    [
        *("__debezium-heartbeat.fulfillment", "__audit", "__audit-partition-3", "__consumer_offsets-partition-0"),
        *("__transaction_state", "__change_events2", "__change_events-x", "__transaction_log_0"),
    ],
)
def test_topics_of_applications_may_begin_with_two_underscores(local: str) -> None:
    assert not TopicName(ORDERS, local).is_system
    assert not TopicName(NamespaceName("public", "__kafka"), local).is_system


@pytest.mark.parametrize(
    ("namespace", "is_system"),
    [("pulsar/system", True), ("pulsar/b-0.local:8080", True), ("sla-monitor/b:80", True), ("pulsar/fleet", False)],
)
def test_the_namespaces_of_brokers_hold_system_topics(namespace: str, is_system: bool) -> None:
    assert TopicName(NamespaceName.parse(namespace), "healthcheck").is_system == is_system


@pytest.mark.parametrize("local", ["a+b", "a b%2Fc", "a%3Bb", "é.x", "100%"])
def test_the_name_of_a_topic_in_the_path_of_its_schemas_is_decoded_twice(local: str) -> None:
    path = TopicName(ORDERS, local).schema_path
    assert unquote_plus(unquote(path.rpartition("/")[2])) == local


MINE = {"owner": "sales", "pulsar.team": "b", "__audit": "yes"}


def test_the_state_of_brokers_is_no_property_of_a_topic() -> None:
    state = {"pulsar.topic.epoch": "2", "__contains_txn_messages": "true"}
    assert own_topic_properties(MINE | state) == MINE
    assert own_topic_properties(None) == {}
    assert list(property_calls(TopicName.parse("persistent://x/n/t"), MINE, MINE | state)) == []
    assert list(property_calls(TopicName.parse("persistent://x/n/t"), MINE | state, MINE)) == []
    values = partitioned_values(TopicState("persistent://x/n/t", 2, MINE | state), [])
    assert properties_of(values) == MINE
    # An event or a file of an earlier release may have them.
    assert properties_of({f"properties/{name}": value for name, value in (MINE | state).items()}) == MINE


def test_the_state_of_brokers_is_no_property_of_a_subscription() -> None:
    state = {"#pulsar.internal.delayed.bucket_1_5": "7"}
    assert own_subscription_properties(MINE | state) == MINE
    assert SubscriptionStats.of("app", {"subscriptionProperties": MINE | state}).properties == MINE


@pytest.mark.parametrize("text", ["7:3", "7:3:0", "7:3 (ackSet is null)"])
def test_a_position_is_read_with_what_brokers_add(text: str) -> None:
    assert Position.parse(text) == Position(7, 3)
