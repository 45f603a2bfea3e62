"""Defaults and schedule of a scheduled DAG, from an environment variable: its runs have no form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from pulsar_fleet.airflow.conf import refuse_unknown_settings
from pulsar_fleet.cluster.errors import InvalidRequest


def defaults_from(variable: str, params: Mapping[str, Param], environment: Mapping[str, str]) -> dict[str, Param]:
    """The form, with the defaults of the variable; an invalid default raises `InvalidRequest`."""
    defaults = {key: value for key, value in _settings(variable, params, environment).items() if key != "schedule"}
    return {
        name: Param(defaults[name], description=param.description, **param.schema) if name in defaults else param
        for name, param in params.items()
    }


def schedule_from(
    variable: str, params: Mapping[str, Param], environment: Mapping[str, str], default: str
) -> str | None:
    """The schedule of the DAG; null in the variable turns it off."""
    schedule: str | None = _settings(variable, params, environment).get("schedule", default)
    return schedule


def _settings(variable: str, params: Mapping[str, Param], environment: Mapping[str, str]) -> dict[str, Any]:
    text = environment.get(variable)
    if not text:
        return {}
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{variable} is not valid JSON: {error}.") from error
    if not isinstance(settings, dict):
        raise InvalidRequest(f'{variable} is not a JSON object: write it as {{"schedule": "*/10 * * * *"}}.')
    refuse_unknown_settings(settings, [*params, "schedule"])
    return settings
