"""A message that cannot be processed is delivered again, then published to a dead-letter topic; others pass it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.clients.consume import consume
from pulsar_fleet.messages.clients.dead_letters import DeadLetterPolicy
from pulsar_fleet.messages.clients.publish import OutgoingMessage, publish
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.stream import Subscription

POISON = b"7"
LIMITS: dict[str, Any] = {"most_messages": 100, "batch_size": 5, "wait_seconds": 1}


@pytest.fixture
async def topic(
    on_blue: AdminClient,
    blue: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[..., Any],
) -> TopicName:
    """A topic with ten messages in one entry, the eighth of which nobody can process."""
    topic = TopicName(new_namespace(), "orders")
    await make_namespace(on_blue, topic.namespace)
    await on_blue.create_topic(topic)
    await on_blue.create_subscription(topic, "warehouse")
    messages = [OutgoingMessage(content=str(n).encode(), key="acme", properties={"unit": "EUR"}) for n in range(10)]
    await publish(blue, str(topic), messages)
    return topic


class Warehouse:
    """A callable that fails for some messages, and keeps what it got."""

    def __init__(self, *poison: bytes) -> None:
        self.poison = poison
        self.stored: list[bytes] = []
        self.tries = 0

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        contents = [message.content for message in messages]
        if any(content in self.poison for content in contents):
            self.tries += len(contents) == 1
            raise ValueError("an amount is missing")
        self.stored += contents


def of(topic: TopicName) -> Subscription:
    return Subscription(topic=str(topic), name="warehouse", initial_position="earliest")


def policy(topic: TopicName, **settings: Any) -> DeadLetterPolicy:
    return DeadLetterPolicy(topic=f"{topic}-warehouse-DLQ", **settings)


def read(cluster: ClusterConnection, topic: str) -> list[ReceivedMessage]:
    received: list[ReceivedMessage] = []
    reader = Subscription(topic=topic, name=f"test-{uuid.uuid4().hex}", initial_position="earliest")
    consume(cluster, reader, received.extend, **LIMITS)
    return received


def test_a_poisonous_message_is_set_aside_and_all_others_are_processed(
    blue: ClusterConnection, topic: TopicName
) -> None:
    warehouse = Warehouse(POISON)
    result = consume(blue, of(topic), warehouse, **LIMITS, dead_letters=policy(topic, max_redeliveries=2))
    assert (result["messages"], result["dead_letters"]) == (10, 1)
    assert set(warehouse.stored) == {str(number).encode() for number in range(10)} - {POISON}
    assert warehouse.tries == 3
    (dead,) = read(blue, f"{topic}-warehouse-DLQ")
    assert (dead.content, dead.key, dead.properties["unit"]) == (POISON, "acme", "EUR")
    added = {name: dead.properties[name] for name in ("REAL_TOPIC", "REAL_SUBSCRIPTION", "DEAD_LETTER_REASON")}
    assert added == {
        "REAL_TOPIC": str(topic),
        "REAL_SUBSCRIPTION": "warehouse",
        "DEAD_LETTER_REASON": "ValueError: an amount is missing",
    }
    assert dead.properties["ORIGIN_MESSAGE_ID"] in {message.message_id for message in read(blue, str(topic))}


def test_what_was_set_aside_is_acknowledged(blue: ClusterConnection, topic: TopicName) -> None:
    consume(blue, of(topic), Warehouse(POISON), **LIMITS, dead_letters=policy(topic, max_redeliveries=0))
    rest: list[ReceivedMessage] = []
    assert consume(blue, of(topic), rest.extend, **LIMITS)["messages"] == 0


def test_a_message_that_passes_at_a_second_delivery_is_no_dead_letter(
    blue: ClusterConnection, topic: TopicName
) -> None:
    warehouse = Warehouse(POISON)

    def process(messages: Sequence[ReceivedMessage]) -> None:
        try:
            warehouse(messages)
        finally:
            if warehouse.tries:
                warehouse.poison = ()

    result = consume(blue, of(topic), process, **{**LIMITS, "wait_seconds": 0.1}, dead_letters=policy(topic))
    assert (result["messages"], result["dead_letters"], POISON in warehouse.stored) == (10, 0, True)


def test_a_warehouse_that_is_down_gets_its_messages_later(blue: ClusterConnection, topic: TopicName) -> None:
    everything = Warehouse(*(str(number).encode() for number in range(10)))
    settings = policy(topic, max_redeliveries=0, max_dead_letters=2)
    with pytest.raises(ValueError, match="an amount is missing"):
        consume(blue, of(topic), everything, **LIMITS, dead_letters=settings)
    later: list[ReceivedMessage] = []
    consume(blue, of(topic), later.extend, **LIMITS)
    assert (len(read(blue, settings.topic)), len(later)) == (2, 8)


def test_a_fatal_error_sets_nothing_aside(blue: ClusterConnection, topic: TopicName) -> None:
    settings = policy(topic, max_redeliveries=0, fatal=(ValueError,))
    with pytest.raises(ValueError, match="an amount is missing"):
        consume(blue, of(topic), Warehouse(POISON), **LIMITS, dead_letters=settings)
    later: list[ReceivedMessage] = []
    consume(blue, of(topic), later.extend, **LIMITS)
    assert POISON in {message.content for message in later}


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_subscriptions_that_are_redelivered_as_a_whole_are_refused(blue: ClusterConnection, kind: str) -> None:
    subscription = replace(of(TopicName(NamespaceName("a", "b"), "c")), kind=kind)
    with pytest.raises(InvalidRequest, match="use shared or key_shared"):
        consume(blue, subscription, print, **LIMITS, dead_letters=DeadLetterPolicy(topic="persistent://a/b/d"))


@pytest.mark.parametrize("settings", [{"max_redeliveries": -1}, {"max_dead_letters": 0}])
def test_a_policy_without_sense_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="max_dead_letters to 1 or more"):
        DeadLetterPolicy(topic="persistent://a/b/d", **settings)
