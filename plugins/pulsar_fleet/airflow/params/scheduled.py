"""Defaults and schedule of a scheduled DAG, from an environment variable: its runs have no form."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param

from pulsar_fleet.airflow.conf import refuse_unknown_settings
from pulsar_fleet.cluster.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Form and schedule of a DAG; each method raises `InvalidRequest` for settings that are invalid.

    :param variable: environment variable, a JSON object: settings by name, and `schedule`.
    :param every: the schedule without the variable.
    """

    variable: str
    every: str
    settings: Mapping[str, Param]

    def params(self, environment: Mapping[str, str] = os.environ) -> dict[str, Param]:
        """The form, with the defaults of the variable."""
        defaults = self._read(environment)
        return {
            name: Param(defaults[name], description=param.description, **param.schema) if name in defaults else param
            for name, param in self.settings.items()
        }

    def schedule(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The schedule of the DAG; null in the variable turns it off."""
        schedule: str | None = self._read(environment).get("schedule", self.every)
        return schedule

    def _read(self, environment: Mapping[str, str]) -> dict[str, Any]:
        text = environment.get(self.variable)
        if not text:
            return {}
        try:
            settings = json.loads(text)
        except ValueError as error:
            raise InvalidRequest(f"{self.variable} is not valid JSON: {error}.") from error
        if not isinstance(settings, dict):
            raise InvalidRequest(f'{self.variable} is not a JSON object: write it as {{"schedule": "*/10 * * * *"}}.')
        refuse_unknown_settings(settings, [*self.settings, "schedule"])
        return settings
