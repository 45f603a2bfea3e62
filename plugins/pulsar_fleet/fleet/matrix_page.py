"""The page of namespaces × clusters: on which clusters a namespace is the same, differs or is missing (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.fleet.layout import MATRIX, Frame, Links, Part, age, part_of, render
from pulsar_fleet.fleet.matrix import Cell, CellState
from pulsar_fleet.fleet.records import ClusterState

PAGE_SIZE = 50
_SYMBOLS = {
    CellState.SAME: ("✓", "good"),
    CellState.DIFFERS: ("≠", "open"),
    CellState.CONFLICT: ("⚡", "bad"),
    CellState.MISSING: ("○", "bad"),
}
_UNKNOWN = ("? unknown", "quiet")
LEGEND = (
    "✓ same: as on most clusters. ≠ fields: so many have another value than on most clusters. ⚡ conflict: edited "
    "differently on several clusters, see the conflicts on record. ○ missing: other clusters of its fleet have it. "
    "? unknown: neither a reconciliation nor metadata events have read it there."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixView:
    """Which namespaces are shown.

    :param differences: only those that are not the same on all their clusters.
    :param number: of the page, from 1.
    :param live: see `Frame`.
    """

    name: str = ""
    differences: bool = False
    number: int = 1
    live: bool = False

    def select(self, names: Sequence[str]) -> Part:
        """The namespaces of this page."""
        return part_of([name for name in names if self.name in name], self.number, PAGE_SIZE)


def matrix_page(
    clusters: Sequence[ClusterState],
    names: Sequence[str],
    cells: Mapping[str, Mapping[str, Cell]],
    now: datetime,
    links: Links,
    view: MatrixView,
) -> str:
    """The page as HTML.

    :param names: all, or with `view.differences` those that differ.
    :param cells: of the namespaces that `view` selects.
    """
    query: dict[str, str | int] = {
        "name": view.name,
        "differences": int(view.differences),
        "page": view.number,
    }
    frame, part = Frame(here=MATRIX, links=links, read_at=now, query=query, live=view.live), view.select(names)
    known = {cluster for row in cells.values() for cluster in row}
    states = {row.name: row for row in clusters}
    columns = sorted({*states, *known})
    return render(
        "matrix.html",
        frame,
        f"{counted(len(columns), 'cluster')}, {counted(len(names), 'namespace')}"
        f"{' that differ' if view.differences else ''}.",
        columns=[_column(name, states.get(name), now) for name in columns],
        rows=[(name, [_cell(cells.get(name, {}).get(column)) for column in columns]) for name in part.rows],
        shown=f"{len(part.rows):,} of {counted(part.matching, 'namespace')}",
        pages=list(part.numbers(frame)),
        name=view.name,
        differences=view.differences,
        legend=LEGEND,
    )


def _column(name: str, state: ClusterState | None, now: datetime) -> dict[str, str]:
    if state is not None and state.outage_since:
        return {"name": name, "state": f"✗ unreachable since {age(state.outage_since, now)}", "css": "bad"}
    scanned = age(state.scanned_at, now) if state else ""
    return {"name": name, "state": f"read {scanned} ago" if scanned else "? never read", "css": "quiet"}


def _cell(cell: Cell | None) -> tuple[str, str]:
    """Text and class of colour."""
    if cell is None:
        return _UNKNOWN
    symbol, css = _SYMBOLS[cell.state]
    if cell.state is CellState.DIFFERS:
        return f"{symbol} {counted(cell.fields, 'field')}", css
    return f"{symbol} {cell.state.value}", css
