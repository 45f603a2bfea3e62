"""One table of a stored snapshot: verified at the first read, and read whole or some namespaces at a time."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from upath import UPath

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.snapshot.model import Row
from pulsar_fleet.snapshot.store.rows import NAMESPACE, TOPIC, from_columns, is_by_namespace

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1_000
_HASHED_AT_ONCE = 1 << 20


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


def _span(column: Any) -> tuple[str, str] | None:
    bounds = column.statistics
    return (bounds.min, bounds.max) if bounds is not None and bounds.has_min_max else None


def _overlaps(span: tuple[str, str], selected: Sequence[str]) -> bool:
    lowest, highest = span
    index = bisect_left(selected, lowest)
    return index < len(selected) and selected[index] <= highest
