"""Messages and acknowledgements of an estate, through pulsar-client (blocking; run it in a thread)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from datetime import timedelta

import _pulsar
import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.message_client import security_options
from pulsar_sandbox.workload.layout import SubscriptionPlan, TopicPlan
from pulsar_sandbox.workload.live import NumberedMessage
from pulsar_sandbox.workload.schemas import SchemaKind, decode, definition, encode

KEYS = 10
DELAY = timedelta(hours=1)
_FIRST_EVENT_MS = 1_760_000_000_000
_SEND_TIMEOUT_MS = 30_000
_RECEIVE_TIMEOUT_MS = 5_000


def open_client(connection: ClusterConnection) -> pulsar.Client:
    """A client for a cluster with the credentials of its connection; warnings go to standard output."""
    return pulsar.Client(
        connection.require_service_url(),
        operation_timeout_seconds=30,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **security_options(connection),
    )


def schema_of(kind: SchemaKind | None, versions: int) -> pulsar.schema.Schema:
    """What a producer of the latest schema version declares; it takes payloads that are encoded already."""
    schema = pulsar.schema.BytesSchema()
    if kind is not None:
        name, record = kind.value, json.loads(definition(versions - 1))
        pulsar.schema.Schema.__init__(schema, bytes, getattr(_pulsar.SchemaType, name), record, name)
    return schema


def fill_topic(client: pulsar.Client, topic: TopicPlan) -> int:
    """Publish the topic's messages and acknowledge what its subscriptions have done; answers the messages published.

    Half of the messages are batched by key, half are not; all are keyed, have event times and properties. A second
    call would publish them again: ask `is_empty` of the topic first.
    """
    history = numbered_history(topic)
    _publish(client, topic, history[: topic.batched], batched=True)
    _publish(client, topic, history[topic.batched :], batched=False)
    for subscription in topic.subscriptions:
        if numbers := topic.acknowledged(subscription):
            _acknowledge(client, topic, subscription, numbers)
    return len(history)


def numbered_history(topic: TopicPlan) -> tuple[NumberedMessage, ...]:
    """The topic's messages in order. Here numbers count per topic, so that an acknowledged one can be named."""
    producer = f"estate-{topic.name.local}"
    return tuple(
        NumberedMessage(producer, f"k-{number % KEYS}", number, _FIRST_EVENT_MS + number * 1000)
        for number in range(topic.messages)
    )


def _publish(client: pulsar.Client, topic: TopicPlan, messages: Iterable[NumberedMessage], *, batched: bool) -> None:
    producer = client.create_producer(
        str(topic.name),
        producer_name=f"estate-{topic.name.local}-{'batched' if batched else 'single'}",
        schema=schema_of(topic.schema, topic.schema_versions),
        send_timeout_millis=_SEND_TIMEOUT_MS,
        block_if_queue_full=True,
        max_pending_messages=5000,
        batching_enabled=batched,
        batching_max_messages=200,
        batching_max_publish_delay_ms=5,
        batching_type=pulsar.BatchingType.KeyBased,
    )
    failures: list[str] = []

    def answered(result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failures.append(str(result))

    for message in messages:
        producer.send_async(
            encode(message, topic.schema, topic.schema_versions),
            answered,
            properties={"trace": f"{message.key}/{message.number}"},
            partition_key=message.key,
            event_timestamp=message.at,
            deliver_after=DELAY if topic.is_delayed(message.number) else None,
        )
    producer.flush()
    producer.close()
    if failures:
        raise Unavailable(
            f"{len(failures)} of the messages for {topic.name} were not stored: {failures[0]}. Try again."
        )


def _acknowledge(
    client: pulsar.Client, topic: TopicPlan, subscription: SubscriptionPlan, numbers: frozenset[int]
) -> None:
    """Receive until every wanted message was seen; the others go back unacknowledged when the consumer closes."""
    consumer = client.subscribe(
        str(topic.name),
        subscription.name,
        consumer_type=getattr(pulsar.ConsumerType, subscription.type.client_name),
        consumer_name=f"estate-{threading.get_ident()}",
    )
    pending = set(numbers)
    try:
        while pending:
            received = consumer.receive(_RECEIVE_TIMEOUT_MS)
            number = decode(received.data()).number
            if number in pending:
                consumer.acknowledge(received)
                pending.discard(number)
    except pulsar.Timeout as error:
        raise Unavailable(
            f"{len(pending)} of {len(numbers)} messages of {topic.name} did not reach subscription "
            f"{subscription.name!r} within {_RECEIVE_TIMEOUT_MS} ms. Try again."
        ) from error
    finally:
        consumer.close()
