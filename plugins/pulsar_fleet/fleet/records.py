"""Read the state of the fleet from the ledger: newest phases and verdicts, runs, conflicts, outages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import RecordedRun, utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import conflicts, observations, phases, resource_versions, runs, verdicts
from pulsar_fleet.replication.doctor.changes import last_examination
from pulsar_fleet.replication.doctor.model import Examination, ReturnState

_RUNS = 50
_CONFLICTS = 50
_PARTS = ("copy of ", "subscriptions of ")
"""Verdicts about a part of what a migration proves; that about the namespace itself covers them."""
_SCHEDULED_PROOFS = "verify_replication/"


class NamespaceState(NamedTuple):
    """The newest phase and verdict of one namespace, of whatever run; empty where there is none."""

    namespace: str
    phase: str = ""
    verdict: str = ""
    verdict_run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRecords:
    """When the newest phase and verdict of one namespace were recorded, and by which run."""

    phase_at: datetime | None = None
    phase_run: str = ""
    messages: int = 0
    verdict_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What the ledger knows of one cluster.

    :param scanned_at: of its last scan by a reconciliation or by metadata events.
    :param outage_since: since when it does not answer; None while it does.
    """

    name: str
    scanned_at: datetime | None = None
    outage_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenConflict:
    """Clusters that were edited differently, and the value that was written everywhere.

    :param sides: cluster → its value, and when it was written where that is known.
    """

    id: str
    run_id: str
    resource: str
    field: str
    winner: str
    sides: Mapping[str, Json]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """Everything that the page and the metrics show.

    :param last_runs: procedure → its run that began last.
    """

    read_at: datetime
    namespaces: tuple[NamespaceState, ...]
    clusters: tuple[ClusterState, ...]
    conflicts: tuple[OpenConflict, ...]
    open_conflicts: int
    newest_runs: tuple[RecordedRun, ...]
    last_runs: Mapping[str, RecordedRun]


def read_fleet(ledger: Ledger, now: datetime | None = None) -> FleetState:
    """The state of the fleet: seven queries, whatever its size."""
    with ledger.engine.connect() as connection:
        open_conflicts = conflicts.c.resolved_at.is_(None)
        return FleetState(
            read_at=now or datetime.now(UTC),
            namespaces=_namespaces(connection),
            clusters=_clusters(connection),
            conflicts=_conflicts(connection, open_conflicts),
            open_conflicts=connection.scalar(sa.select(sa.func.count()).where(open_conflicts)) or 0,
            newest_runs=tuple(ledger.newest_runs(_RUNS)),
            last_runs=_last_runs(connection),
        )


