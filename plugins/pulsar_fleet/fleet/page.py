"""The Fleet page: what to do now, clusters, namespaces, conflicts, runs; everything is escaped (pure)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.fleet.actions import Situation, Step, StepLink, actions_of, reports_of, shown_steps
from pulsar_fleet.fleet.layout import (
    FLEET,
    PHASES,
    REPLICATOR_STATES,
    RUN_STATES,
    VERDICTS,
    Frame,
    Links,
    Part,
    age,
    part_of,
    render,
)
from pulsar_fleet.fleet.prepared_run import Errand, may_complete, may_return
from pulsar_fleet.fleet.records import ClusterState, NamespaceRecords, NamespaceState, OpenConflict, Returns
from pulsar_fleet.ledger.cluster_notes import ClusterNote, NoteKind
from pulsar_fleet.ledger.ledger import MIGRATIONS
from pulsar_fleet.ledger.rows import RecordedRun, utc


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


PAGE_SIZE = 100
_RECENT_SECONDS, _MOST_HOSTS = 60.0, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Which namespaces are shown.

    :param number: of the page, from 1.
    :param live: see `Frame`.
    """

    name: str = ""
    phase: str = ""
    number: int = 1
    live: bool = False

    def select(self, namespaces: Sequence[NamespaceState]) -> Part:
        """The namespaces of this page."""
        matching = [row for row in namespaces if self.name in row.namespace and self.phase in ("", row.phase)]
        return part_of(matching, self.number, PAGE_SIZE)


def fleet_page(now: Situation, records: Mapping[str, NamespaceRecords], links: Links, view: View) -> str:
    """The page as HTML.

    :param now: with the reports of those runs that `linked_runs` names.
    :param records: of the namespaces that `view` selects.
    """
    state, reports = now.state, now.reports
    actions, shown = actions_of(now, links), view.select(state.namespaces)
    query: dict[str, str | int] = {"name": view.name, "phase": view.phase, "page": view.number}
    frame = Frame(here=FLEET, links=links, read_at=state.read_at, query=query, live=view.live)
    clusters = cluster_rows(now, links)
    return render(
        "fleet.html",
        frame,
        f"{counted(len(clusters), 'cluster')}, {counted(len(state.namespaces), 'namespace')}.",
        headline=f"Now: {counted(len(actions), 'thing')} to do" if actions else "Now: nothing to do",
        actions=[(row.text, shown_steps(row.steps, links, now.visitor, reports)) for row in actions],
        clusters=clusters,
        columns=COLUMNS,
        namespaces=[_namespace(row, records[row.namespace], state.read_at, links, reports) for row in shown.rows],
        shown=f"{len(shown.rows):,} of {counted(shown.matching, 'namespace')}",
        pages=list(shown.numbers(frame)),
        name=view.name,
        phase=view.phase,
        phases=sorted({row.phase for row in state.namespaces if row.phase}),
        groups=[_group(one, now, links) for one in now.groups],
        conflicts=[_conflict(row, now, links) for row in state.conflicts],
        runs=[_run(row, links, reports) for row in state.newest_runs],
    )


def linked_runs(now: Situation, links: Links, view: View) -> frozenset[str]:
    """The runs whose reports the page would link."""
    rows = view.select(now.state.namespaces).rows
    runs = (
        *reports_of(actions_of(now, links)),
        *(row.run_id for row in now.state.newest_runs),
        *(row.verdict_run for row in rows),
    )
    return frozenset(run for run in runs if run)


def _namespace(
    row: NamespaceState, newest: NamespaceRecords, now: datetime, links: Links, reports: Collection[str]
) -> dict[str, Any]:
    phase, phase_css = PHASES.get(row.phase, ("…", "open")) if row.phase else ("", "")
    verdict, verdict_css = VERDICTS.get(row.verdict, ("✗", "bad")) if row.verdict else ("", "")
    records = [("migration", links.migration(newest.phase_run))] if newest.phase_run else []
    records += [("proof", links.report(row.verdict_run))] if row.verdict_run in reports else []
    return {
        "namespace": row.namespace,
        "phase": f"{phase} {row.phase}",
        "phase_css": phase_css,
        "phase_age": age(newest.phase_at, now),
        "verdict": f"{verdict} {row.verdict}",
        "verdict_css": verdict_css,
        "messages": f"{newest.messages:,}" if row.verdict else "",
        "verdict_age": age(newest.verdict_at, now),
        "links": records,
    }


def _group(group: Followed, now: Situation, links: Links) -> dict[str, Any]:
    published, at = group.published, now.state.read_at
    recent = [reader for reader in group.readers if at.timestamp() - reader.at < _RECENT_SECONDS]
    hosts = listed((reader.host for reader in recent), _MOST_HOSTS)
    steps: list[Step] = []
    if not group.is_final:
        steps.append(Step(label="Move the clients back", prepares=(Errand.RETURN, published.run)))
    if may_complete(published.run) and not group.is_complete:
        steps.append(Step(label="Complete the move", prepares=(Errand.COMPLETE, published.run)))
    return {
        "name": published.group,
        "cluster": published.cluster,
        "url": published.document.service_url,
        "age": age(datetime.fromisoformat(published.at), at),
        "version": published.version,
        "by": published.by,
        "read": f"{counted(len(recent), 'host')}: {hosts}" if recent else "",
        "namespaces": ", ".join(published.namespaces),
        "back": _return_cell(group, now.returns, at),
        "steps": shown_steps(steps if may_return(published.run) else [], links, now.visitor),
    }


def _return_cell(group: Followed, returns: Returns, now: datetime) -> dict[str, str]:
    """Whether a group can return, what the cluster that it left lacks, and when that was read."""
    if not group.can_return:
        text = "no: a migration has completed the move" if group.is_final and group.is_away else ""
        return {"text": text, "css": "quiet", "age": ""}
    if group.published.run not in returns:
        name = f"{group.published.cluster} and {group.origin}"
        return {"text": f"? not known: let watch_replication read {name}", "css": "open", "age": ""}
    state, at = returns[group.published.run]
    row = state.replicators
    symbol, css = REPLICATOR_STATES[row.worst]
    lacking = f"{row.target} lacks {counted(row.backlog, 'entry')}"
    return {"text": f"{symbol} {row.worst.value}; {lacking}", "css": css, "age": f"{age(at, now)} ago"}


def _conflict(row: OpenConflict, now: Situation, links: Links) -> dict[str, Any]:
    sides = [(cluster, json.dumps(value, sort_keys=True)) for cluster, value in sorted(row.sides.items())]
    others = [
        Step(label=f"value of {cluster}", prepares=(Errand.SETTLE, f"{row.id}={cluster}"))
        for cluster, _ in sides
        if cluster != row.winner
    ]
    return {
        "resource": row.resource,
        "field": row.field,
        "winner": row.winner,
        "sides": sides,
        "age": age(row.at, now.state.read_at),
        "id": row.id,
        "steps": shown_steps(others, links, now.visitor),
    }


def _run(row: RecordedRun, links: Links, reports: Collection[str]) -> dict[str, str]:
    symbol, css = RUN_STATES.get(row.state, ("…", "open"))
    return {
        "began": f"{utc(row.started_at):%Y-%m-%d %H:%M:%S} UTC",
        "run_id": row.run_id,
        "state": f"{symbol} {row.state}",
        "css": css,
        "airflow": links.run(row.run_id),
        "migration": links.migration(row.run_id) if row.procedure in MIGRATIONS else "",
        "report": links.report(row.run_id) if row.run_id in reports else "",
        "evidence": links.evidence(row.run_id),
    }
