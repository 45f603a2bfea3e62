"""Namespaces × clusters: what the ledger has of each namespace on each cluster, and the page that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.fleet.layout import MATRIX, Frame, Links, Part, age, part_of, render
from pulsar_fleet.fleet.records import ClusterState
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.ledger.tables import conflicts, merge_bases, observations, resource_versions

_NAMESPACE = "namespace"
_EXISTS = ""
"""The field of a namespace for its existence, in the versions of metadata events."""


class CellState(StrEnum):
    """What a namespace is on a cluster, compared with the other clusters."""

    SAME = "same"
    DIFFERS = "differs"
    CONFLICT = "conflict"
    """Differently edited on several clusters; nobody has settled it."""
    MISSING = "missing"


class Cell(NamedTuple):
    """A namespace on a cluster.

    :param fields: how many fields have another value than on most clusters.
    """

    state: CellState
    fields: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What one fleet of a reconciliation, or one event topic, has of a namespace.

    :param digests: cluster → field → digest of its value.
    :param gone: the clusters that had it and have it no longer.
    :param clusters: all of the fleet, where that is known.
    :param newest: when it was written last, seconds since 1970.
    """

    digests: Mapping[str, Mapping[str, str]]
    gone: Collection[str]
    clusters: Collection[str]
    newest: float


def read_namespace_names(ledger: Ledger) -> list[str]:
    """Every namespace that a cluster has or had, by name: two queries."""
    with ledger.engine.connect() as connection:
        names = {
            name
            for table in (observations, resource_versions)
            for name in connection.scalars(sa.select(table.c.name).where(table.c.kind == _NAMESPACE).distinct())
        }
    return sorted(names)


def read_differing_names(ledger: Ledger) -> list[str]:
    """Every namespace that is not the same on all its clusters, by name: four queries, and no document is read.

    A namespace without a digest of its fields, which no run has read since an older release, is among them.
    """
    observed, events = observations.c, resource_versions.c
    with ledger.engine.connect() as connection:
        newest: dict[str, tuple[float, bool]] = {}
        for row in connection.execute(_groups(observed.fleet, observed.observed_at)):
            differs = row.least != row.most or row.digests != row.rows or row.rows != row.owner.count("+") + 1
            newest[row.name] = max(newest.get(row.name, (0.0, False)), (float(row.newest), differs))
        for row in connection.execute(_groups(events.topic, events.at)):
            state = utc(row.newest).timestamp(), row.least != row.most or row.digests != row.rows
            newest[row.name] = max(newest.get(row.name, (0.0, False)), state)
        named = {name for name, (_, differs) in newest.items() if differs}
        return sorted(named | {*connection.scalars(_gone_names())} | {*connection.scalars(_disputed_names())})


def _groups(owner: sa.Column[Any], at: sa.Column[Any]) -> sa.Select[Any]:
    """For each namespace of a fleet or an event topic, its clusters and digests; read from an index alone."""
    table = owner.table.c
    return (
        sa.select(
            table.name,
            owner.label("owner"),
            sa.func.count().label("rows"),
            sa.func.count(table.digest).label("digests"),
            sa.func.min(table.digest).label("least"),
            sa.func.max(table.digest).label("most"),
            sa.func.max(at).label("newest"),
        )
        .where(table.kind == _NAMESPACE)
        .group_by(table.name, owner)
    )


def _gone_names() -> sa.Select[Any]:
    """Namespaces that were deleted on a cluster and not on all."""
    table = merge_bases.c
    return sa.select(table.name).where(table.kind == _NAMESPACE, sa.cast(table.gone, sa.Text) != "[]")


def _disputed_names() -> sa.Select[Any]:
    """Namespaces with a conflict on record."""
    return sa.select(conflicts.c.name).where(conflicts.c.kind == _NAMESPACE, conflicts.c.resolved_at.is_(None))


def read_cells(ledger: Ledger, names: Collection[str]) -> dict[str, dict[str, Cell]]:
    """Namespace → cluster → cell, of some namespaces: four queries. A cluster that nothing is known of has none."""
    with ledger.engine.connect() as connection:
        sources = [*_observed(connection, names), *_versions(connection, names)]
        disputed = _disputed(connection, names)
    newest: dict[str, _Source] = {}
    for name, source in sources:
        if name not in newest or source.newest > newest[name].newest:
            newest[name] = source
    return {name: dict(_cells(source, disputed.get(name, frozenset()))) for name, source in newest.items()}


