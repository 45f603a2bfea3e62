"""One table of a stored snapshot: proven when it is first read, then read whole or some namespaces at a time."""

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
    """A table in its file. The file is proven against the manifest at the first read, and trusted after it.

    :param name: of the table.
    :param reference: where the file is, and the digest that it must have.
    """

    def __init__(self, name: str, reference: Reference) -> None:
        self._name = name
        self._reference = reference
        self._path = UPath(reference.uri)
        self._metadata: Any = None
        self._spans: list[tuple[str, str] | None] = []

    def rows(self, namespaces: Collection[str] | None = None, topics: Collection[str] | None = None) -> Iterator[Row]:
        """Its rows, a thousand in memory at a time.

        :param namespaces: only rows in these.
        :param topics: of what belongs to a topic, only what belongs to these.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        wanted = None if namespaces is None or not is_by_namespace(self._name) else sorted(namespaces)
        groups = self._groups(wanted)
        with self._path.open("rb") as opened, pq.ParquetFile(opened, metadata=self._metadata) as file:
            for part in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, use_threads=False):
                for column, names in ((NAMESPACE, wanted), (TOPIC, topics)):
                    if names is not None and column in part.schema.names:
                        part = part.filter(pc.is_in(part.column(column), pa.array(names, pa.string())))
                yield from from_columns(self._name, part)

    def columns(self, names: Sequence[str], namespaces: Collection[str] | None = None) -> pa.Table:
        """These columns, and `NAMESPACE`, of all rows or of those in these namespaces, in the order of the file."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        wanted = None if namespaces is None else sorted(namespaces)
        groups = self._groups(wanted)
        with self._path.open("rb") as opened, pq.ParquetFile(opened, metadata=self._metadata) as file:
            found = file.read_row_groups(groups, columns=[*names, NAMESPACE], use_threads=False)
        if wanted is None:
            return found
        kept = pc.is_in(found.column(NAMESPACE), pa.array(wanted, pa.string()))
        return found if pc.all(kept).as_py() else found.filter(kept)

    def _groups(self, wanted: Sequence[str] | None) -> list[int]:
        """The row groups that may hold rows of the wanted namespaces (in order), by the least and greatest name."""
        if self._metadata is None:
            self._open()
        if wanted is None:
            return list(range(self._metadata.num_row_groups))
        return [group for group, span in enumerate(self._spans) if span is None or _meets(span, wanted)]

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self._prove()
        with self._path.open("rb") as opened, pq.ParquetFile(opened) as file:
            metadata = file.metadata
        if is_by_namespace(self._name):
            column = metadata.schema.names.index(NAMESPACE)
            self._spans = [_span(metadata.row_group(group).column(column)) for group in range(metadata.num_row_groups)]
        self._metadata = metadata

    def _prove(self) -> None:
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
    found = column.statistics
    return (found.min, found.max) if found is not None and found.has_min_max else None


def _meets(span: tuple[str, str], wanted: Sequence[str]) -> bool:
    least, greatest = span
    at = bisect_left(wanted, least)
    return at < len(wanted) and wanted[at] <= greatest
