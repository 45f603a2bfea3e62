"""The Fleet page: what to do now, clusters, namespaces, conflicts, runs; everything is escaped (pure)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.fleet.actions import Situation, Step, actions_of, reports_of, shown_steps
from pulsar_fleet.fleet.cluster_rows import COLUMNS, cluster_rows
from pulsar_fleet.fleet.layout import FLEET, Frame, Links, Part, age, part_of, render
from pulsar_fleet.fleet.prepared_run import Errand
from pulsar_fleet.fleet.records import NamespaceRecords, NamespaceState, OpenConflict
from pulsar_fleet.fleet.states import PHASES, RUN_STATES, VERDICTS
from pulsar_fleet.ledger.ledger import MIGRATIONS
from pulsar_fleet.ledger.rows import RecordedRun, utc

PAGE_SIZE = 100


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