def _cells(source: _Source, disputed: Collection[str]) -> Iterator[tuple[str, Cell]]:
    present = {cluster: fields for cluster, fields in source.digests.items() if cluster not in source.gone}
    usual = _usual(list(present.values()))
    for cluster in {*source.clusters, *source.digests}:
        fields = present.get(cluster)
        if fields is None:
            yield cluster, Cell(CellState.MISSING)
            continue
        number = sum(fields.get(name, "") != text for name, text in usual.items())
        if cluster in disputed:
            yield cluster, Cell(CellState.CONFLICT, number)
        else:
            yield cluster, Cell(CellState.DIFFERS if number else CellState.SAME, number)


def _usual(clusters: Sequence[Mapping[str, str]]) -> dict[str, str | None]:
    """Field → the digest on most clusters; None if two digests are on as many, so that every cluster differs."""
    # Most namespaces are the same everywhere.
    if all(fields == clusters[0] for fields in clusters):
        return dict(clusters[0]) if clusters else {}
    usual: dict[str, str | None] = {}
    for name in {name for fields in clusters for name in fields}:
        (first, count), *others = Counter(fields.get(name, "") for fields in clusters).most_common(2)
        usual[name] = None if others and others[0][1] == count else first
    return usual


def _observed(connection: sa.Connection, names: Collection[str]) -> Iterator[tuple[str, _Source]]:
    """From the observations of reconciliations."""
    table = observations.c
    query = sa.select(table.fleet, table.name, table.cluster, table.document, table.observed_at)
    rows = connection.execute(query.where(table.kind == _NAMESPACE, table.name.in_(names)))
    grouped: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        grouped.setdefault((row.fleet, row.name), []).append(row)
    gone = _gone(connection, {fleet for fleet, _ in grouped}, names)
    for (fleet, name), entries in grouped.items():
        yield (
            name,
            _Source(
                digests={row.cluster: _digests(row.document) for row in entries},
                gone=gone.get((fleet, name), frozenset()),
                clusters=fleet.split("+"),
                newest=max(row.observed_at for row in entries),
            ),
        )


def _versions(connection: sa.Connection, names: Collection[str]) -> Iterator[tuple[str, _Source]]:
    """From the versions of metadata events."""
    table = resource_versions.c
    query = sa.select(table.topic, table.name, table.cluster, table.document, table.at)
    rows = connection.execute(query.where(table.kind == _NAMESPACE, table.name.in_(names)))
    grouped: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        grouped.setdefault((row.topic, row.name), []).append(row)
    for (_, name), entries in grouped.items():
        digests = {row.cluster: _digests(row.document) for row in entries}
        yield (
            name,
            _Source(
                digests=digests,
                gone={cluster for cluster, fields in digests.items() if fields.get(_EXISTS) == ""},
                clusters=(),
                newest=max(utc(row.at).timestamp() for row in entries),
            ),
        )


def _digests(document: Mapping[str, Any]) -> dict[str, str]:
    """Field → digest, the first part of the entries of both."""
    return {name: entry[0] for name, entry in document["fields"].items()}


def _gone(
    connection: sa.Connection, fleets: Collection[str], names: Collection[str]
) -> dict[tuple[str, str], frozenset[str]]:
    table = merge_bases.c
    query = sa.select(table.fleet, table.name, table.gone)
    rows = connection.execute(query.where(table.fleet.in_(fleets), table.kind == _NAMESPACE, table.name.in_(names)))
    return {(row.fleet, row.name): frozenset(row.gone) for row in rows}


def _disputed(connection: sa.Connection, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Namespace → the clusters that take part in a conflict on record."""
    table = conflicts.c
    query = sa.select(table.name, table.sides).where(table.kind == _NAMESPACE, table.resolved_at.is_(None))
    clusters: dict[str, set[str]] = {}
    for row in connection.execute(query.where(table.name.in_(names))):
        clusters.setdefault(row.name, set()).update(row.sides)
    return {name: frozenset(sides) for name, sides in clusters.items()}


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
