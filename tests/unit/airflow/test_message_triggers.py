"""Triggers of messages refuse unclear settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

from pulsar_fleet.airflow.queues.pulsar import PulsarMessageQueueProvider
from pulsar_fleet.airflow.triggers import messages
from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger
from pulsar_fleet.cluster.errors import InvalidRequest

TOPIC = {"topic": "persistent://a/b/c", "subscription": "airflow"}


def test_the_scheme_pulsar_is_this_trigger() -> None:
    assert PulsarMessageQueueProvider().scheme_matches("pulsar")
    assert MessageQueueTrigger(scheme="pulsar", **TOPIC).serialize() == PulsarMessageTrigger(**TOPIC).serialize()


@pytest.mark.parametrize("queue", ["persistent://a/b/c", "non-persistent://a/b/c"])
@pytest.mark.parametrize("settings", [{}, {"topic": "persistent://a/b/c"}])
def test_a_queue_is_the_name_of_a_topic(queue: str, settings: dict[str, str]) -> None:
    settings = {**settings, "topic": queue} if settings else {}
    with pytest.warns(AirflowProviderDeprecationWarning, match="`queue` parameter"):
        trigger = MessageQueueTrigger(queue=queue, subscription="airflow", **settings)
    assert trigger.serialize() == PulsarMessageTrigger(topic=queue, subscription="airflow").serialize()


@pytest.mark.parametrize(
    ("queue", "settings", "sentence"),
    [
        ("pulsar://blue:6650", {}, "write queue='persistent://tenant/namespace/topic'"),
        ("persistent://a/b", {}, "write queue='persistent://tenant/namespace/topic'"),
        ("persistent://a/b/c", {"topic": "persistent://a/b/d"}, "other topics: give one of them"),
    ],
)
def test_a_queue_that_names_no_topic_is_refused(queue: str, settings: dict[str, str], sentence: str) -> None:
    with (
        pytest.warns(AirflowProviderDeprecationWarning, match="`queue` parameter"),
        pytest.raises(InvalidRequest, match=sentence),
    ):
        MessageQueueTrigger(queue=queue, subscription="airflow", **settings).serialize()


def test_a_queue_of_another_provider_is_left_to_it() -> None:
    assert not PulsarMessageQueueProvider().queue_matches("kafka://broker:9092/topic")


def test_a_trigger_takes_the_queue_of_triggerers() -> None:
    trigger = PulsarMessageTrigger(**TOPIC, queue="network-a")
    assert trigger.queue == "network-a"
    assert "queue" not in trigger.serialize()[1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"subscription": ""}, "The setting 'subscription' is empty"),
        ({"subscription_type": "sharred"}, "did you mean 'shared'"),
        ({"max_messages": 0}, "max_messages is 0; set it to 1 to 1,000"),
        ({"interval_seconds": -1}, "interval_seconds is -1; set it to 0 or more"),
    ],
)
def test_unclear_settings_are_refused_when_the_file_is_parsed(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        PulsarMessageTrigger(**{**TOPIC, **settings})


async def test_messages_are_acknowledged_after_their_event_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def note(what: str) -> None:
        done.append(what)

    monkeypatch.setattr(messages, "until_persisted", lambda: note("stored"))
    batch: Any = SimpleNamespace(acknowledge=lambda: note("acknowledged"))
    await messages._acknowledge_stored(batch)
    assert done == ["stored", "acknowledged"]
