"""Snapshots as artefacts: stored whole, loaded whole or some namespaces at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator
from typing import Any, Self

from upath import UPath

from pulsar_fleet.cluster.errors import Missing, Rejected
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.states import TABLES, Note, Row, Snapshot, SnapshotHead
from pulsar_fleet.records.artefacts import Artefacts, Reference
from pulsar_fleet.records.snapshot_rows import NAMESPACE, from_columns, is_by_namespace, namespace_of
from pulsar_fleet.records.snapshot_writer import SCHEMA_VERSION, SnapshotWriter

_ROWS_AT_ONCE = 1_000
_HASHED_AT_ONCE = 1 << 20


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
    _proven: set[str] = dataclasses.field(default_factory=set)

    @classmethod
    def open(cls, artefacts: Artefacts, reference: Reference) -> Self:
        """Find a stored snapshot; one of another release is `Rejected`."""
        manifest = json.loads(artefacts.read(reference))
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise Rejected(
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
        import pyarrow.parquet as pq

        with self._proven_file("namespaces").open("rb") as file:
            return tuple(sorted(pq.read_table(file, columns=["name"]).column("name").to_pylist()))

    def load(self, namespaces: Collection[str] | None = None) -> Snapshot:
        """The snapshot, or of it only these namespaces, what lies in them, and all that lies in none.

        :param namespaces: as `tenant/namespace`; ones that it does not have are left out without a word.
        """
        rows: dict[str, Any] = {table: tuple(self.rows(table, namespaces)) for table in TABLES}
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def load_outside(self) -> Snapshot:
        """All that lies in no namespace: clusters, resource groups, tenants, brokers, notes."""
        return self.load(())

    def load_within(self, namespaces: Collection[str]) -> Snapshot:
        """These namespaces and what lies in them, and of all else only the brokers."""
        tables = [table for table in TABLES if is_by_namespace(table) or table == "brokers"]
        rows: dict[str, Any] = {table: tuple(self.rows(table, namespaces)) for table in tables}
        # What a role may not see bears on every part; what could not be read is the whole's affair.
        rows["notes"] = tuple(one for one in self.rows("notes") if isinstance(one, Note) and one.problem == "hidden")
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def rows(self, table: str, namespaces: Collection[str] | None = None) -> Iterator[Row]:
        """The rows of one table, of all or of these namespaces, a thousand in memory at a time."""
        import pyarrow.parquet as pq

        wanted = None if namespaces is None or not is_by_namespace(table) else frozenset(namespaces)
        with self._proven_file(table).open("rb") as opened, pq.ParquetFile(opened) as file:
            groups = [group for group in range(file.num_row_groups) if _may_hold(file.metadata, group, wanted)]
            for part in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, use_threads=False):
                for row in from_columns(table, part):
                    if wanted is None or namespace_of(row) in wanted:
                        yield row

    def _proven_file(self, table: str) -> UPath:
        reference = Reference.from_json(self.manifest["tables"][table])
        path = UPath(reference.uri)
        if table in self._proven:
            return path
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while content := file.read(_HASHED_AT_ONCE):
                    digest.update(content)
        except OSError as error:
            raise Missing(f"The table {reference.uri} cannot be read: {error}. Take the snapshot again.") from error
        if digest.hexdigest() != reference.sha256:
            raise Rejected(
                f"The table {reference.uri} was altered after it was written (sha256 {digest.hexdigest()[:12]}…, "
                f"expected {reference.sha256[:12]}…): take the snapshot again."
            )
        self._proven.add(table)
        return path


def _may_hold(metadata: Any, group: int, wanted: frozenset[str] | None) -> bool:
    """Whether a row group may hold rows of the wanted namespaces, by the least and greatest name in it."""
    if wanted is None:
        return True
    column = metadata.schema.names.index(NAMESPACE)
    found = metadata.row_group(group).column(column).statistics
    if found is None or not found.has_min_max:
        return True
    return any(found.min <= name <= found.max for name in wanted)
