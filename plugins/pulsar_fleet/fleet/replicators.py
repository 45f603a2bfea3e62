"""The page of the newest examinations of replicators that `watch_replication` stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from pulsar_fleet.cluster.text import counted, duration, listed
from pulsar_fleet.fleet.layout import REPLICATOR_STATES, REPLICATORS, Frame, Links, age, part_of, render
from pulsar_fleet.fleet.records import WatchedFleet
from pulsar_fleet.replication.doctor.model import (
    Diagnosis,
    LinkState,
    ReplicatorState,
    Severity,
    State,
)

PAGE_SIZE = 100
_MOST_DIAGNOSES = 100
_SEVERITIES = {Severity.FAULT: ("✗", "bad"), Severity.WARNING: ("▲", "open"), Severity.INFO: ("i", "quiet")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorsView:
    """Which replicators are shown.

    :param number: of the page, from 1.
    :param live: see `Frame`.
    """

    number: int = 1
    live: bool = False


def replicators_page(
    watched: Sequence[WatchedFleet], now: datetime, links: Links, view: ReplicatorsView, reports: Collection[str]
) -> str:
    """The page as HTML.

    :param reports: the runs of `watched` that stored a report.
    """
    frame = Frame(here=REPLICATORS, links=links, read_at=now, query={"page": view.number}, live=view.live)
    rows = [(fleet, row) for fleet in watched for row in fleet.examination.replicators]
    part = part_of(rows, view.number, PAGE_SIZE)
    diagnoses = [(fleet, row) for fleet in watched for row in fleet.examination.diagnoses]
    diagnoses.sort(key=lambda pair: list(Severity).index(pair[1].severity))
    return render(
        "replicators.html",
        frame,
        _summary(watched),
        fleets=[_fleet(fleet, now, links, reports) for fleet in watched],
        connections=[_link(fleet, row, now) for fleet in watched for row in fleet.examination.links],
        diagnoses=[_diagnosis(row, age(fleet.read_at, now)) for fleet, row in diagnoses[:_MOST_DIAGNOSES]],
        more=f"{len(diagnoses) - _MOST_DIAGNOSES:,} more" if len(diagnoses) > _MOST_DIAGNOSES else "",
        replicators=[_replicator(row, age(fleet.read_at, now)) for fleet, row in part.rows],
        shown=f"{len(part.rows):,} of {counted(part.matching, 'replicator')} that are not healthy",
        pages=list(part.numbers(frame)),
    )


def _summary(watched: Sequence[WatchedFleet]) -> str:
    rows = [row for fleet in watched for row in fleet.examination.links]
    clusters = {name for fleet in watched for name in fleet.examination.clusters}
    faults = sum(row.worst.is_fault for row in rows)
    broken = f", {faults:,} with a replicator that does not work" if faults else ""
    return f"{counted(len(clusters), 'cluster')}, {counted(len(rows), 'link')}{broken}."


def _fleet(fleet: WatchedFleet, now: datetime, links: Links, reports: Collection[str]) -> dict[str, str]:
    outages = (f"✗ {name}: {reason}" for name, reason in sorted(fleet.examination.outages.items()))
    return {
        "clusters": ", ".join(fleet.examination.clusters),
        "selection": ", ".join(fleet.selection) or "everything",
        "outages": "; ".join(outages) or "✓ all answered",
        "css": "bad" if fleet.examination.outages else "good",
        "age": f"{age(fleet.read_at, now)} ago",
        "report": links.report(fleet.run_id) if fleet.run_id in reports else "",
        "run": links.run(fleet.run_id),
    }


def _link(fleet: WatchedFleet, row: LinkState, now: datetime) -> dict[str, str]:
    symbol, css = REPLICATOR_STATES[row.worst]
    counts = (f"{row.counts[state.value]:,} {state.value}" for state in State if row.counts.get(state.value))
    return {
        "name": f"{row.source} → {row.target}",
        "state": f"{symbol} {row.worst.value}",
        "css": css,
        "counts": ", ".join(counts),
        "backlog": f"{row.backlog:,}",
        "delay": duration(row.delay_seconds) if row.backlog else "none",
        "rate": f"{row.per_second:,.1f}",
        "catch_up": _catch_up(row.backlog, row.catch_up_seconds),
        "causes": listed(_causes(fleet, row)),
        "age": f"{age(fleet.read_at, now)} ago",
    }


def _catch_up(backlog: int, seconds: float | None) -> str:
    if not backlog and seconds is not None:
        return "caught up"
    return "does not catch up" if seconds is None else duration(seconds)


def _causes(fleet: WatchedFleet, row: LinkState) -> list[str]:
    """The ids of the diagnoses of a link, faults first."""
    ends = (row.source, row.target)
    explained = (
        cause
        for replicator in fleet.examination.replicators
        if (replicator.source, replicator.target) == ends
        for cause in replicator.causes
    )
    named = (found.id for found in fleet.examination.diagnoses if (found.source, found.target) == ends)
    return list(dict.fromkeys([*explained, *named]))


def _diagnosis(row: Diagnosis, ago: str) -> dict[str, str | list[str]]:
    symbol, css = _SEVERITIES[row.severity]
    return {
        "name": f"{symbol} {row.severity.value}",
        "css": css,
        "id": row.id,
        "where": f"{row.source} → {row.target} {row.resource}",
        "evidence": row.evidence,
        "consequence": row.consequence,
        "remedy": row.remedy,
        "calls": [call.text() for call in row.calls],
        "age": f"{ago} ago",
    }


def _replicator(row: ReplicatorState, ago: str) -> dict[str, str]:
    symbol, css = REPLICATOR_STATES[row.state]
    return {
        "name": row.key,
        "state": f"{symbol} {row.state.value}",
        "css": css,
        "backlog": f"{row.backlog:,}",
        "delay": duration(row.delay_seconds) if row.backlog else "none",
        "rate": f"{row.per_second:,.1f}",
        "catch_up": _catch_up(row.backlog, row.forecast_seconds),
        "causes": ", ".join(row.causes) or "none",
        "age": f"{ago} ago",
    }
