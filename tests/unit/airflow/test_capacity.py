"""How long tasks may last comes from one environment variable, and a mistake in it says what to write."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from pulsar_fleet.airflow.run import run_until_limit
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.settings.capacity import MINUTES, VARIABLE, Capacity, Kind

REPOSITORY = Path(__file__).parents[3]


def read(text: str) -> Capacity:
    return Capacity.read({VARIABLE: text})


def test_without_the_variable_the_defaults_hold() -> None:
    assert {kind: Capacity.read({}).task_limit(kind) for kind in Kind} == {
        kind: timedelta(minutes=minutes) for kind, minutes in MINUTES.items()
    }


def test_the_variable_has_the_limit_of_one_kind_of_task() -> None:
    raised = read('{"minutes": {"step": 30}}')
    assert raised.task_limit(Kind.STEP) == timedelta(minutes=30)
    assert raised.task_limit(Kind.SPARK) == timedelta(minutes=MINUTES[Kind.SPARK])


def test_the_pools_that_compose_names_are_made_before_airflow_starts() -> None:
    services = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())["services"]
    named = Capacity.read(services["scheduler"]["environment"]).pools
    assert {*named} == {*Kind}
    assert {*re.findall(r"airflow pools set (\S+) \d+ ", services["airflow-init"]["command"][-1])} == {*named.values()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a JSON object: write it as"),
        ('{"minutes": 5}', "The minutes and the pools of PULSAR_FLEET_CAPACITY are objects: write it as"),
        ('{"pools": {"spark": ""}}', "The pool of spark in PULSAR_FLEET_CAPACITY is '': write the name of a pool."),
        ('{"jobs_per_run": 0}', "jobs_per_run in PULSAR_FLEET_CAPACITY is 0: write an integer, 1 or more."),
        ('{"minute": {}}', "Unknown key 'minute' in PULSAR_FLEET_CAPACITY; did you mean 'minutes'?"),
        ('{"minutes": {"sparks": 5}}', "Unknown key 'sparks' in PULSAR_FLEET_CAPACITY; did you mean 'spark'?"),
        ('{"minutes": {"step": "5"}}', "The minutes of step in PULSAR_FLEET_CAPACITY are '5': write 1 or more"),
        ('{"minutes": {"step": 0}}', "are 0: write 1 or more"),
    ],
)
def test_a_value_that_cannot_be_used_says_what_to_write(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        read(text)
    assert said in str(error.value)


@dataclass
class Begun:
    """A task that has a limit of two seconds, and began some seconds ago."""

    ago: float
    task_id: str = "copy"
    execution_timeout: timedelta = timedelta(seconds=2)
    killed: bool = False

    def __post_init__(self) -> None:
        self._fleet_began = time.monotonic() - self.ago

    def on_kill(self) -> None:
        self.killed = True


def test_a_limit_counts_from_the_begin_of_the_task() -> None:
    fresh, late = Begun(0), Begun(0.95)
    run_until_limit(fresh, asyncio.sleep(0.2))
    with pytest.raises(AirflowTaskTimeout):
        run_until_limit(late, asyncio.sleep(0.2))
    assert (fresh.killed, late.killed) == (False, True)
