"""Triggers of messages and conditions survive the way through Airflow's database, and refuse unclear settings."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.airflow.conditions import BacklogCondition, arguments_of
from pulsar_fleet.airflow.queues.pulsar import PulsarMessageQueueProvider
from pulsar_fleet.airflow.triggers import messages
from pulsar_fleet.airflow.triggers.conditions import ConditionTrigger
from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger
from pulsar_fleet.cluster.errors import InvalidRequest

TOPIC = {"topic": "persistent://a/b/c", "subscription": "airflow"}


@pytest.mark.parametrize(
    "trigger",
    [
        PulsarMessageTrigger(**TOPIC, subscription_type="failover", max_messages=7, interval_seconds=0),
        ConditionTrigger(
            **arguments_of(BacklogCondition(**TOPIC, at_most=3)), pulsar_conn_id="pulsar_blue", poll_seconds=30
        ),
    ],
)
def test_a_trigger_is_rebuilt_from_what_it_serialises(trigger: Any) -> None:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    rebuilt = getattr(import_module(module), name)(**arguments)
    assert rebuilt.serialize() == (path, arguments)


def test_the_scheme_pulsar_is_this_trigger() -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    assert PulsarMessageQueueProvider().scheme_matches("pulsar")
    assert MessageQueueTrigger(scheme="pulsar", **TOPIC).serialize() == PulsarMessageTrigger(**TOPIC).serialize()


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
