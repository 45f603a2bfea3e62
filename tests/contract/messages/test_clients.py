"""Consume on real brokers without a thread for each consumer, and keep what was not acknowledged."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG
from pulsar.asyncio import Producer, PulsarException

from pulsar_fleet.airflow import PulsarConsumeOperator
from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.clients import publish as clients
from pulsar_fleet.messages.clients.shared import shared_client
from pulsar_fleet.messages.clients.stream import Subscription, open_stream

pytestmark = pytest.mark.versions

MESSAGES = 25
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)}


@pytest.fixture
async def topic(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName], make_namespace: Callable[..., object]
) -> str:
    """A topic of the test's own, with a subscription `airflow` at its beginning and messages `0`, `1`, …"""
    namespace = new_namespace()
    await make_namespace(on_blue, namespace)
    return f"persistent://{namespace}/orders"


@pytest.fixture
async def deduplicated(blue: ClusterConnection, on_blue: AdminClient, topic: str) -> TopicName:
    """The topic with three partitions, where the namespace has deduplication."""
    name = TopicName.parse(topic)
    await on_blue.post(f"/namespaces/{name.namespace.path}/deduplication", True)
    await on_blue.create_partitioned_topic(name, 3)
    return name


def publish(cluster: ClusterConnection, topic: str, count: int = MESSAGES, **settings: Any) -> None:
    client = open_client(cluster)
    try:
        producer = client.create_producer(topic)
        for number in range(count):
            producer.send(str(number).encode(), **settings)
    finally:
        client.close()


def subscription(topic: str, **settings: str) -> Subscription:
    return Subscription(topic=topic, name="airflow", initial_position="earliest", **settings)


async def test_a_batch_has_what_arrived_and_no_more_than_was_asked_for(blue: ClusterConnection, topic: str) -> None:
    publish(blue, topic)
    async with open_stream(blue, subscription(topic)) as stream:
        first = await stream.next_batch(20, wait_seconds=10)
        second = await stream.next_batch(20, wait_seconds=10)
        none = await stream.next_batch(20, wait_seconds=0.5)
    assert (len(first.messages), len(second.messages), none) == (20, 5, None)
    assert [message.content for message in first.messages] == [str(number).encode() for number in range(20)]


async def test_what_was_not_acknowledged_is_delivered_to_the_next_consumer(blue: ClusterConnection, topic: str) -> None:
    publish(blue, topic)
    async with open_stream(blue, subscription(topic)) as stream:
        first = await stream.next_batch(10, wait_seconds=10)
        assert await first.acknowledge()
        await stream.next_batch(5, wait_seconds=10)
    async with open_stream(blue, subscription(topic)) as stream:
        again = await stream.next_batch(100, wait_seconds=10)
    assert [message.content for message in again.messages] == [str(number).encode() for number in range(10, MESSAGES)]


async def test_a_message_that_comes_after_the_end_of_a_wait_is_not_lost(blue: ClusterConnection, topic: str) -> None:
    async with open_stream(blue, subscription(topic)) as stream:
        assert await stream.next_batch(10, wait_seconds=0.2) is None
        await asyncio.to_thread(publish, blue, topic, 3)
        received = []
        while len(received) < 3:
            received += (await stream.next_batch(10, wait_seconds=10)).messages
    assert [message.content for message in received] == [b"0", b"1", b"2"]


@pytest.mark.long
async def test_a_hundred_consumers_need_no_more_threads_than_one(blue: ClusterConnection, topic: str) -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    async with shared_client(blue), open_stream(blue, subscription(topic)) as stream:
        await stream.next_batch(1, wait_seconds=0.1)
        with_one = threads()
        running = [asyncio.create_task(_consume(blue, topic)) for _ in range(100)]
        await asyncio.sleep(5)
        hundred = threads()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert hundred <= with_one, threading.enumerate()


async def _consume(cluster: ClusterConnection, topic: str) -> None:
    async with open_stream(cluster, subscription(topic)) as stream:
        await stream.next_batch(1)


@pytest.mark.parametrize("keys", [(None,), ("a", "b", "c", "d"), (None, "a", None, "b", "c")])
async def test_a_retry_stores_each_message_of_partitions_once(
    blue: ClusterConnection, deduplicated: TopicName, keys: tuple[str | None, ...]
) -> None:
    messages = [
        clients.OutgoingMessage(content=str(number).encode(), key=keys[number % len(keys)]) for number in range(60)
    ]
    for number in (40, 60, 60):
        await clients.publish(blue, str(deduplicated), messages[:number], producer_name="dag/run/task/-1")
    stored = await _stored(blue, deduplicated)
    assert stored == Counter(message.content for message in messages)


