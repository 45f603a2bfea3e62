"""Defaults of a DAG that runs by itself, from one variable of the environment: nobody fills in its form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from pulsar_fleet.airflow.conf import refuse_unknown_settings
from pulsar_fleet.cluster.errors import InvalidRequest


def defaults_from(variable: str, params: Mapping[str, Param], environment: Mapping[str, str]) -> dict[str, Param]:
    """The form, with the defaults that the variable gives; one that cannot be meant is `InvalidRequest`."""
    given = {key: value for key, value in _given(variable, params, environment).items() if key != "schedule"}
    return {
        name: Param(given[name], description=param.description, **param.schema) if name in given else param
        for name, param in params.items()
    }


def schedule_from(
    variable: str, params: Mapping[str, Param], environment: Mapping[str, str], default: str
) -> str | None:
    """How often it runs; null in the variable for never by itself."""
    found: str | None = _given(variable, params, environment).get("schedule", default)
    return found


def _given(variable: str, params: Mapping[str, Param], environment: Mapping[str, str]) -> dict[str, Any]:
    text = environment.get(variable)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{variable} is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise InvalidRequest(f'{variable} is no JSON object: write it as {{"schedule": "*/10 * * * *"}}.')
    refuse_unknown_settings(found, [*params, "schedule"])
    return found
