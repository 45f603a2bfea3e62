"""What the ledger keeps, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pulsar_fleet.cluster.json import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run as it was asked for, and how it ended: `running`, `succeeded`, `failed` or `undone`."""

    run_id: str
    procedure: str
    conf: JsonObject
    state: str

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to be done."""
        return self.state in ("succeeded", "undone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A write that is about to be made, kept before it is sent: a process that dies cannot hide what it did.

    :param kind: of the resource; `name` and `field` tell which one and what in it.
    """

    change_id: str
    cluster: str
    kind: str
    name: str
    field: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """One write to a cluster, or the reason why it was not made."""

    change_id: str
    cluster: str
    resource: str
    action: str
    hazard: str
    before: Json
    after: Json
    outcome: str
    detail: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChange:
    """A change with what became of it, to be recorded."""

    change_id: str
    cluster: str
    resource: str
    action: str
    hazard: str
    before: Json
    after: Json
    outcome: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedPhase:
    """A namespace entered a phase."""

    namespace: str
    phase: str
    detail: Json
    at: datetime


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """What a verification found for one scope, such as a namespace."""

    run_id: str
    scope: str
    verdict: str
    messages: int
    summary: str
    artefact: JsonObject | None
    at: datetime
