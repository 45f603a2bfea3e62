"""Settings of an installation, from environment variables: the DAG files read nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import did_you_mean


def read_object(environment: Mapping[str, str], variable: str, *, example: str) -> dict[str, Any]:
    """The JSON object of a variable; empty where it is not set.

    :param example: a valid value, for the error's text.
    :raises InvalidRequest: it is not valid JSON, or not an object.
    """
    text = environment.get(variable)
    if not text:
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{variable} is not valid JSON: {error}.") from error
    if not isinstance(given, dict):
        raise InvalidRequest(f"{variable} is not a JSON object: write it as {example}.")
    return given


def require_known(given: Mapping[str, object], known: Collection[str], variable: str, *, example: str) -> None:
    """Refuse by `InvalidRequest` a key that is not known, with the nearest one."""
    for key in sorted({*given} - {*known}):
        hint = did_you_mean(key, sorted(known), f"write it as {example}.")
        raise InvalidRequest(f"Unknown key {key!r} in {variable}; {hint}")
