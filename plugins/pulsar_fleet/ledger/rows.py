"""The rows of the ledger as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.json import Json, JsonObject

PROVEN = frozenset({"equal", "repeated", "copied", "drained"})
"""Verdicts after which no message of a namespace is on one cluster only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """The request of a run, when it began, and its state: `running`, `succeeded`, `failed` or `undone`.

    :param requested_by: the user who asked for it, or what started it; None of a run of an earlier release, or of one
        that another run recorded below its name.
    """

    run_id: str
    procedure: str
    conf: JsonObject
    started_at: datetime
    state: str
    requested_by: str | None = None

    @property
    def over(self) -> bool:
        """Whether the run has no more work to do."""
        return self.state in ("succeeded", "undone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A write that is recorded before it is sent, so that the ledger also shows the writes of a killed process.

    :param kind: kind of the resource; `name` is its name, `field` the changed part of it.
    """

    change_id: str
    cluster: str
    kind: str
    name: str
    field: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChange:
    """A change and its outcome, to be recorded."""

    change_id: str
    cluster: str
    resource: str
    action: str
    hazard: str
    before: Json
    after: Json
    outcome: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange(NewChange):
    """One write to a cluster, or the reason why it was skipped, as the ledger has it."""

    at: datetime


@dataclass(frozen=True, slots=True)
class RecordedPhase:
    """A namespace entered a phase."""

    namespace: str
    phase: str
    detail: Json
    at: datetime


@dataclass(frozen=True, slots=True)
class RecordedFact:
    """What is known of a run besides its writes.

    :param kind: `approval`, `reports` or `outcome`.
    """

    kind: str
    content: JsonObject
    at: datetime


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """The verdict of a verification for one scope, such as a namespace."""

    run_id: str
    scope: str
    verdict: str
    messages: int
    summary: str
    artefact: JsonObject | None
    at: datetime


def utc(time: datetime) -> datetime:
    """A time of the ledger with its zone, which SQLite drops: the ledger stores UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)
