"""The records of reconciliation: merge bases, observations of clusters, and conflicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.event_store import field_digest
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import conflicts, merge_bases, observations

Item = tuple[str, str]
"""Kind and name of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBase:
    """The last document of one resource that the clusters agreed on: the base of the next three-way merge.

    :param clusters: the clusters that have the resource.
    :param gone: the clusters that once had the resource and no longer have it.
    """

    document: JsonObject
    clusters: tuple[str, ...]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredObservation:
    """The observation of one resource on one cluster; `observed_at` in seconds since 1970."""

    observed_at: float
    document: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConflict:
    """A field for which clusters wrote different values since the last merge base.

    :param sides: cluster → `{"value", "not_before", "not_after"}`, including the winner.
    :param chosen: the cluster whose value the operator chose afterwards.
    """

    kind: str
    name: str
    field: str
    rule: str
    winner: str
    sides: JsonObject
    chosen: str | None = None

    @property
    def id(self) -> str:
        """The same for the same values in the same field, so that a repeated conflict is recorded once."""
        values = {cluster: side["value"] for cluster, side in self.sides.items()}
        text = json.dumps([self.kind, self.name, self.field, self.winner, values], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class ReconciliationStore:
    """The records of one fleet. Each call is one transaction, safe for several processes.

    :param fleet: the names of all its clusters.
    """

    def __init__(self, ledger: Ledger, fleet: Iterable[str]) -> None:
        self._engine = ledger.engine
        self._clusters = frozenset(fleet)
        self._fleet = "+".join(sorted(self._clusters))

    def merge_bases(self) -> dict[Item, MergeBase]:
        """The merge bases of the fleet; a fleet that grew starts with those of its largest earlier form."""
        with self._engine.connect() as connection:
            table = merge_bases.c
            recorded = connection.scalars(sa.select(table.fleet).distinct()).all()
            rows = connection.execute(sa.select(merge_bases).where(table.fleet == self._origin(recorded))).mappings()
            return {
                (row["kind"], row["name"]): MergeBase(
                    document=row["document"], clusters=tuple(row["clusters"]), gone=tuple(row["gone"])
                )
                for row in rows
            }

    def save_merge_bases(self, changed: Mapping[Item, MergeBase | None]) -> None:
        """Save merge bases; None deletes that of a resource which no cluster has any more."""
        if not changed:
            return
        self._inherit()
        rows = [
            {"fleet": self._fleet, "kind": kind, "name": name, "at": _now(), **asdict(base)}
            for (kind, name), base in changed.items()
            if base is not None
        ]
        self._replace(merge_bases, changed, rows)

    def observations(self, cluster: str) -> dict[Item, StoredObservation]:
        """The last observation of each resource of a cluster."""
        table = observations.c
        query = sa.select(table.kind, table.name, table.observed_at, table.document).where(
            table.fleet == self._fleet, table.cluster == cluster
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query)
            return {(row.kind, row.name): StoredObservation(row.observed_at, row.document) for row in rows}

    def save_observations(self, cluster: str, observed: Mapping[Item, StoredObservation]) -> None:
        """Save observations of a cluster in one transaction; other resources keep theirs."""
        if not observed:
            return
        rows = [
            {
                "fleet": self._fleet,
                "cluster": cluster,
                "kind": kind,
                "name": name,
                "digest": field_digest(observation.document),
                **asdict(observation),
            }
            for (kind, name), observation in observed.items()
        ]
        self._replace(observations, observed, rows, observations.c.cluster == cluster)

    def last_observed(self, cluster: str) -> float | None:
        """When the cluster could last be read, in seconds since 1970; None if never."""
        table = observations.c
        query = sa.select(sa.func.max(table.observed_at)).where(table.fleet == self._fleet, table.cluster == cluster)
        with self._engine.connect() as connection:
            newest = connection.scalar(query)
        return None if newest is None else float(newest)

    def record_conflicts(self, run_id: str, detected: Sequence[RecordedConflict]) -> int:
        """Record conflicts before a losing value is overwritten; returns the number of new ones.

        A conflict that was resolved and occurs again is open again, without a choice.
        """
        rows = [{"id": self.conflict_id(conflict)} | asdict(conflict) for conflict in detected]
        stamp = {"run_id": run_id, "at": _now(), "chosen": None}
        own, key = conflicts.c.fleet == self._fleet, conflicts.c.id
        with self._engine.begin() as connection:
            recorded = {row.id: row.resolved_at for row in connection.execute(sa.select(conflicts).where(own))}
            if new := {row["id"]: row | stamp | {"fleet": self._fleet} for row in rows if row["id"] not in recorded}:
                connection.execute(conflicts.insert(), list(new.values()))
            for again in {row["id"] for row in rows if recorded.get(row["id"])}:
                connection.execute(conflicts.update().where(own, key == again).values(stamp | {"resolved_at": None}))
        return len(new)

    def conflict_id(self, conflict: RecordedConflict) -> str:
        """The id by which the operator chooses another value of this conflict."""
        return hashlib.sha256(f"{self._fleet} {conflict.id}".encode()).hexdigest()[:12]

    def conflicts(self, *, newest: int = 100) -> list[tuple[str, RecordedConflict]]:
        """Id and conflict, newest first."""
        query = sa.select(conflicts).where(conflicts.c.fleet == self._fleet).order_by(conflicts.c.at.desc())
        with self._engine.connect() as connection:
            return [(row["id"], _conflict(row)) for row in connection.execute(query.limit(newest)).mappings()]

    def unresolved(self, field: str) -> list[tuple[str, RecordedConflict]]:
        """Id and conflict of the open conflicts in a field, chosen or not, newest first."""
        own = sa.and_(conflicts.c.fleet == self._fleet, conflicts.c.field == field, conflicts.c.resolved_at.is_(None))
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(conflicts).where(own).order_by(conflicts.c.at.desc())).mappings()
            return [(row["id"], _conflict(row)) for row in rows]

    def choose(self, conflict_id: str, cluster: str) -> RecordedConflict:
        """Choose the value of another cluster; the next repair writes it on every cluster.

        :raises NotFound: this fleet has no such conflict.
        :raises InvalidRequest: the cluster is not part of the conflict.
        """
        with self._engine.begin() as connection:
            own_row = sa.and_(conflicts.c.fleet == self._fleet, conflicts.c.id == conflict_id)
            row = connection.execute(sa.select(conflicts).where(own_row)).mappings().first()
            if row is None:
                raise NotFound(
                    f"The fleet {self._fleet} has no conflict {conflict_id!r}: its report lists the conflicts."
                )
            if cluster not in row["sides"]:
                clusters = ", ".join(sorted(row["sides"]))
                raise InvalidRequest(
                    f"Cluster {cluster!r} is not part of conflict {conflict_id!r}; its clusters are {clusters}."
                )
            connection.execute(conflicts.update().where(own_row).values(chosen=cluster, resolved_at=None))
            return _conflict({**row, "chosen": cluster})

    def choices(self) -> dict[str, tuple[Item, str, Json]]:
        """Conflict id → resource, field and value of the choices that are not in force yet."""
        unresolved = sa.and_(
            conflicts.c.fleet == self._fleet, conflicts.c.chosen.is_not(None), conflicts.c.resolved_at.is_(None)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(conflicts).where(unresolved)).mappings()
            return {
                row["id"]: ((row["kind"], row["name"]), row["field"], row["sides"][row["chosen"]]["value"])
                for row in rows
            }

    def resolve_choices(self, conflict_ids: Iterable[str]) -> None:
        """Record that the choices are in force on every cluster."""
        with self._engine.begin() as connection:
            for conflict_id in conflict_ids:
                own_row = sa.and_(conflicts.c.fleet == self._fleet, conflicts.c.id == conflict_id)
                connection.execute(conflicts.update().where(own_row).values(resolved_at=_now()))

    def _replace(
        self, table: sa.Table, items: Iterable[Item], rows: Sequence[JsonObject], *conditions: sa.ColumnElement[bool]
    ) -> None:
        """Replace the rows of resources in one transaction."""
        own = (table.c.fleet == self._fleet, *conditions)
        resource = (table.c.kind == sa.bindparam("k"), table.c.name == sa.bindparam("n"))
        with self._engine.begin() as connection:
            connection.execute(table.delete().where(*own, *resource), [{"k": kind, "n": name} for kind, name in items])
            if rows:
                connection.execute(table.insert(), rows)

    def _origin(self, recorded: Iterable[str]) -> str:
        """The recorded fleet whose merge bases are used: this one, else the largest that is a part of it."""
        candidates = list(recorded)
        if self._fleet in candidates:
            return self._fleet
        smaller = [fleet for fleet in candidates if set(fleet.split("+")) < self._clusters]
        return max(smaller, key=lambda fleet: (fleet.count("+"), fleet), default=self._fleet)

    def _inherit(self) -> None:
        """Copy the merge bases of the smaller fleet before the first ones of a fleet that grew are saved."""
        with self._engine.begin() as connection:
            recorded = connection.scalars(sa.select(merge_bases.c.fleet).distinct()).all()
            origin = self._origin(recorded)
            if origin == self._fleet:
                return
            rows = connection.execute(sa.select(merge_bases).where(merge_bases.c.fleet == origin)).mappings().all()
            connection.execute(merge_bases.insert(), [{**row, "fleet": self._fleet} for row in rows])


def _conflict(row: Mapping[Any, Any]) -> RecordedConflict:
    return RecordedConflict(**{name: row[name] for name in RecordedConflict.__slots__})


def _now() -> datetime:
    return datetime.now(UTC)


def known_fleets(ledger: Ledger) -> list[frozenset[str]]:
    """The candidates with at least one recorded observation."""
    with ledger.engine.connect() as connection:
        return [frozenset(name.split("+")) for name in connection.scalars(sa.select(observations.c.fleet).distinct())]