async def test_a_retry_loses_nothing_when_partitions_were_added(
    blue: ClusterConnection, on_blue: AdminClient, deduplicated: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [clients.OutgoingMessage(content=str(number).encode(), key="acd"[number % 3]) for number in range(60)]
    attempt = partial(clients.publish, blue, str(deduplicated), messages, producer_name="dag/run/task/-1")
    send = Producer.send

    async def send_to_others(producer: Producer, *content: Any, partition_key: str, **options: Any) -> Any:
        # Of three partitions the one of this key is away; of five it has the one that stored key `a` before.
        if partition_key == "c":
            await asyncio.sleep(1)
            raise PulsarException(pulsar.Result.Timeout)
        return await send(producer, *content, partition_key=partition_key, **options)

    with monkeypatch.context() as first_try:
        first_try.setattr(Producer, "send", send_to_others)
        with pytest.raises(Unavailable):
            await attempt()
    await on_blue.post(f"/{deduplicated.path}/partitions", 5)
    await attempt()
    assert set(await _stored(blue, deduplicated)) == {message.content for message in messages}


async def _stored(cluster: ClusterConnection, topic: TopicName) -> Counter[bytes]:
    async with open_stream(cluster, subscription(str(topic))) as stream:
        stored: Counter[bytes] = Counter()
        while batch := await stream.next_batch(1000, wait_seconds=2):
            stored.update(message.content for message in batch.messages)
    return stored


@pytest.fixture
def consume(blue: ClusterConnection, topic: str, monkeypatch: pytest.MonkeyPatch) -> PulsarConsumeOperator:
    """A task that defers until the topic has a message for it."""
    document = {"conn_type": "pulsar", "host": blue.admin_url, "extra": {"service_url": blue.service_url}}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_DEFAULT", json.dumps(document))
    with DAG("deferring", schedule=None):
        return PulsarConsumeOperator(
            task_id="consume",
            topic=topic,
            subscription="airflow",
            process=len,
            wait_seconds=1,
            deferrable=True,
        )


def resumed(operator: PulsarConsumeOperator) -> dict[str, Any]:
    """What the task returns at its end, as Airflow runs it: a trigger after each deferral."""
    step = partial(operator.execute, CONTEXT)
    while True:
        try:
            return step()
        except TaskDeferred as deferred:
            event = asyncio.run(_fired(deferred.trigger))
            step = partial(getattr(operator, deferred.method_name), CONTEXT, event)


async def _fired(trigger: Any) -> dict[str, Any]:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    events = getattr(import_module(module), name)(**{**arguments, "poll_seconds": 0.2}).run()
    try:
        return (await asyncio.wait_for(anext(events), 40)).payload
    finally:
        await events.aclose()


def test_a_task_waits_for_a_delayed_message(blue: ClusterConnection, topic: str, consume: Any) -> None:
    began = time.monotonic()
    publish(blue, topic, 1, deliver_after=timedelta(seconds=6))
    assert resumed(consume)["messages"] == 1
    assert time.monotonic() - began >= 6


def test_a_task_waits_for_a_message_that_another_holds(blue: ClusterConnection, topic: str, consume: Any) -> None:
    publish(blue, topic, 1)
    with closing(open_client(blue)) as client:
        options = {"consumer_type": pulsar.ConsumerType.Shared, "initial_position": pulsar.InitialPosition.Earliest}
        other = client.subscribe(topic, "airflow", **options)
        other.receive(timeout_millis=10_000)
        release = threading.Timer(6, other.close)
        release.start()
        assert resumed(consume)["messages"] == 1
        release.join()


async def test_a_missing_namespace_is_named(blue: ClusterConnection) -> None:
    with pytest.raises((NotFound, Unavailable), match="persistent://no-such/namespace/topic"):
        async with open_stream(blue, subscription("persistent://no-such/namespace/topic")):
            pass


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "sharred"}, "did you mean 'shared'"),
        ({"name": ""}, "The setting 'subscription' is empty"),
        ({"initial_position": "first"}, "initial_position 'first' is unknown"),
    ],
)
def test_an_invalid_subscription_is_refused_before_anything_is_connected(
    settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        Subscription(**{"topic": "persistent://a/b/c", "name": "airflow", **settings})


@pytest.mark.long
async def test_the_trigger_acknowledges_what_it_fired(
    blue: ClusterConnection, topic: str, on_blue: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"service_url": blue.service_url}
    monkeypatch.setenv(
        "AIRFLOW_CONN_PULSAR_BLUE", json.dumps({"conn_type": "pulsar", "host": blue.admin_url, "extra": extra})
    )
    publish(blue, topic, 3)
    trigger = PulsarMessageTrigger(
        topic=topic, subscription="airflow", pulsar_conn_id="pulsar_blue", initial_position="earliest", max_messages=2
    )
    events = trigger.run()
    payloads = [(await anext(events)).payload["messages"] for _ in range(2)]
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(5)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [[message["content"] for message in messages] for messages in payloads] == [["0", "1"], ["2"]]
    async with open_stream(blue, subscription(topic)) as stream:
        assert await stream.next_batch(10, wait_seconds=1) is None
