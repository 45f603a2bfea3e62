"""The reader of the hook on a real broker: every message from a start to the end, and no trace on the broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Timer

import pytest

from pulsar_fleet.airflow import PulsarHook
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName

pytestmark = pytest.mark.versions

CONTENTS = [str(number).encode() for number in range(25)]


@pytest.fixture
async def topic(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName], make_namespace: Callable[..., object]
) -> TopicName:
    """A topic without messages."""
    namespace = new_namespace()
    await make_namespace(on_blue, namespace)
    return TopicName(namespace, "orders")


@pytest.fixture
def hook(blue: ClusterConnection, monkeypatch: pytest.MonkeyPatch) -> PulsarHook:
    """The hook of a connection to blue."""
    document = {"conn_type": "pulsar", "host": blue.admin_url, "extra": {"service_url": blue.service_url}}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_DEFAULT", json.dumps(document))
    return PulsarHook()


def read(hook: PulsarHook, topic: TopicName, **settings: object) -> list[bytes]:
    with hook.reader(str(topic), **settings) as messages:  # type: ignore[arg-type]
        return [message.content for message in messages]


def test_a_reader_gives_every_message_each_time(hook: PulsarHook, topic: TopicName) -> None:
    hook.publish(str(topic), CONTENTS)
    assert [read(hook, topic), read(hook, topic)] == [CONTENTS, CONTENTS]


def test_a_reader_begins_after_a_message_in_its_batch(hook: PulsarHook, topic: TopicName) -> None:
    hook.publish(str(topic), CONTENTS)
    with hook.reader(str(topic)) as messages:
        tenth = [next(messages) for _ in range(10)][-1]
    assert read(hook, topic, start=tenth.message_id) == CONTENTS[10:]


def test_a_reader_waits_at_the_end_for_as_long_as_it_is_told(hook: PulsarHook, topic: TopicName) -> None:
    hook.publish(str(topic), CONTENTS)
    later = Timer(1, lambda: hook.publish(str(topic), ["later"]))
    with hook.reader(str(topic), start="latest", wait_seconds=5) as messages:
        later.start()
        assert [message.content for message in messages] == [b"later"]
    later.join()


async def test_a_reader_leaves_no_subscription(hook: PulsarHook, topic: TopicName, on_blue: AdminClient) -> None:
    await on_blue.create_topic(topic)
    with hook.reader(str(topic)) as messages:
        assert list(messages) == []
        assert len(await on_blue.get(f"/{topic.path}/subscriptions")) == 1
    assert await on_blue.get(f"/{topic.path}/subscriptions") == []


@pytest.fixture
async def partitioned(topic: TopicName, on_blue: AdminClient) -> TopicName:
    """The topic with three partitions."""
    await on_blue.create_partitioned_topic(topic, 3)
    return topic


def test_all_partitions_are_read(hook: PulsarHook, partitioned: TopicName) -> None:
    for content in CONTENTS:
        hook.publish(str(partitioned), [content])
    assert sorted(read(hook, partitioned)) == sorted(CONTENTS)
    with hook.reader(str(partitioned)) as messages:
        first = next(messages)
    with pytest.raises(InvalidRequest, match=r"is a message of a partition: read .*-partition-… instead"):
        read(hook, partitioned, start=first.message_id)
    own = TopicName.parse(first.topic)
    assert read(hook, own, start=first.message_id) == read(hook, own)[1:]


def test_an_unknown_start_and_an_unknown_namespace_are_named(hook: PulsarHook, topic: TopicName) -> None:
    with pytest.raises(InvalidRequest, match="start 'begin' is unknown: use earliest, latest or the message_id"):
        read(hook, topic, start="begin")
    with pytest.raises(NotFound, match="nowhere"):
        read(hook, TopicName(NamespaceName("nowhere", "here"), "t"))
