"""The settings of a migration and of a failback: defaults and limits, for the form and for the terminal (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject

QUIESCE_SECONDS = 0.2
"""After it each partition is polled until its publishes are stored; longer only adds to the publish pause."""

SPARK_ABOVE_ENTRIES = 1_000_000
"""Entries of both clusters up to which a proof is read by the task itself, without a Spark job."""

LIMITS: Mapping[str, tuple[float, float | None]] = {
    "wave_namespaces": (1, 500),
    "wave_topics": (1, None),
    "wave": (1, None),
    "quiesce_seconds": (QUIESCE_SECONDS, 5),
    "proof_max_age_minutes": (1, 10080),
    "spark_above_entries": (0, None),
    "max_bytes_per_second": (1, None),
    "drain_timeout_minutes": (1, 10080),
    "repoint_timeout_minutes": (1, 40320),
}
"""Setting → its smallest and its largest value, None without an upper limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The settings that both procedures have.

    :param blue: the cluster that the namespaces leave in a migration, as the operator named it; `green` the other.
    :param strategy: a value of `Strategy` for all namespaces, or `auto`.
    :param waivers: documents that `Waiver.parse` reads.
    :param unload_terminated_topics: at the end, where the brokers redirect clients of unloaded topics without waiting.
    """

    blue: str
    green: str
    namespaces: Sequence[str]
    strategy: str = "auto"
    waivers: Sequence[JsonObject] = ()
    quiesce_seconds: float = QUIESCE_SECONDS
    proof_max_age_minutes: int = 240
    spark_above_entries: int = SPARK_ABOVE_ENTRIES
    max_bytes_per_second: int | None = None
    drain_timeout_minutes: int = 60
    unload_terminated_topics: bool = True
    dry_run: bool = False

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> Self:
        """The settings of a run's configuration; a missing one has its default, a value out of range is refused."""
        request = cls(**{field.name: conf[field.name] for field in fields(cls) if field.name in conf})
        for name, (low, high) in LIMITS.items():
            value = getattr(request, name, None)
            if value is None:
                continue
            if value < low or (high is not None and value > high):
                upper = "" if high is None else f" and at most {high}"
                raise InvalidRequest(f"{name!r} is {value}: set it to at least {low}{upper}.")
        return request


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRequest(Request):
    """The settings of a migration.

    :param group: the applications that `replicate_then_move_clients` moves by their connection document; else None.
    :param continues: the run whose plan of waves this run continues; `wave` is the number of its wave in that plan.
    """

    wave_namespaces: int = 20
    wave_topics: int = 1000
    next_waves: bool = True
    change_windows: Sequence[str] = ()
    freeze_windows: Sequence[str] = ()
    repoint_timeout_minutes: int = 1440
    individually_acknowledged: str = "carry"
    delete_inactive_topics_on_blue: bool = False
    remove_topics_on_blue: bool = False
    group: str | None = None
    continues: str | None = None
    wave: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackRequest(Request):
    """The settings of a failback.

    :param allow_removal: the topics that the migration terminated on blue may be removed.
    """

    allow_removal: bool = False


DEFAULTS: Mapping[str, Any] = {
    field.name: list(field.default) if field.default == () else field.default
    for request in (MigrationRequest, FailbackRequest)
    for field in fields(request)
    if field.name not in ("blue", "green", "namespaces")
}
"""Setting → its default, lists as JSON has them."""
