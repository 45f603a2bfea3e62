"""How long tasks may last comes from one environment variable, and a mistake in it says what to write."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.settings.capacity import MINUTES, VARIABLE, Capacity, Kind


def read(text: str) -> Capacity:
    return Capacity.read({VARIABLE: text})


def test_without_the_variable_the_defaults_hold() -> None:
    assert {kind: Capacity.read({}).task_limit(kind) for kind in Kind} == {
        kind: timedelta(minutes=minutes) for kind, minutes in MINUTES.items()
    }


def test_the_variable_raises_also_the_limit_that_a_step_has_of_its_own() -> None:
    raised = read('{"minutes": {"step": 30}}')
    limits = [raised.task_limit(Kind.STEP, own).total_seconds() / 60 for own in (None, 20, 40)]
    assert limits == [30, 30, 40]
    assert raised.task_limit(Kind.SPARK) == timedelta(minutes=MINUTES[Kind.SPARK])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a JSON object of objects"),
        ('{"minutes": 5}', "is not a JSON object of objects"),
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
