"""What an estate consists of, without any cluster."""

from __future__ import annotations

import json

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_sandbox.workload.layout import EstateSpec, TopicPlan, plan_estate
from pulsar_sandbox.workload.live import NumberedMessage, SubscriptionType
from pulsar_sandbox.workload.schemas import SchemaKind, decode, definition, encode


def topics_of(spec: EstateSpec) -> list[TopicPlan]:
    """Every topic of the estate."""
    return [topic for tenant in plan_estate(spec) for namespace in tenant.namespaces for topic in namespace.topics]


def test_the_same_specification_gives_the_same_estate() -> None:
    assert plan_estate(EstateSpec()) == plan_estate(EstateSpec())


def test_another_seed_gives_another_estate() -> None:
    assert plan_estate(EstateSpec()) != plan_estate(EstateSpec(seed=8))


def test_no_topic_is_named_twice() -> None:
    topics = topics_of(EstateSpec(tenants=9, namespaces_per_tenant=11, topics_per_namespace=12))
    assert len({topic.name for topic in topics}) == len(topics) == 98 * 12 + 2


def test_the_live_namespace_is_the_first_and_has_two_topics() -> None:
    live = plan_estate(EstateSpec(live="fleet/sales"))[0].namespaces[0]
    assert (str(live.name), [(topic.name.local, topic.partitions) for topic in live.topics]) == (
        "fleet/sales",
        [("events", 4), ("audit", 0)],
    )


def test_the_live_namespace_has_no_rates_that_could_throttle_it() -> None:
    document = plan_estate(EstateSpec())[0].namespaces[0].document("blue")
    assert not [name for name in document if "Rate" in name]


def test_policies_that_a_broker_keys_by_cluster_carry_its_name() -> None:
    keyed = plan_estate(EstateSpec())[0].namespaces[1].document("green")["topicDispatchRate"]
    assert list(keyed) == ["green"]


def test_all_four_subscription_types_have_backlog() -> None:
    backlog = {kind: 0 for kind in SubscriptionType}
    for topic in topics_of(EstateSpec()):
        for subscription in topic.subscriptions:
            backlog[subscription.type] += topic.messages - len(topic.acknowledged(subscription))
    assert all(backlog.values())


def test_a_batch_is_acknowledged_as_a_whole_or_not_at_all() -> None:
    for topic in topics_of(EstateSpec()):
        batched = set(range(topic.batched))
        assert all(
            topic.acknowledged(subscription) & batched in (set(), batched) for subscription in topic.subscriptions
        )


def test_a_delayed_message_is_never_acknowledged() -> None:
    for topic in topics_of(EstateSpec()):
        assert not [
            number
            for subscription in topic.subscriptions
            for number in topic.acknowledged(subscription)
            if topic.is_delayed(number)
        ]


def test_a_plain_topic_always_has_a_subscription_that_keeps_it() -> None:
    assert all(topic.subscriptions for topic in topics_of(EstateSpec()) if topic.partitions == 0)


def test_an_estate_without_a_tenant_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"EstateSpec\.tenants is 0"):
        EstateSpec(tenants=0)


def test_a_schema_version_adds_only_fields_with_defaults() -> None:
    first, third = (json.loads(definition(version))["fields"] for version in (0, 2))
    assert third[: len(first)] == first
    assert [field["default"] for field in third[len(first) :]] == [None, None]


@pytest.mark.parametrize("number", [0, 63, 64, 8191, 8192, 2**40])
def test_an_avro_payload_can_be_read_back(number: int) -> None:
    message = NumberedMessage("checkout-1", "k-ä", number, 1_760_000_000_000)
    assert decode(encode(message, SchemaKind.AVRO, 3)) == message


@pytest.mark.parametrize("payload", [b'{"order": 1}', b"\x04ab", b""])
def test_a_payload_of_another_application_is_recognised(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not a numbered message"):
        decode(payload)
