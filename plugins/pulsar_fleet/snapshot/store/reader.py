"""Store snapshots as artefacts, and load them whole or some namespaces at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from upath import UPath

from pulsar_fleet.cluster.admin.partial_reads import Note, Problem
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.snapshot.model import TABLES, Row, Snapshot, SnapshotHeader
from pulsar_fleet.snapshot.store.rows import ABSENT, NAMESPACE, TOPIC, from_columns, is_by_namespace
from pulsar_fleet.snapshot.store.writer import SCHEMA_VERSION, SnapshotWriter

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1_000
_HASHED_AT_ONCE = 1 << 20


def store_snapshot(artefacts: Artefacts, run_id: str, snapshot: Snapshot, *, name: str) -> Reference:
    """Write a snapshot that is in memory; to write one while it is read, pass a `SnapshotWriter` to `collect_into`."""
    with SnapshotWriter(artefacts, run_id, name=name) as writer:
        for table in TABLES:
            writer.add(getattr(snapshot, table))
        return writer.finish(snapshot)


def load_snapshot(artefacts: Artefacts, reference: Reference) -> Snapshot:
    """Load a whole snapshot; a table that was altered since is `InvalidRequest`."""
    return StoredSnapshot.open(artefacts, reference).load()


class StoredTable:
    """A table in its file. The first read verifies the digest of the file; later reads do not.

    :param reference: the file and its digest, from the manifest.
    """

    def __init__(self, name: str, reference: Reference) -> None:
        self._name = name
        self._reference = reference
        self._path = UPath(reference.uri)
        self._metadata: Any = None
        self._spans: list[tuple[str, str] | None] = []

    def rows(self, namespaces: Collection[str] | None = None, topics: Collection[str] | None = None) -> Iterator[Row]:
        """Its rows, a thousand in memory at a time.

        :param namespaces: only rows of these namespaces.
        :param topics: in a table with the column `TOPIC`, only rows of these topics.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        selected = None if namespaces is None or not is_by_namespace(self._name) else sorted(namespaces)
        groups = self._groups(selected)
        with self._path.open("rb") as opened, pq.ParquetFile(opened, metadata=self._metadata) as file:
            for part in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, use_threads=False):
                for column, names in ((NAMESPACE, selected), (TOPIC, topics)):
                    if names is not None and column in part.schema.names:
                        part = part.filter(pc.is_in(part.column(column), pa.array(names, pa.string())))
                yield from from_columns(self._name, part)

    def columns(self, names: Sequence[str], namespaces: Collection[str] | None = None) -> pa.Table:
        """These columns, and `NAMESPACE`, of all rows or of the rows of these namespaces, in the order of the file."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        selected = None if namespaces is None else sorted(namespaces)
        groups = self._groups(selected)
        with self._path.open("rb") as opened, pq.ParquetFile(opened, metadata=self._metadata) as file:
            table = file.read_row_groups(groups, columns=[*names, NAMESPACE], use_threads=False)
        for name in names:
            if name not in table.schema.names:
                table = table.append_column(name, pa.array([ABSENT] * len(table), pa.string()))
        if selected is None:
            return table
        kept = pc.is_in(table.column(NAMESPACE), pa.array(selected, pa.string()))
        return table if pc.all(kept).as_py() else table.filter(kept)

    def _groups(self, selected: Sequence[str] | None) -> list[int]:
        """The row groups that may have rows of the selected namespaces (sorted), by the lowest and highest name."""
        if self._metadata is None:
            self._open()
        if selected is None:
            return list(range(self._metadata.num_row_groups))
        return [group for group, span in enumerate(self._spans) if span is None or _overlaps(span, selected)]

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self._verify()
        with self._path.open("rb") as opened, pq.ParquetFile(opened) as file:
            metadata = file.metadata
        if is_by_namespace(self._name):
            column = metadata.schema.names.index(NAMESPACE)
            self._spans = [_span(metadata.row_group(group).column(column)) for group in range(metadata.num_row_groups)]
        self._metadata = metadata

    def _verify(self) -> None:
        reference, digest = self._reference, hashlib.sha256()
        try:
            with self._path.open("rb") as file:
                while content := file.read(_HASHED_AT_ONCE):
                    digest.update(content)
        except OSError as error:
            raise NotFound(f"The table {reference.uri} cannot be read: {error}. Take the snapshot again.") from error
        if digest.hexdigest() != reference.sha256:
            raise InvalidRequest(
                f"The table {reference.uri} was altered after it was written (sha256 {digest.hexdigest()[:12]}…, "
                f"expected {reference.sha256[:12]}…): take the snapshot again."
            )


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

    def rows_by_namespace(self, table: str) -> dict[str, int]:
        """Namespace → number of its rows in a table; those without a row are left out."""
        counted = self.columns(table, ()).column(NAMESPACE).value_counts().to_pylist()
        return {str(pair["values"]): int(pair["counts"]) for pair in counted}

    def inventory(self, kind: str, namespaces: Collection[str] | None = None) -> tuple[str, ...]:
        """The names of what a copy leaves out, of one kind such as `SCALABLE_TOPIC`: of all namespaces or of these."""
        rows = self.columns("inventory", ("kind", "name"), namespaces).to_pylist()
        return tuple(str(row["name"]) for row in rows if row["kind"] == kind)

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
        """The rows of these namespaces, the brokers, and the notes about what is unknown, whatever namespace it is in.

        :param topics: load schemas, subscriptions and topic policies of these topics only; topic rows are all loaded.
        """
        tables = [table for table in TABLES if is_by_namespace(table) or table == "brokers"]
        rows: dict[str, Any] = {table: tuple(self._table(table).rows(namespaces, topics)) for table in tables}
        notes, unknown = self._table("notes").rows(), (Problem.HIDDEN, Problem.UNREADABLE)
        rows["notes"] = tuple(note for note in notes if isinstance(note, Note) and note.problem in unknown)
        return Snapshot(**dataclasses.asdict(self.head), **rows)

    def columns(self, table: str, names: Sequence[str], namespaces: Collection[str] | None = None) -> pa.Table:
        """These columns of one table, and `NAMESPACE`, of all rows or of the rows of these namespaces."""
        return self._table(table).columns(names, namespaces)

    def _table(self, name: str) -> StoredTable:
        if name not in self._tables:
            self._tables[name] = StoredTable(name, Reference.from_json(self.manifest["tables"][name]))
        return self._tables[name]


def _span(column: Any) -> tuple[str, str] | None:
    bounds = column.statistics
    return (bounds.min, bounds.max) if bounds is not None and bounds.has_min_max else None


def _overlaps(span: tuple[str, str], selected: Sequence[str]) -> bool:
    lowest, highest = span
    index = bisect_left(selected, lowest)
    return index < len(selected) and selected[index] <= highest
