"""What changed since the last examination of the same clusters (client of the artefact store)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.model import Examination, State

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
