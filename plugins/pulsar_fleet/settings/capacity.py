"""How long tasks may last, and how many at once, from an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.settings.scheduled import read_object, require_known

VARIABLE = "PULSAR_FLEET_CAPACITY"
_EXAMPLE = (
    '{"minutes": {"step": 480, "spark": 2880}, "pools": {"step": "pulsar_fleet_clusters", "spark": '
    '"pulsar_fleet_spark"}, "jobs_per_run": 4}'
)


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
    :param pools: kind of task → the pool of Airflow that it takes a slot of; by default that of all tasks. One that
        does not exist is never run: Airflow only warns.
    :param jobs_per_run: Spark jobs that a run has at once.
    """

    minutes: Mapping[str, float] = field(default_factory=dict)
    pools: Mapping[str, str] = field(default_factory=dict)
    jobs_per_run: int = 4

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Capacity:
        """The value of the variable; `InvalidRequest` for one that cannot be used."""
        given = read_object(environment, VARIABLE, example=_EXAMPLE)
        require_known(given, [*cls.__dataclass_fields__], VARIABLE, example=_EXAMPLE)
        capacity = cls(**given)
        capacity._require_valid()
        return capacity

    def _require_valid(self) -> None:
        for part in (self.minutes, self.pools):
            if not isinstance(part, dict):
                raise InvalidRequest(f"The minutes and the pools of {VARIABLE} are objects: write it as {_EXAMPLE}.")
            require_known(part, [*map(str, Kind)], VARIABLE, example=_EXAMPLE)
        for kind, minutes in self.minutes.items():
            if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes < 1:
                raise InvalidRequest(f"The minutes of {kind} in {VARIABLE} are {minutes!r}: write 1 or more, as 480.")
        for kind, pool in self.pools.items():
            if not isinstance(pool, str) or not pool:
                raise InvalidRequest(f"The pool of {kind} in {VARIABLE} is {pool!r}: write the name of a pool.")
        jobs = self.jobs_per_run
        if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
            raise InvalidRequest(f"jobs_per_run in {VARIABLE} is {jobs!r}: write an integer, 1 or more.")

    def task_limit(self, kind: Kind) -> timedelta:
        """How long a task may last."""
        return timedelta(minutes=self.minutes.get(kind) or MINUTES[kind])

    def run_limit(self, kind: Kind) -> timedelta:
        """How long a run may last whose longest task is of this kind: one that lasts longer waits for what does not
        come, such as a worker, and a scheduled run would hold up all later ones."""
        return 2 * self.task_limit(kind)
