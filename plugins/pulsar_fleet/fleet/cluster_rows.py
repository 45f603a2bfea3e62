"""A row of figures for each cluster, each with its age (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.fleet.actions import Situation, Step, StepLink, shown_steps
from pulsar_fleet.fleet.layout import Links, age
from pulsar_fleet.fleet.prepared_run import Errand
from pulsar_fleet.fleet.records import ClusterState
from pulsar_fleet.ledger.cluster_notes import ClusterNote, NoteKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A text, the class of its colour, and how old it is."""

    text: str = ""
    age: str = ""
    css: str = ""
    steps: tuple[StepLink, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """What the page shows of a cluster."""

    name: str
    figures: tuple[Figure, ...]


_NEVER = Figure(text="never", css="quiet")
COLUMNS = ("State", "Versions and brokers", "Snapshot", "Drift", "Last proof", "Last scan")


def cluster_rows(now: Situation, links: Links) -> list[ClusterRow]:
    """Every cluster that anything is recorded of, by name."""
    states = {row.name: row for row in now.state.clusters}
    return [_row(states.get(name) or ClusterState(name=name), now, links) for name in sorted({*states, *now.notes})]


def _row(state: ClusterState, now: Situation, links: Links) -> ClusterRow:
    notes, at = now.notes.get(state.name, {}), now.state.read_at
    drift = notes.get(NoteKind.DRIFT)
    scanned = Figure(age=age(state.scanned_at, at)) if state.scanned_at else _NEVER
    figures = (
        _state(state, drift, at),
        *_snapshot(notes.get(NoteKind.SNAPSHOT), at),
        _drift(drift, now, links),
        _proof(notes.get(NoteKind.PROOF), at),
        scanned,
    )
    return ClusterRow(name=state.name, figures=figures)


def _state(state: ClusterState, drift: ClusterNote | None, now: datetime) -> Figure:
    if state.outage_since:
        return Figure(text=f"✗ unreachable since {age(state.outage_since, now)}", css="bad")
    if drift and (last_seen := drift.figures.get("unreachable")):
        return Figure(text=f"✗ did not answer the last reconciliation, {last_seen}", css="bad", age=_age(drift, now))
    if state.scanned_at:
        return Figure(text="✓ answered the last scan", css="good")
    return Figure(text="? not watched", css="quiet")


def _snapshot(note: ClusterNote | None, now: datetime) -> tuple[Figure, Figure]:
    """Versions and brokers, then the snapshot that they are from."""
    if note is None:
        return Figure(text="? unknown", css="quiet"), _NEVER
    versions = ", ".join(map(str, note.figures["versions"])) or "?"
    brokers = Figure(text=f"{versions}, {counted(int(note.figures['brokers']), 'broker')}", age=_age(note, now))
    if note.figures["complete"]:
        return brokers, Figure(age=_age(note, now))
    return brokers, Figure(text="▲ incomplete", css="open", age=_age(note, now))


def _drift(note: ClusterNote | None, now: Situation, links: Links) -> Figure:
    if note is None or "unreachable" in note.figures:
        return Figure(text="? unknown", css="quiet")
    old = _age(note, now.state.read_at)
    changes, fields = int(note.figures["changes"]), int(note.figures["fields"])
    if changes:
        step = Step(label="Repair", prepares=(Errand.REPAIR, note.run_id))
        steps = tuple(shown_steps([step], links, now.visitor))
        return Figure(text=f"≠ {counted(changes, 'change')} to write", css="open", age=old, steps=steps)
    if fields:
        return Figure(text=f"≠ {counted(fields, 'field')} in its fleet", css="open", age=old)
    return Figure(text="✓ none", css="good", age=old)


def _proof(note: ClusterNote | None, now: datetime) -> Figure:
    if note is None:
        return _NEVER
    equal, namespaces = int(note.figures["equal"]), int(note.figures["namespaces"])
    symbol, css = ("✓", "good") if equal == namespaces else ("✗", "bad")
    text = f"{symbol} {equal:,} of {counted(namespaces, 'namespace')} equal with {note.figures['with']}"
    return Figure(text=text, css=css, age=_age(note, now))


def _age(note: ClusterNote, now: datetime) -> str:
    return age(datetime.fromtimestamp(note.at, UTC), now)
