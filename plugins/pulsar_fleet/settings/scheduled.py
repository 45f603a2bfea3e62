"""Settings from environment variables: of an installation, and of scheduled DAGs, whose runs have no form."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_fleet.cluster.document import parse_json
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import did_you_mean
from pulsar_fleet.settings.setting import Setting, Settings, refuse_unknown_settings, with_defaults


def read_object(environment: Mapping[str, str], variable: str, *, example: str) -> dict[str, Any]:
    """The JSON object of a variable; empty where it is not set.

    :param example: a valid value, for the error's text.
    :raises InvalidRequest: it is not valid JSON, or not an object.
    """
    text = environment.get(variable)
    if not text:
        return {}
    given = parse_json(text, variable)
    if not isinstance(given, dict):
        raise InvalidRequest(f"{variable} is not a JSON object: write it as {example}.")
    return given


def require_known(given: Mapping[str, object], known: Collection[str], variable: str, *, example: str) -> None:
    """Refuse by `InvalidRequest` a key that is not known, with the nearest one."""
    for key in sorted({*given} - {*known}):
        hint = did_you_mean(key, sorted(known), f"write it as {example}.")
        raise InvalidRequest(f"Unknown key {key!r} in {variable}; {hint}")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Settings and schedule of a DAG; each method raises `InvalidRequest` for settings that are invalid.

    :param variable: environment variable, a JSON object: settings by name, and `schedule`.
    :param every: the schedule without the variable.
    :param declared: the settings with the defaults of the product.
    """

    variable: str
    every: str
    declared: Settings

    def settings(self, environment: Mapping[str, str] = os.environ) -> dict[str, Setting]:
        """The settings, with the defaults of the variable."""
        settings = with_defaults(self.declared, self._read(environment))
        return {name: setting.optional() for name, setting in settings.items()}

    def unnamed(self, what: str) -> str:
        """Why a run has nothing to do for which nothing is named, such as `No cluster is watched`, and what to do."""
        return f"{what}: name connections in {self.variable}, or in the form."

    def idle_without_clusters(self, what: str) -> Callable[[JsonObject], str]:
        """`idle` of a procedure that does nothing in a run without clusters."""
        return lambda conf: "" if conf["clusters"] else self.unnamed(what)

    def require_cluster(self, conf: JsonObject) -> None:
        """Refuse a run that names namespaces and no cluster by `InvalidRequest`."""
        if conf["namespaces"] and not conf["cluster"]:
            raise InvalidRequest(f"No connection is named: set 'cluster' in {self.variable}, or in the form.")

    def idle_without_namespaces(self, what: str) -> Callable[[JsonObject], str]:
        """The same of a procedure whose runs name read-only namespaces, such as `No namespace is watched`."""
        text = f"{what}: name read-only namespaces in {self.variable}, or in the form."
        return lambda conf: "" if conf["namespaces"] else text

    def schedule(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The schedule of the DAG; null in the variable turns it off."""
        schedule: str | None = self._read(environment).get("schedule", self.every)
        return schedule

    def _read(self, environment: Mapping[str, str]) -> dict[str, Any]:
        given = read_object(environment, self.variable, example='{"schedule": "*/10 * * * *"}')
        refuse_unknown_settings(given, [*self.declared, "schedule"])
        return given
