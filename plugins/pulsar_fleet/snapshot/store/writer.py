"""Write a snapshot while it is read: a Parquet table per kind of resource, and a manifest that proves them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from upath import UPath

from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.snapshot.model import TABLES, BrokerState, Row, SnapshotHead
from pulsar_fleet.snapshot.store.rows import TABLE_OF, arrow_schema, to_columns

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
ROWS_PER_GROUP = 2_000


class SnapshotWriter:
    """A sink that writes below `name` in a run's folder; use it as a context manager, and call `finish` at the end.

    Memory holds some thousand rows, whatever the snapshot's size. Without `finish` there is no manifest, so nothing
    that could be loaded. The same name again replaces what was there, as a retried task must.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table in self._tables.values():
            table.close()

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows; a table is smallest to load in parts when its rows come in the order of their namespaces."""
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
    def versions(self) -> list[str]:
        """The versions that the brokers run."""
        return sorted({str(broker["version"]) for broker in self._brokers})

    @property
    def complete(self) -> bool:
        """Whether everything that was there could be read so far."""
        return not self._unreadable

    def finish(self, head: SnapshotHead) -> Reference:
        """Close the tables and write the manifest, whose reference stands for the whole snapshot."""
        for table in self._tables.values():
            table.close()
        manifest = {
            "schema_version": SCHEMA_VERSION,
            **{one.name: getattr(head, one.name) for one in dataclasses.fields(SnapshotHead)},
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
        self._file = _Hashing(path.open("wb"))
        self._writer: pq.ParquetWriter | None = pq.ParquetWriter(self._file, arrow_schema(table), compression="zstd")
        self._waiting: list[Row] = []
        self.rows = 0

    def add(self, row: Row) -> None:
        self._waiting.append(row)
        self.rows += 1
        if len(self._waiting) >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left; a second call does nothing."""
        if self._writer is None:
            return
        self._flush()
        self._writer.close()
        self._writer = None
        self._file.close()

    def reference(self) -> Reference:
        return Reference(str(self._path), self._file.sha256.hexdigest(), self._file.tell())

    def _flush(self) -> None:
        if self._waiting and self._writer is not None:
            part: pa.Table = to_columns(self._table, self._waiting)
            self._writer.write_table(part, row_group_size=ROWS_PER_GROUP)
            self._waiting.clear()


class _Hashing:
    """A file, as pyarrow wants one, that knows the digest of what was written to it."""

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
