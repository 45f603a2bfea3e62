"""The Fleet page: what to do now, clusters, namespaces, conflicts, runs; everything is escaped (pure)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.fleet.actions import Action, Approval, actions_of
from pulsar_fleet.fleet.records import ClusterState, FleetState, NamespaceRecords, NamespaceState, OpenConflict
from pulsar_fleet.ledger.rows import RecordedRun, utc

PAGE_SIZE = 100
REFRESH_SECONDS = 15
_PHASES = {
    **dict.fromkeys(("finished", "verified", "cleaned"), ("✓", "good")),
    "incomplete": ("✗", "bad"),
    "aborted": ("↩", "open"),
}
_STATES = {"succeeded": ("✓", "good"), "failed": ("✗", "bad"), "undone": ("↩", "open"), "running": ("…", "open")}
_VERDICTS = {"equal": ("✓", "good"), "inconclusive": ("?", "open")}
_COMMAND_LINE = "cli/"


@dataclass(frozen=True, slots=True)
class Links:
    """Where the pages of a run are.

    :param base: the path under which the pages are served.
    :param airflow: the path of Airflow itself.
    """

    base: str
    airflow: str = ""

    def report(self, run_id: str) -> str:
        """The report of a run."""
        return f"{self.base}/report?{urlencode({'run': run_id})}"

    def evidence(self, run_id: str) -> str:
        """The evidence of a run."""
        return f"{self.base}/evidence?{urlencode({'run': run_id})}"

    def audit(self) -> str:
        """The check of the audit chain."""
        return f"{self.base}/audit"

    def run(self, run_id: str) -> str:
        """The run in Airflow; empty for a run of the command line."""
        dag_id, _, dag_run = run_id.partition("/")
        if run_id.startswith(_COMMAND_LINE) or not dag_run:
            return ""
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}/runs/{quote(dag_run, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The namespaces of one page, of how many that match, and the numbers of this page and the last one."""

    rows: tuple[NamespaceState, ...]
    matching: int
    number: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Which namespaces are shown.

    :param number: of the page, from 1.
    """

    name: str = ""
    phase: str = ""
    number: int = 1

    def select(self, namespaces: Sequence[NamespaceState]) -> Shown:
        """The namespaces of this page."""
        matching = [row for row in namespaces if self.name in row.namespace and self.phase in ("", row.phase)]
        last = max(1, -(-len(matching) // PAGE_SIZE))
        number = min(max(self.number, 1), last)
        rows = tuple(matching[(number - 1) * PAGE_SIZE : number * PAGE_SIZE])
        return Shown(rows=rows, matching=len(matching), number=number, last=last)

    def query(self, number: int) -> str:
        """The query of another page with the same filter."""
        return "?" + urlencode({"name": self.name, "phase": self.phase, "page": number})


def fleet_page(
    state: FleetState,
    records: Mapping[str, NamespaceRecords],
    approvals: Sequence[Approval],
    links: Links,
    view: View,
    reports: Collection[str],
) -> str:
    """The page as HTML.

    :param records: of the namespaces that `view` selects.
    :param reports: the runs that stored a report, of those that `linked_runs` names.
    """
    actions, shown = actions_of(state, approvals), view.select(state.namespaces)
    page: str = _template().render(
        refresh=REFRESH_SECONDS,
        read_at=f"{state.read_at:%Y-%m-%d %H:%M:%S} UTC",
        summary=f"{counted(len(state.clusters), 'cluster')}, {counted(len(state.namespaces), 'namespace')}.",
        headline=f"Now: {counted(len(actions), 'thing')} to do" if actions else "Now: nothing to do",
        actions=[(action, _action_link(action, links, reports)) for action in actions],
        links=links,
        clusters=[_cluster(row, state.read_at) for row in state.clusters],
        namespaces=[_namespace(row, records[row.namespace], state.read_at, links, reports) for row in shown.rows],
        shown=f"{len(shown.rows):,} of {counted(shown.matching, 'namespace')}",
        pages=list(_pages(shown.number, shown.last, view)),
        name=view.name,
        phase=view.phase,
        phases=sorted({row.phase for row in state.namespaces if row.phase}),
        conflicts=[_conflict(row, state.read_at) for row in state.conflicts],
        runs=[_run(row, links, reports) for row in state.newest_runs],
    )
    return page


def linked_runs(
    state: FleetState, records: Mapping[str, NamespaceRecords], approvals: Sequence[Approval], view: View
) -> frozenset[str]:
    """The runs whose reports the page would link."""
    rows = view.select(state.namespaces).rows
    runs = (
        *(action.run_id for action in actions_of(state, approvals)),
        *(row.run_id for row in state.newest_runs),
        *(records[row.namespace].phase_run for row in rows),
        *(row.verdict_run for row in rows),
    )
    return frozenset(run for run in runs if run)


def _action_link(action: Action, links: Links, reports: Collection[str]) -> str:
    return action.link or (links.report(action.run_id) if action.run_id in reports else "")


def _pages(number: int, last: int, view: View) -> Iterator[tuple[int, str]]:
    """The first and last pages and those beside the shown one, with links."""
    near = {1, 2, last - 1, last, *range(number - 2, number + 3)}
    yield from ((page, "" if page == number else view.query(page)) for page in sorted(near) if 1 <= page <= last)


def _cluster(row: ClusterState, now: datetime) -> dict[str, str]:
    outage = f"✗ unreachable since {_age(row.outage_since, now)}" if row.outage_since else ""
    return {
        "name": row.name,
        "state": outage or "✓ answered the last scan",
        "css": "bad" if outage else "good",
        "scanned": f"{_age(row.scanned_at, now)} ago" if row.scanned_at else "never",
    }


def _namespace(
    row: NamespaceState, newest: NamespaceRecords, now: datetime, links: Links, reports: Collection[str]
) -> dict[str, Any]:
    phase, phase_css = _PHASES.get(row.phase, ("…", "open")) if row.phase else ("", "")
    verdict, verdict_css = _VERDICTS.get(row.verdict, ("✗", "bad")) if row.verdict else ("", "")
    runs = (("migration", newest.phase_run), ("proof", row.verdict_run))
    return {
        "namespace": row.namespace,
        "phase": f"{phase} {row.phase}",
        "phase_css": phase_css,
        "phase_age": _age(newest.phase_at, now),
        "verdict": f"{verdict} {row.verdict}",
        "verdict_css": verdict_css,
        "messages": f"{newest.messages:,}" if row.verdict else "",
        "verdict_age": _age(newest.verdict_at, now),
        "links": [(label, links.report(run)) for label, run in runs if run in reports],
    }


def _conflict(row: OpenConflict, now: datetime) -> dict[str, Any]:
    sides = [(cluster, json.dumps(value, sort_keys=True)) for cluster, value in sorted(row.sides.items())]
    return {
        "resource": row.resource,
        "field": row.field,
        "winner": row.winner,
        "sides": sides,
        "age": _age(row.at, now),
        "id": row.id,
    }


def _run(row: RecordedRun, links: Links, reports: Collection[str]) -> dict[str, str]:
    symbol, css = _STATES.get(row.state, ("…", "open"))
    return {
        "began": f"{utc(row.started_at):%Y-%m-%d %H:%M:%S} UTC",
        "run_id": row.run_id,
        "state": f"{symbol} {row.state}",
        "css": css,
        "airflow": links.run(row.run_id),
        "report": links.report(row.run_id) if row.run_id in reports else "",
        "evidence": links.evidence(row.run_id),
    }


def _age(time: datetime | None, now: datetime) -> str:
    return duration(max(0.0, (now - time).total_seconds())) if time else ""


@cache
def _template() -> Any:
    loader = PackageLoader("pulsar_fleet.fleet")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("fleet.html")
