"""How long tasks may last, from an environment variable: the DAG files read nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import did_you_mean

VARIABLE = "PULSAR_FLEET_CAPACITY"
_EXAMPLE = '{"minutes": {"step": 480, "spark": 2880}}'


class Kind(StrEnum):
    """What a task does."""

    STEP = "step"
    SPARK = "spark"


MINUTES: Mapping[Kind, float] = {Kind.STEP: 240, Kind.SPARK: 1440}
"""Kind of task → how long one may last, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the tasks of an installation may take.

    :param minutes: kind of task → how long one may last, instead of the default.
    """

    minutes: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Capacity:
        """The value of the variable; `InvalidRequest` for one that cannot be used."""
        text = environment.get(VARIABLE)
        if not text:
            return cls()
        try:
            given = json.loads(text)
        except ValueError as error:
            raise InvalidRequest(f"{VARIABLE} is not valid JSON: {error}.") from error
        if not isinstance(given, dict) or not all(isinstance(part, dict) for part in given.values()):
            raise InvalidRequest(f"{VARIABLE} is not a JSON object of objects: write it as {_EXAMPLE}.")
        _require_known(given, cls.__dataclass_fields__)
        for part in given.values():
            _require_known(part, Kind)
        capacity = cls(**given)
        for kind, minutes in capacity.minutes.items():
            if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes < 1:
                raise InvalidRequest(f"The minutes of {kind} in {VARIABLE} are {minutes!r}: write 1 or more, as 480.")
        return capacity

    def task_limit(self, kind: Kind, own: float | None = None) -> timedelta:
        """How long a task may last.

        :param own: minutes of its step, which the variable can raise and not lower.
        """
        given = self.minutes.get(kind)
        return timedelta(minutes=max(own, given or 0) if own else given or MINUTES[kind])

    def run_limit(self, kind: Kind) -> timedelta:
        """How long a run may last whose longest task is of this kind: one that lasts longer waits for what does not
        come, such as a worker, and a scheduled run would hold up all later ones."""
        return 2 * self.task_limit(kind)


def _require_known(given: Mapping[str, object], known: Mapping[str, object] | type[Kind]) -> None:
    for key in sorted({*given} - {*known}):
        hint = did_you_mean(key, sorted(map(str, known)), f"write it as {_EXAMPLE}.")
        raise InvalidRequest(f"Unknown key {key!r} in {VARIABLE}; {hint}")
