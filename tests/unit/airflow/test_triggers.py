"""Triggers survive the way through Airflow's database."""

from __future__ import annotations

from importlib import import_module

import pytest
from airflow.triggers.base import BaseTrigger

from pulsar_fleet.airflow.triggers.conditions import ConditionTrigger
from pulsar_fleet.airflow.triggers.migration import MigrationTrigger, Milestone
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.airflow.triggers.replication import BacklogSentTrigger

MIGRATION = {"blue": "b", "green": "g", "moves": {"uri": "m"}, "run_id": "r", "poll_seconds": 5, "end": 9.0}
LINKS = {"connections": {"clusters": ["b"]}, "planned": {}, "run_id": "r", "poll_seconds": 5, "until": 8.0, "end": 9.0}
CONDITION = {"condition": "C", "settings": {"topic": "t"}, "pulsar_conn_id": "p", "poll_seconds": 5.0, "end": 9.0}


@pytest.mark.parametrize(
    "trigger",
    [
        MigrationTrigger(milestone=Milestone.DRAINED.value, **MIGRATION),
        ConditionTrigger(**CONDITION),
        MomentTrigger(moment=8.0, end=9.0),
        BacklogSentTrigger(**LINKS),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_a_trigger_is_rebuilt_from_what_it_serialises(trigger: BaseTrigger) -> None:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    rebuilt = getattr(import_module(module), name)(**arguments)
    assert rebuilt.serialize() == (path, arguments)
