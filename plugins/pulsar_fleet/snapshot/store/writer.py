"""Write a snapshot while it is read: a Parquet table per kind of resource, and a manifest with their digests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Self

from upath import UPath

from pulsar_fleet.cluster.admin.partial_reads import Note, Problem
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.snapshot.model import TABLES, BrokerState, Row, SnapshotHeader
from pulsar_fleet.snapshot.store.rows import TABLE_OF, arrow_schema, to_columns

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
ROWS_PER_GROUP = 2_000


class SnapshotWriter:
    """A sink that writes to folder `name` of a run; use it as a context manager, and call `finish` at the end.

    Memory use is bounded by some thousand rows for a snapshot of any size. Without `finish` there is no manifest, so
    that the snapshot cannot be loaded. A second snapshot of this name replaces the first, as a retried task must.
    """

    def __init__(self, artefacts: Artefacts, run_id: str, *, name: str) -> None:
        self._artefacts = artefacts
        self._run_id = run_id
        self._name = name
        folder = artefacts.folder(run_id) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        self._tables = {table: _TableFile(folder / f"{table}.parquet", table) for table in TABLES}
        self._brokers: list[JsonObject] = []
        self._unreadable = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for table in self._tables.values():
            table.close()

    def add(self, rows: Sequence[Row]) -> None:
        """Write rows; loading single namespaces is cheapest when the rows of a table are ordered by namespace."""
        for row in rows:
            self._tables[TABLE_OF[type(row)]].add(row)
            if isinstance(row, BrokerState):
                self._brokers.append({"address": row.address, "version": row.version})
            elif isinstance(row, Note):
                self._unreadable += row.problem == Problem.UNREADABLE

    @property
    def counts(self) -> dict[str, int]:
        """Rows so far, per table."""
        return {table: file.rows for table, file in self._tables.items()}

    @property
    def brokers(self) -> list[JsonObject]:
        """Address and version of each broker so far."""
        return list(self._brokers)

    @property
    def versions(self) -> list[str]:
        """The versions of the brokers, sorted."""
        return sorted({str(broker["version"]) for broker in self._brokers})

    @property
    def complete(self) -> bool:
        """Whether everything that our role may read was read so far."""
        return not self._unreadable

    def finish(self, head: SnapshotHeader) -> Reference:
        """Close the tables and write the manifest; its reference identifies the whole snapshot."""
        for table in self._tables.values():
            table.close()
        manifest = {
            "schema_version": SCHEMA_VERSION,
            **{field.name: getattr(head, field.name) for field in dataclasses.fields(SnapshotHeader)},
            "complete": self.complete,
            "unreadable": self._unreadable,
            "brokers": self._brokers,
            "counts": self.counts,
            "tables": {name: table.reference().to_json() for name, table in self._tables.items()},
        }
        return self._artefacts.write(self._run_id, f"{self._name}/{MANIFEST}", json.dumps(manifest, indent=1).encode())


class _TableFile:
    """One table, written in row groups."""

    def __init__(self, path: UPath, table: str) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._table = table
        self._file = _HashingFile(path.open("wb"))
        self._writer: pq.ParquetWriter | None = pq.ParquetWriter(self._file, arrow_schema(table), compression="zstd")
        self._pending: list[Row] = []
        self.rows = 0

    def add(self, row: Row) -> None:
        self._pending.append(row)
        self.rows += 1
        if len(self._pending) >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Write the pending rows; a second call does nothing."""
        if self._writer is None:
            return
        self._flush()
        self._writer.close()
        self._writer = None
        self._file.close()

    def reference(self) -> Reference:
        return Reference(str(self._path), self._file.sha256.hexdigest(), self._file.tell())

    def _flush(self) -> None:
        if self._pending and self._writer is not None:
            part: pa.Table = to_columns(self._table, self._pending)
            self._writer.write_table(part, row_group_size=ROWS_PER_GROUP)
            self._pending.clear()


class _HashingFile:
    """A file for pyarrow that computes the digest of its content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = 0
        self.sha256 = hashlib.sha256()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, content: bytes) -> int:
        self.sha256.update(content)
        self._size += len(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
