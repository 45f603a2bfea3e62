"""The versions of the resources of an event topic, as each cluster has them, saved with optimistic locking."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import resource_versions as table


def field_digest(document: Mapping[str, Any]) -> str | None:
    """Equal for equal fields with equal values, whenever they were written; None for a document without fields.

    The migration 0008 of the ledger has filled it so.
    """
    if "fields" not in document:
        return None
    fields = sorted((name, entry[0]) for name, entry in document["fields"].items())
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:32]


Key = tuple[str, str]
"""Kind and name of a resource."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document and the number of its writes; 0 for a document that is not stored yet."""

    version: int
    document: JsonObject


class EventStore:
    """The documents of one cluster and one event topic. Each call is one transaction, safe for several processes."""

    def __init__(self, ledger: Ledger, topic: str, cluster: str) -> None:
        self._engine = ledger.engine
        self._topic = topic
        self._cluster = cluster

    def load(self, names: Collection[str] | None = None, kind: str | None = None) -> dict[Key, StoredDocument]:
        """The documents of these names and of this kind; None means all."""
        query = sa.select(table.c.kind, table.c.name, table.c.version, table.c.document).where(self._own_rows())
        if names is not None:
            query = query.where(table.c.name.in_(names))
        if kind is not None:
            query = query.where(table.c.kind == kind)
        with self._engine.connect() as connection:
            rows = connection.execute(query)
            return {(row.kind, row.name): StoredDocument(row.version, row.document) for row in rows}

    def save(self, changed: Mapping[Key, StoredDocument]) -> bool:
        """Save documents that were loaded with these versions.

        :returns: False if another process saved one of them in the meantime; then nothing is saved.
        """
        if not changed:
            return True
        try:
            with self._engine.begin() as connection:
                for key, stored in changed.items():
                    if connection.execute(self._write(key, stored)).rowcount != 1:
                        connection.rollback()
                        return False
        except sa.exc.IntegrityError:
            return False
        return True

    def _own_rows(self) -> sa.ColumnElement[bool]:
        return sa.and_(table.c.topic == self._topic, table.c.cluster == self._cluster)

    def _write(self, key: Key, stored: StoredDocument) -> sa.Insert | sa.Update:
        kind, name = key
        own_row = sa.and_(self._own_rows(), table.c.kind == kind, table.c.name == name)
        now, digest = datetime.now(UTC), field_digest(stored.document)
        if stored.version:
            new = {"document": stored.document, "digest": digest, "version": stored.version + 1, "at": now}
            return table.update().where(own_row, table.c.version == stored.version).values(**new)
        row = {
            "topic": self._topic,
            "cluster": self._cluster,
            "kind": kind,
            "name": name,
            "document": stored.document,
            "version": 1,
            "at": now,
            "digest": digest,
        }
        values = (sa.literal(value, table.c[column].type) for column, value in row.items())
        absent = sa.select(*values).where(~sa.exists().where(own_row))
        # Without the option the number of inserted rows is -1 on PostgreSQL, whose cursor is closed at once.
        return table.insert().from_select(list(row), absent).execution_options(preserve_rowcount=True)
