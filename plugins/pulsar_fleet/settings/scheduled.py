"""Settings and schedule of a scheduled DAG, from an environment variable: its runs have no form."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_fleet.settings.environment import read_object
from pulsar_fleet.settings.setting import Setting, Settings, refuse_unknown_settings, with_defaults


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

    def schedule(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The schedule of the DAG; null in the variable turns it off."""
        schedule: str | None = self._read(environment).get("schedule", self.every)
        return schedule

    def _read(self, environment: Mapping[str, str]) -> dict[str, Any]:
        given = read_object(environment, self.variable, example='{"schedule": "*/10 * * * *"}')
        refuse_unknown_settings(given, [*self.declared, "schedule"])
        return given
