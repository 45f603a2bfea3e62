"""What runs of the doctor stored, and what changed since the last examination of the same clusters."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.model import Examination, State
from pulsar_fleet.replication.doctor.remedies import RemedyResult
from pulsar_fleet.replication.doctor.text import UNCHANGED

_EXAMINATION = "examination.json"
_REMEDY = "remedy.json"


def store_examination(run: Run, examination: Examination) -> Reference:
    """Store the examination of a run; a second call replaces it, and what an earlier try has healed."""
    if run.stored(_REMEDY):
        run.artefacts.write_json(run.id, _REMEDY, None)
    return run.artefacts.write_json(run.id, _EXAMINATION, examination.to_json())


def store_remedy(run: Run, result: RemedyResult) -> None:
    """Store what was sent, with the examinations before and after; a second call replaces it."""
    run.artefacts.write_json(run.id, _REMEDY, result.to_json())


def last_examination(run: Run) -> tuple[Examination, str] | None:
    """The last examination of a run and what was changed before it, as a sentence; None before the first."""
    if remedy := run.stored(_REMEDY):
        result = RemedyResult.from_json(remedy)
        return result.after, result.changed()
    stored = run.stored(_EXAMINATION)
    return (Examination.from_json(stored), UNCHANGED) if stored else None


_STATES = "watch_replication/states"
"""The run under which the last states of each selection of clusters are stored."""
CHANGES = "changes.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange(Document):
    """A replicator whose state changed.

    :param replicator: `blue → green persistent://acme/orders/events`.
    """

    source: str
    replicator: str
    before: State
    after: State

    def text(self) -> str:
        """`blue → green persistent://acme/orders/events: healthy → stalled`."""
        return f"{self.replicator}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanges(Document):
    """The changes that a run recorded."""

    changes: tuple[StateChange, ...]


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[StateChange, ...]:
    """The replicators with another state; those that neither has are healthy."""
    names = sorted({*before, *after})
    states = ((name, State(before.get(name, State.HEALTHY)), State(after.get(name, State.HEALTHY))) for name in names)
    return tuple(
        StateChange(source=name.partition(" ")[0], replicator=name, before=old, after=new)
        for name, old, new in states
        if old is not new
    )


def recorded_changes(run: Run) -> tuple[StateChange, ...] | None:
    """The changes that a run recorded; None before."""
    stored = run.stored(CHANGES)
    return StateChanges.from_json(stored).changes if stored else None


def record_states(run: Run, examination: Examination, selection: Collection[str]) -> tuple[StateChange, ...]:
    """Store the states for the next run, and return what changed since the last one with these clusters.

    A second call by the same run returns the same changes: a task that is tried again announces none twice, and loses
    none.
    """
    if (recorded := recorded_changes(run)) is not None:
        return recorded
    fleet = "\n".join([*examination.clusters, "", *sorted(selection)])
    name = f"{hashlib.sha256(fleet.encode()).hexdigest()[:16]}.json"
    reference = run.artefacts.find(_STATES, name)
    before = run.artefacts.read_json(reference) if reference else {}
    after = {row.key: row.state.value for row in examination.replicators}
    changes = changes_between(before, after)
    run.artefacts.write_json(run.id, CHANGES, StateChanges(changes=changes).to_json())
    run.artefacts.write_json(_STATES, name, after)
    return changes
