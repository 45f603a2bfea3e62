"""Snapshots as artefacts: stored whole, loaded whole or some namespaces at a time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Self

from pulsar_fleet.cluster.admin.read_problems import Note
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.snapshot.model import TABLES, Snapshot, SnapshotHead
from pulsar_fleet.snapshot.store.rows import NAMESPACE, is_by_namespace
from pulsar_fleet.snapshot.store.table import StoredTable
from pulsar_fleet.snapshot.store.writer import SCHEMA_VERSION, SnapshotWriter

if TYPE_CHECKING:
    import pyarrow as pa


def store_snapshot(artefacts: Artefacts, run_id: str, snapshot: Snapshot, *, name: str) -> Reference:
    """Write a snapshot that is in memory; for one that is being read, hand a `SnapshotWriter` to `collect_into`."""
    with SnapshotWriter(artefacts, run_id, name=name) as writer:
        for table in TABLES:
            writer.add(getattr(snapshot, table))
        return writer.finish(snapshot)


def load_snapshot(artefacts: Artefacts, reference: Reference) -> Snapshot:
    """Read a whole snapshot back; every table must be the one that was written."""
    return StoredSnapshot.open(artefacts, reference).load()


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot in its files. Each table is proven against the manifest when it is first read, and then trusted.

    :param manifest: what `SnapshotWriter.finish` wrote.
    """

    manifest: JsonObject
    _tables: dict[str, StoredTable] = dataclasses.field(default_factory=dict)

    @classmethod
    def open(cls, artefacts: Artefacts, reference: Reference) -> Self:
        """Find a stored snapshot; one of another release is `InvalidRequest`."""
        manifest = json.loads(artefacts.read(reference))
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The snapshot {reference.uri} has schema version {manifest.get('schema_version')!r}, this release "
                f"reads {SCHEMA_VERSION}: take it again."
            )
        return cls(manifest)

    @property
    def head(self) -> SnapshotHead:
        """What it is a snapshot of, and when it was taken."""
        names = (one.name for one in dataclasses.fields(SnapshotHead))
        found: JsonObject = {name: self.manifest[name] for name in names}
        lists = {name: tuple(found[name]) for name in ("selection", "known_clusters")}
        return SnapshotHead(**{**found, **lists})

    @property
    def complete(self) -> bool:
        """Whether everything that was there could be read."""
        return bool(self.manifest["complete"])

    @property
    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return dict(self.manifest["counts"])

    def namespaces(self) -> tuple[str, ...]:
        """The names of its namespaces, in order."""
        return tuple(sorted(self.columns("namespaces", ()).column(NAMESPACE).to_pylist()))

    def load(self, namespaces: Collection[str] | None = None) -> Snapshot:
        """The snapshot, or of it only these namespaces, what lies in them, and all that lies in none.

        :param namespaces: as `tenant/namespace`; ones that it does not have are left out without a word.
        """
        rows: dict[str, Any] = {table: tuple(self._table(table).rows(namespaces)) for table in TABLES}
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def load_outside(self) -> Snapshot:
        """All that lies in no namespace: clusters, resource groups, tenants, brokers, notes."""
        return self.load(())

    def load_within(self, namespaces: Collection[str], topics: Collection[str] | None = None) -> Snapshot:
        """These namespaces and what lies in them, and of all else only the brokers.

        :param topics: of what belongs to a topic, only what belongs to these; the topics themselves are all there.
        """
        tables = [table for table in TABLES if is_by_namespace(table) or table == "brokers"]
        rows: dict[str, Any] = {table: tuple(self._table(table).rows(namespaces, topics)) for table in tables}
        # What a role may not see bears on every part; what could not be read is the whole's affair.
        notes = self._table("notes").rows()
        rows["notes"] = tuple(one for one in notes if isinstance(one, Note) and one.problem == "hidden")
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def columns(self, table: str, names: Sequence[str], namespaces: Collection[str] | None = None) -> pa.Table:
        """These columns of one table, and `NAMESPACE`, of all rows or of those in these namespaces."""
        return self._table(table).columns(names, namespaces)

    def _table(self, name: str) -> StoredTable:
        if name not in self._tables:
            self._tables[name] = StoredTable(name, Reference.from_json(self.manifest["tables"][name]))
        return self._tables[name]
