"""Whom a failed or a late run of a DAG is told to, from an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.settings.scheduled import read_object, require_known

VARIABLE = "PULSAR_FLEET_ALERTS"
_EXAMPLE = (
    '{"callback": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "arguments": {"to": "…"}, '
    '"deadlines": {"migrate_namespaces": 600}}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """What happens when a run fails or is late.

    :param callback: path of a notifier's class or of a function, such as `company.alerts.Pager`; empty: nothing.
    :param arguments: of the notifier, or named ones of the function beside Airflow's context.
    :param deadlines: DAG → minutes from the moment when a run is queued to the one at which it should have ended.
    """

    callback: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deadlines: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Alerts:
        """The value of the variable; `InvalidRequest` for one that cannot be used."""
        if not environment.get(VARIABLE):
            return cls()
        given = read_object(environment, VARIABLE, example=_EXAMPLE)
        require_known(given, [*cls.__dataclass_fields__], VARIABLE, example=_EXAMPLE)
        alerts = cls(**given)
        alerts._require_valid()
        return alerts

    def _require_valid(self) -> None:
        if not isinstance(self.callback, str) or not self.callback.rpartition(".")[0]:
            raise InvalidRequest(f"{VARIABLE} names no callback by its path: write it as {_EXAMPLE}.")
        if not isinstance(self.arguments, dict) or not isinstance(self.deadlines, dict):
            raise InvalidRequest(f"The arguments and the deadlines of {VARIABLE} are objects: write it as {_EXAMPLE}.")
        for dag_id, minutes in self.deadlines.items():
            if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
                raise InvalidRequest(f"The deadline of {dag_id} in {VARIABLE} is {minutes!r}: write minutes, as 600.")