def read_clusters(ledger: Ledger) -> tuple[ClusterState, ...]:
    """Every cluster that was scanned or is unreachable: three queries."""
    with ledger.engine.connect() as connection:
        return _clusters(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestRecords:
    """Phase → when the namespace that is in it for longest entered it; and the oldest of the scheduled proofs."""

    phases: Mapping[str, datetime]
    proof: datetime | None


def read_oldest(ledger: Ledger) -> OldestRecords:
    """Of the newest phase and the newest verdict of each namespace, the oldest: two queries."""
    with ledger.engine.connect() as connection:
        entered = _newest_phases(connection, phases.c.phase, phases.c.at)
        proven = _newest_verdicts(connection, verdicts.c.at, verdicts.c.run_id)
    first: dict[str, datetime] = {}
    for name, row in entered.items():
        if not name.startswith(_PARTS):
            first[row.phase] = min(utc(row.at), first.get(row.phase, utc(row.at)))
    # Nobody repeats the proof of a migration, or one that a person asked for.
    proofs = [utc(row.at) for row in proven.values() if row.run_id.startswith(_SCHEDULED_PROOFS)]
    return OldestRecords(phases=first, proof=min(proofs, default=None))


def read_namespaces(ledger: Ledger, names: Collection[str]) -> dict[str, NamespaceRecords]:
    """The records of some namespaces: two queries."""
    with ledger.engine.connect() as connection:
        entered = _newest_phases(connection, phases.c.run_id, phases.c.at, only=phases.c.namespace.in_(names))
        proven = _newest_verdicts(connection, verdicts.c.messages, verdicts.c.at, only=verdicts.c.scope.in_(names))
    return {
        name: NamespaceRecords(
            phase_at=utc(entered[name].at) if name in entered else None,
            phase_run=entered[name].run_id if name in entered else "",
            messages=proven[name].messages if name in proven else 0,
            verdict_at=utc(proven[name].at) if name in proven else None,
        )
        for name in names
    }


def _namespaces(connection: sa.Connection) -> tuple[NamespaceState, ...]:
    entered = _newest_phases(connection, phases.c.phase)
    proven = _newest_verdicts(connection, verdicts.c.verdict, verdicts.c.run_id)
    states = []
    for name in sorted({*entered, *proven}):
        if name.startswith(_PARTS):
            continue
        phase = entered[name].phase if name in entered else ""
        states.append(NamespaceState(name, phase, *(proven[name][1:] if name in proven else ())))
    return tuple(states)


def _newest_phases(
    connection: sa.Connection, *columns: sa.Column[Any], only: sa.ColumnElement[bool] | None = None
) -> dict[str, sa.Row[Any]]:
    chosen = sa.true() if only is None else only
    newest = sa.select(sa.func.max(phases.c.id)).where(chosen).group_by(phases.c.namespace)
    query = sa.select(phases.c.namespace, *columns).where(phases.c.id.in_(newest))
    return {row.namespace: row for row in connection.execute(query)}


def _newest_verdicts(
    connection: sa.Connection, *columns: sa.Column[Any], only: sa.ColumnElement[bool] | None = None
) -> dict[str, sa.Row[Any]]:
    chosen = sa.true() if only is None else only
    last = sa.select(verdicts.c.scope, sa.func.max(verdicts.c.at).label("at")).where(chosen).group_by(verdicts.c.scope)
    newest = last.subquery()
    same = sa.and_(verdicts.c.scope == newest.c.scope, verdicts.c.at == newest.c.at)
    return {row.scope: row for row in connection.execute(sa.select(verdicts.c.scope, *columns).join(newest, same))}


def _clusters(connection: sa.Connection) -> tuple[ClusterState, ...]:
    scanned: dict[str, datetime] = {}
    observed = sa.select(observations.c.cluster, sa.func.max(observations.c.observed_at)).group_by(
        observations.c.cluster
    )
    for cluster, seconds in connection.execute(observed):
        scanned[cluster] = datetime.fromtimestamp(seconds, UTC)
    versions = resource_versions.c
    events = sa.select(versions.cluster, sa.func.max(versions.at)).where(versions.kind == "scan")
    for cluster, at in connection.execute(events.group_by(versions.cluster)):
        scanned[cluster] = max(utc(at), scanned.get(cluster, utc(at)))
    outages = sa.select(versions.name, versions.document).where(versions.kind == "outage")
    since = {
        name: datetime.fromisoformat(document["since"])
        for name, document in connection.execute(outages)
        if document.get("since")
    }
    return tuple(
        ClusterState(name=name, scanned_at=scanned.get(name), outage_since=since.get(name))
        for name in sorted({*scanned, *since})
    )


def _conflicts(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> tuple[OpenConflict, ...]:
    query = sa.select(conflicts).where(condition).order_by(conflicts.c.at.desc()).limit(_CONFLICTS)
    return tuple(
        OpenConflict(
            id=row["id"],
            run_id=row["run_id"],
            resource=f"{row['kind']} {row['name']}",
            field=row["field"],
            winner=row["chosen"] or row["winner"],
            sides=row["sides"],
            at=utc(row["at"]),
        )
        for row in connection.execute(query).mappings()
    )


def _last_runs(connection: sa.Connection) -> dict[str, RecordedRun]:
    own = runs.c.run_id.not_like("%/%/%")
    last = sa.select(runs.c.procedure, sa.func.max(runs.c.started_at).label("at")).where(own).group_by(runs.c.procedure)
    newest = last.subquery()
    same = sa.and_(runs.c.procedure == newest.c.procedure, runs.c.started_at == newest.c.at)
    columns: Sequence[sa.Column[object]] = [runs.c[name] for name in RecordedRun.__dataclass_fields__]
    rows = connection.execute(sa.select(*columns).join(newest, same)).mappings()
    return {row["procedure"]: RecordedRun(**row) for row in rows}


REPLICATION_WATCH = "watch_replication"
_FRESH = timedelta(hours=1)
"""An examination that is older says nothing of what is so now."""
_WATCHES = 200
"""So many runs are looked at: more than a day of one that begins every ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFleet:
    """The newest examination of some clusters.

    :param connections: ids of the connections of the clusters.
    :param selection: what of them is examined; empty: everything.
    :param read_at: when its figures were read.
    """

    run_id: str
    connections: tuple[str, ...]
    selection: tuple[str, ...]
    read_at: datetime
    examination: Examination


def read_watched(ledger: Ledger, artefacts: Artefacts) -> tuple[WatchedFleet, ...]:
    """The newest examination of each set of clusters and selection, in the order of their names."""
    newest: dict[tuple[tuple[str, ...], tuple[str, ...]], WatchedFleet] = {}
    for row in _watch_runs(ledger):
        key = _examined(row)
        # A run that has just begun, or failed before it had read anything, has no examination.
        if key not in newest and (stored := last_examination(Run(row.run_id, ledger, artefacts))):
            examination = stored[0]
            newest[key] = WatchedFleet(
                run_id=row.run_id,
                connections=key[0],
                selection=key[1],
                read_at=_read_at(examination, utc(row.started_at)),
                examination=examination,
            )
    return tuple(watched for _, watched in sorted(newest.items()))


def _watch_runs(ledger: Ledger) -> Sequence[Any]:
    """The last runs, the newest first."""
    query = sa.select(runs.c.run_id, runs.c.conf, runs.c.started_at).where(runs.c.procedure == REPLICATION_WATCH)
    with ledger.engine.connect() as connection:
        return connection.execute(query.order_by(runs.c.started_at.desc()).limit(_WATCHES)).all()


def _examined(row: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The connections and the selection of a run."""
    return tuple(sorted(row.conf.get("clusters") or ())), tuple(sorted(row.conf.get("selection") or ()))


def _read_at(examination: Examination, began: datetime) -> datetime:
    if examination.read_at:
        return datetime.fromtimestamp(examination.read_at, UTC)
    return began + timedelta(seconds=examination.seconds)


Returns = Mapping[str, tuple[ReturnState, datetime]]
"""Run that has moved applications → how what they write comes back, and when that was read."""
UNWATCHED = "unwatched"


def read_returns(
    ledger: Ledger, artefacts: Artefacts, groups: Iterable[Followed], now: datetime | None = None
) -> Returns:
    """Of the groups that can return, what the newest examination with their clusters says; none of an old one."""
    since = (now or datetime.now(UTC)) - _FRESH
    found: dict[str, tuple[ReturnState, datetime]] = {}
    moved = {group.published.run: group for group in groups if group.can_return}
    rows: dict[str, list[tuple[ReturnState, datetime]]] = {}
    for fleet in read_watched(ledger, artefacts) if moved else ():
        for row in fleet.examination.returns if fleet.read_at > since else ():
            rows.setdefault(row.run, []).append((row, fleet.read_at))
    for run, group in moved.items():
        if run in rows:
            found[run] = _together(rows[run], group.published.namespaces)
    return found


def last_return(
    ledger: Ledger, artefacts: Artefacts, run_id: str, namespaces: Collection[str]
) -> tuple[ReturnState, datetime] | None:
    """What the last examinations that had both clusters say of the applications that a run has moved.

    Of the last runs, however old they are: when the cluster has died, newer ones say nothing of it.
    """
    rows: dict[object, tuple[ReturnState, datetime]] = {}
    for row in _watch_runs(ledger):
        if _examined(row) not in rows and (stored := last_examination(Run(row.run_id, ledger, artefacts))):
            read_at = _read_at(stored[0], utc(row.started_at))
            rows.update({_examined(row): (state, read_at) for state in stored[0].returns if state.run == run_id})
    return _together([*rows.values()], namespaces) if rows else None


def _together(rows: Sequence[tuple[ReturnState, datetime]], names: Iterable[str]) -> tuple[ReturnState, datetime]:
    """What several examinations say, of which each may cover some namespaces of the group; as old as the oldest."""
    first = rows[0][0]
    counts: Counter[str] = Counter()
    for row, _ in rows:
        counts.update(row.replicators.counts)
    if missing := {*names} - {name for row, _ in rows for name in row.namespaces}:
        counts["unknown"] += len(missing)
    backlog = max(row.replicators.backlog for row, _ in rows)
    together = replace(first, replicators=replace(first.replicators, counts=counts, backlog=backlog))
    return together, min(at for _, at in rows)


def moved_groups(groups: Iterable[Followed], returns: Returns) -> Counter[str]:
    """State → number of groups that can return, `UNWATCHED` of those that no examination has read."""
    moved = (group.published.run for group in groups if group.can_return)
    return Counter(returns[run][0].replicators.worst.value if run in returns else UNWATCHED for run in moved)
