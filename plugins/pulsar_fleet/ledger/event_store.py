"""What each cluster knows of the resources of an event topic: kept only by the process that read it last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import marks

Key = tuple[str, str]
"""Kind and name of a resource."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A document, and how often it was written; 0 for one that is not there yet."""

    version: int
    document: JsonObject


class MarkStore:
    """The records of one cluster and one event topic. Each call is one transaction, safe for several processes."""

    def __init__(self, ledger: Ledger, topic: str, cluster: str) -> None:
        self._engine = ledger.engine
        self._topic = topic
        self._cluster = cluster

    def load(self, names: Collection[str] | None = None) -> dict[Key, Kept]:
        """All of them, or those of some names."""
        wanted = sa.select(marks.c.kind, marks.c.name, marks.c.version, marks.c.document).where(self._mine())
        if names is not None:
            wanted = wanted.where(marks.c.name.in_(names))
        with self._engine.connect() as connection:
            return {(row.kind, row.name): Kept(row.version, row.document) for row in connection.execute(wanted)}

    def keep(self, changed: Mapping[Key, Kept]) -> bool:
        """Keep documents that were read as these versions; False, and nothing kept, if another process was faster."""
        if not changed:
            return True
        try:
            with self._engine.begin() as connection:
                for key, kept in changed.items():
                    if connection.execute(self._write(key, kept)).rowcount != 1:
                        connection.rollback()
                        return False
        except sa.exc.IntegrityError:
            return False
        return True

    def _mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(marks.c.topic == self._topic, marks.c.cluster == self._cluster)

    def _write(self, key: Key, kept: Kept) -> sa.Insert | sa.Update:
        kind, name = key
        here = sa.and_(self._mine(), marks.c.kind == kind, marks.c.name == name)
        now = datetime.now(UTC)
        if kept.version:
            new = {"document": kept.document, "version": kept.version + 1, "at": now}
            return marks.update().where(here, marks.c.version == kept.version).values(**new)
        row = {
            "topic": self._topic,
            "cluster": self._cluster,
            "kind": kind,
            "name": name,
            "document": kept.document,
            "version": 1,
            "at": now,
        }
        values = (sa.literal(value, marks.c[column].type) for column, value in row.items())
        absent = sa.select(*values).where(~sa.exists().where(here))
        return marks.insert().from_select(list(row), absent)
