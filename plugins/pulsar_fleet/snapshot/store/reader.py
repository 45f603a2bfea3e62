"""Store snapshots as artefacts, and load them whole or some namespaces at a time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Self

from pulsar_fleet.cluster.admin.read_problems import Note
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.snapshot.model import TABLES, Snapshot, SnapshotHeader
from pulsar_fleet.snapshot.store.rows import NAMESPACE, is_by_namespace
from pulsar_fleet.snapshot.store.table import StoredTable
from pulsar_fleet.snapshot.store.writer import SCHEMA_VERSION, SnapshotWriter

if TYPE_CHECKING:
    import pyarrow as pa


def store_snapshot(artefacts: Artefacts, run_id: str, snapshot: Snapshot, *, name: str) -> Reference:
    """Write a snapshot that is in memory; to write one while it is read, pass a `SnapshotWriter` to `collect_into`."""
    with SnapshotWriter(artefacts, run_id, name=name) as writer:
        for table in TABLES:
            writer.add(getattr(snapshot, table))
        return writer.finish(snapshot)


def load_snapshot(artefacts: Artefacts, reference: Reference) -> Snapshot:
    """Load a whole snapshot; a table that was altered since is `InvalidRequest`."""
    return StoredSnapshot.open(artefacts, reference).load()


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot in its files. The first read of a table verifies its digest; later reads do not.

    :param manifest: the document that `SnapshotWriter.finish` wrote.
    """

    manifest: JsonObject
    _tables: dict[str, StoredTable] = dataclasses.field(default_factory=dict)

    @classmethod
    def open(cls, artefacts: Artefacts, reference: Reference) -> Self:
        """Open a stored snapshot; another schema version is `InvalidRequest`."""
        manifest = json.loads(artefacts.read(reference))
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The snapshot {reference.uri} has schema version {manifest.get('schema_version')!r}, this release "
                f"reads {SCHEMA_VERSION}: take it again."
            )
        return cls(manifest)

    @property
    def head(self) -> SnapshotHeader:
        """The cluster, time and options of the snapshot."""
        names = (field.name for field in dataclasses.fields(SnapshotHeader))
        values: JsonObject = {name: self.manifest[name] for name in names}
        lists = {name: tuple(values[name]) for name in ("selection", "known_clusters")}
        return SnapshotHeader(**{**values, **lists})

    @property
    def complete(self) -> bool:
        """Whether everything that our role may read was read."""
        return bool(self.manifest["complete"])

    @property
    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return dict(self.manifest["counts"])

    def namespaces(self) -> tuple[str, ...]:
        """The names of its namespaces, sorted."""
        return tuple(sorted(self.columns("namespaces", ()).column(NAMESPACE).to_pylist()))

    def load(self, namespaces: Collection[str] | None = None) -> Snapshot:
        """The snapshot; with `namespaces` only their rows and the rows that belong to no namespace.

        :param namespaces: as `tenant/namespace`; those that the snapshot does not have are ignored.
        """
        rows: dict[str, Any] = {table: tuple(self._table(table).rows(namespaces)) for table in TABLES}
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def load_without_namespaces(self) -> Snapshot:
        """The rows that belong to no namespace: clusters, resource groups, tenants, brokers, notes."""
        return self.load(())

    def load_namespaces(self, namespaces: Collection[str], topics: Collection[str] | None = None) -> Snapshot:
        """The rows of these namespaces, the brokers, and the notes about hidden areas.

        :param topics: load schemas, subscriptions and topic policies of these topics only; topic rows are all loaded.
        """
        tables = [table for table in TABLES if is_by_namespace(table) or table == "brokers"]
        rows: dict[str, Any] = {table: tuple(self._table(table).rows(namespaces, topics)) for table in tables}
        # A hidden area concerns every part; an unreadable resource makes the whole snapshot incomplete.
        notes = self._table("notes").rows()
        rows["notes"] = tuple(note for note in notes if isinstance(note, Note) and note.problem == "hidden")
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def columns(self, table: str, names: Sequence[str], namespaces: Collection[str] | None = None) -> pa.Table:
        """These columns of one table, and `NAMESPACE`, of all rows or of the rows of these namespaces."""
        return self._table(table).columns(names, namespaces)

    def _table(self, name: str) -> StoredTable:
        if name not in self._tables:
            self._tables[name] = StoredTable(name, Reference.from_json(self.manifest["tables"][name]))
        return self._tables[name]
