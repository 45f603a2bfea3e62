"""What a Spark job may take is in the extra of its connection, and a mistake in it says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.airflow.operators.spark import read_resources
from pulsar_fleet.cluster.errors import PreconditionFailed


def test_without_extra_only_the_driver_has_a_memory() -> None:
    assert read_resources("spark", {"deploy-mode": "client", "num-executors": ""}) == {
        "driver_memory": "1g",
        "conf": {},
    }


def test_numbers_may_be_texts_as_the_form_stores_them() -> None:
    assert read_resources("spark", {"total-executor-cores": "8", "driver-memory": "512m"}) == {
        "driver_memory": "512m",
        "conf": {},
        "total_executor_cores": "8",
    }


@pytest.mark.parametrize(
    "extra", [{"driver-memory": "2"}, {"executor-cores": 0}, {"num-executors": "many"}, {"conf": "spark.ui.port=1"}]
)
def test_a_value_that_cannot_be_used_is_named(extra: dict[str, Any]) -> None:
    ((name, value),) = extra.items()
    with pytest.raises(PreconditionFailed) as error:
        read_resources("spark", extra)
    assert f"The extra of the Spark connection 'spark' has {name!r}: {value!r}. Write it as " in str(error.value)
