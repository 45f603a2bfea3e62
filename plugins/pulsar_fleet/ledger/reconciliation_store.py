"""What the clusters of a fleet agreed on, when their values were seen, and the journal of their conflicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self

import sqlalchemy as sa

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import agreements, conflicts, observations

Item = tuple[str, str]
"""Kind and name of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What clusters last held alike of one resource.

    :param clusters: those that took part.
    :param gone: those that took part once and have it no more.
    """

    document: JsonObject
    clusters: tuple[str, ...]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a look at one resource of a cluster told of its fields; `looked` in seconds since 1970."""

    looked: float
    fields: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConflict:
    """Clusters that wrote different values since they last agreed.

    :param sides: cluster → `{"value", "not_before", "not_after"}`, the winner among them.
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
        """The same for the same values in the same field, so that meeting a conflict again adds nothing."""
        values = {cluster: side["value"] for cluster, side in self.sides.items()}
        text = json.dumps([self.kind, self.name, self.field, self.winner, values], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class Agreements:
    """The records of one fleet. Each call is one transaction, safe for several processes.

    :param fleet: the names of all its clusters.
    """

    def __init__(self, engine: sa.Engine, fleet: Iterable[str]) -> None:
        self._engine = engine
        self._clusters = frozenset(fleet)
        self._fleet = "+".join(sorted(self._clusters))

    @classmethod
    def of(cls, ledger: Ledger, fleet: Iterable[str]) -> Self:
        """The fleet's part of a ledger."""
        return cls(ledger.engine, fleet)

    def agreed(self) -> dict[Item, Agreement]:
        """The last agreements; of a fleet that grew, those of the largest fleet that it was before."""
        with self._engine.connect() as connection:
            table = agreements.c
            known = connection.scalars(sa.select(table.fleet).distinct()).all()
            rows = connection.execute(sa.select(agreements).where(table.fleet == self._base(known))).mappings()
            return {
                (row["kind"], row["name"]): Agreement(
                    document=row["document"], clusters=tuple(row["clusters"]), gone=tuple(row["gone"])
                )
                for row in rows
            }

    def agree(self, changed: Mapping[Item, Agreement | None]) -> None:
        """Keep what was agreed on; None forgets a resource that is nowhere any more."""
        if not changed:
            return
        self._inherit()
        keys = [{"k": kind, "n": name} for kind, name in changed]
        rows = [
            {"fleet": self._fleet, "kind": kind, "name": name, "at": _now(), **asdict(one)}
            for (kind, name), one in changed.items()
            if one is not None
        ]
        table = agreements.c
        mine = agreements.delete().where(
            table.fleet == self._fleet, table.kind == sa.bindparam("k"), table.name == sa.bindparam("n")
        )
        with self._engine.begin() as connection:
            connection.execute(mine, keys)
            if rows:
                connection.execute(agreements.insert(), rows)

    def sightings(self, cluster: str) -> dict[Item, Sighting]:
        """What was seen last on a cluster."""
        table = observations.c
        wanted = sa.select(table.kind, table.name, table.looked, table.fields).where(
            table.fleet == self._fleet, table.cluster == cluster
        )
        with self._engine.connect() as connection:
            return {(row.kind, row.name): Sighting(row.looked, row.fields) for row in connection.execute(wanted)}

    def see(self, cluster: str, seen: Mapping[Item, Sighting]) -> None:
        """Keep what is seen now on a cluster, all of it or nothing; what is not named stays as it was."""
        if not seen:
            return
        table = observations.c
        mine = observations.delete().where(
            table.fleet == self._fleet,
            table.cluster == cluster,
            table.kind == sa.bindparam("k"),
            table.name == sa.bindparam("n"),
        )
        rows = [
            {"fleet": self._fleet, "cluster": cluster, "kind": kind, "name": name, **asdict(one)}
            for (kind, name), one in seen.items()
        ]
        with self._engine.begin() as connection:
            connection.execute(mine, [{"k": kind, "n": name} for kind, name in seen])
            connection.execute(observations.insert(), rows)

    def last_look(self, cluster: str) -> float | None:
        """When the cluster could last be read, in seconds since 1970; None if never."""
        table = observations.c
        wanted = sa.select(sa.func.max(table.looked)).where(table.fleet == self._fleet, table.cluster == cluster)
        with self._engine.connect() as connection:
            found = connection.scalar(wanted)
        return None if found is None else float(found)

    def journal(self, run_id: str, met: Sequence[RecordedConflict]) -> int:
        """Keep conflicts before anything is written over a loser; returns how many are new."""
        with self._engine.begin() as connection:
            known = set(connection.scalars(sa.select(conflicts.c.id).where(conflicts.c.fleet == self._fleet)))
            rows = {
                self._key(one.id): {"id": self._key(one.id), "fleet": self._fleet, "run_id": run_id, "at": _now()}
                | asdict(one)
                for one in met
                if self._key(one.id) not in known
            }
            if rows:
                connection.execute(conflicts.insert(), list(rows.values()))
        return len(rows)

    def conflicts(self, *, newest: int = 100, run_id: str | None = None) -> list[tuple[str, RecordedConflict]]:
        """Id and conflict, newest first.

        :param run_id: only those that this run met first.
        """
        wanted = sa.select(conflicts).where(conflicts.c.fleet == self._fleet).order_by(conflicts.c.at.desc())
        if run_id is not None:
            wanted = wanted.where(conflicts.c.run_id == run_id)
        with self._engine.connect() as connection:
            return [(row["id"], _conflict(row)) for row in connection.execute(wanted.limit(newest)).mappings()]

    def choose(self, conflict_id: str, cluster: str) -> RecordedConflict:
        """Take the value of another cluster after all: the next repair writes it everywhere.

        :raises Missing: this fleet had no such conflict.
        :raises Rejected: the cluster had no part in it.
        """
        with self._engine.begin() as connection:
            mine = sa.and_(conflicts.c.fleet == self._fleet, conflicts.c.id == conflict_id)
            row = connection.execute(sa.select(conflicts).where(mine)).mappings().first()
            if row is None:
                raise NotFound(f"The fleet {self._fleet} had no conflict {conflict_id!r}: its report lists them.")
            if cluster not in row["sides"]:
                had = ", ".join(sorted(row["sides"]))
                raise InvalidRequest(f"Cluster {cluster!r} had no part in conflict {conflict_id!r}, but {had}.")
            connection.execute(conflicts.update().where(mine).values(chosen=cluster, settled_at=None))
            return _conflict({**row, "chosen": cluster})

    def choices(self) -> dict[str, tuple[Item, str, Json]]:
        """Conflict id → resource, field and value of the choices that are not in force yet."""
        open_ = sa.and_(
            conflicts.c.fleet == self._fleet, conflicts.c.chosen.is_not(None), conflicts.c.settled_at.is_(None)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(conflicts).where(open_)).mappings()
            return {
                row["id"]: ((row["kind"], row["name"]), row["field"], row["sides"][row["chosen"]]["value"])
                for row in rows
            }

    def settle(self, conflict_ids: Iterable[str]) -> None:
        """The choices are in force on every cluster."""
        with self._engine.begin() as connection:
            for one in conflict_ids:
                mine = sa.and_(conflicts.c.fleet == self._fleet, conflicts.c.id == one)
                connection.execute(conflicts.update().where(mine).values(settled_at=_now()))

    def _base(self, known: Iterable[str]) -> str:
        if self._fleet in known:
            return self._fleet
        smaller = [one for one in known if set(one.split("+")) < self._clusters]
        return max(smaller, key=lambda one: (one.count("+"), one), default=self._fleet)

    def _inherit(self) -> None:
        """Before the first agreement of a fleet that grew, make those of the smaller fleet its own."""
        with self._engine.begin() as connection:
            known = connection.scalars(sa.select(agreements.c.fleet).distinct()).all()
            base = self._base(known)
            if base == self._fleet:
                return
            rows = connection.execute(sa.select(agreements).where(agreements.c.fleet == base)).mappings().all()
            connection.execute(agreements.insert(), [{**row, "fleet": self._fleet} for row in rows])

    def _key(self, conflict_id: str) -> str:
        return hashlib.sha256(f"{self._fleet} {conflict_id}".encode()).hexdigest()[:12]


def _conflict(row: Mapping[Any, Any]) -> RecordedConflict:
    return RecordedConflict(**{name: row[name] for name in RecordedConflict.__slots__})


def _now() -> datetime:
    return datetime.now(UTC)


def fleets(ledger: Ledger) -> list[frozenset[str]]:
    """The fleets of which anything was ever seen."""
    with ledger.engine.connect() as connection:
        return [frozenset(name.split("+")) for name in connection.scalars(sa.select(observations.c.fleet).distinct())]
