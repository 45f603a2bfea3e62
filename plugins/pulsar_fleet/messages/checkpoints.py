"""Checkpoints: digests of completely read ranges, so that a job that was killed does not read them again.

A checkpoint holds digests, never a message. The folder's name holds a hash of the request: another request, or the
same topics with other bounds, does not use them.
"""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digest_table import DIGEST_COLUMNS, digest_row, flat_row
from pulsar_fleet.messages.digests import DigestRow
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.ranges import Range
from pulsar_fleet.messages.scan import sum_up

if TYPE_CHECKING:  # an executor without universal-pathlib writes no checkpoint
    from upath import UPath

log = logging.getLogger(__name__)

WRITE_EVERY_SECONDS = 1.0
RangeKey = tuple[int, int]
"""The pair number and the index of a range; unique for one cluster."""


class Checkpoints:
    """Digests under a URI; each process writes its own files, so that processes never overwrite each other's."""

    def __init__(self, folder: UPath) -> None:
        self._folder = folder

    @classmethod
    def next_to(cls, result_uri: str, request: bytes) -> Self:
        """The checkpoints of one request, in a folder next to its result."""
        from upath import UPath

        result = UPath(result_uri)
        return cls(result.parent / f"{result.stem}-checkpoints" / hashlib.sha256(request).hexdigest()[:32])

    @classmethod
    def at(cls, uri: str) -> Self | None:
        """The checkpoints at a URI; None if universal-pathlib is not installed."""
        try:
            from upath import UPath
        except ImportError as error:
            log.warning(
                "cannot write checkpoints to %s, a job that is killed starts from the beginning: %s", uri, error
            )
            return None
        return cls(UPath(uri))

    @property
    def uri(self) -> str:
        """The folder's URI."""
        return str(self._folder)

    def load(self, side: Side, keys: Iterable[RangeKey] | None = None) -> dict[RangeKey, list[DigestRow]]:
        """The rows of finished ranges of one cluster.

        :param keys: read only the files whose first range is one of these; None reads all files.
        """
        prefixes = None if keys is None else {f"{pair}-{index}" for pair, index in keys}
        rows: dict[RangeKey, list[DigestRow]] = {}
        for path in self._folder.glob(f"{side}-*.parquet") if self._folder.exists() else ():
            if prefixes is None or path.name.removeprefix(f"{side}-").rpartition("-")[0] in prefixes:
                rows |= _read(path)
        return rows

    def write(self, side: Side, rows: Mapping[RangeKey, Sequence[DigestRow]]) -> None:
        """Write the rows of ranges to one file, atomically."""
        pair, index = next(iter(rows))
        table = pa.Table.from_pylist(
            [flat_row(row, side) for range_rows in rows.values() for row in range_rows], schema=DIGEST_COLUMNS
        )
        content = BytesIO()
        pq.write_table(table, content)
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{uuid.uuid4().hex}.new"
        unfinished.write_bytes(content.getvalue())
        unfinished.rename(self._folder / f"{side}-{pair}-{index}-{uuid.uuid4().hex[:12]}.parquet")

    def remove(self) -> None:
        """Delete all checkpoints; a second call does nothing."""
        for path in list(self._folder.iterdir()) if self._folder.exists() else ():
            path.unlink(missing_ok=True)
        if self._folder.exists():
            self._folder.rmdir()


def _read(path: UPath) -> dict[RangeKey, list[DigestRow]]:
    rows: dict[RangeKey, list[DigestRow]] = defaultdict(list)
    for row in pq.read_table(BytesIO(path.read_bytes())).to_pylist():
        rows[row["pair"], row["range"]].append(digest_row(row))
    return dict(rows)


class Recorder:
    """Writes the finished ranges of one task, at most once a second; a failing store does not stop the reading."""

    def __init__(self, checkpoints: Checkpoints | None, side: Side) -> None:
        self._checkpoints = checkpoints
        self._side = side
        self._unwritten: dict[RangeKey, Sequence[DigestRow]] = {}
        self._written_at = time.monotonic()

    def add(self, entry_range: Range, rows: Sequence[DigestRow]) -> None:
        """Add a finished range; a range that could not be read is skipped, so that the next attempt reads it."""
        if not any(row.problem for row in rows):
            self._unwritten[entry_range.pair, entry_range.index] = rows
        if time.monotonic() - self._written_at >= WRITE_EVERY_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the ranges that were added since the last write."""
        if self._checkpoints and self._unwritten:
            try:
                self._checkpoints.write(self._side, self._unwritten)
            except OSError as error:
                uri = self._checkpoints.uri
                log.warning(
                    "cannot write checkpoints to %s, a job that is killed starts from the beginning: %s", uri, error
                )
                self._checkpoints = None
        self._unwritten = {}
        self._written_at = time.monotonic()


def sum_up_ranges(
    engine: Engine, side: Side, ranges: Sequence[Range], buckets: int, checkpoints: Checkpoints | None
) -> Iterator[DigestRow]:
    """Digest rows of ranges; the ranges that an earlier attempt finished are not read again."""
    keys = [(entry_range.pair, entry_range.index) for entry_range in ranges]
    finished = checkpoints.load(side, keys) if checkpoints else {}
    recorder = Recorder(checkpoints, side)
    for entry_range, key in zip(ranges, keys, strict=True):
        rows: Sequence[DigestRow] | None = finished.get(key)
        if rows is None:
            rows = sum_up(engine, entry_range, buckets)
            recorder.add(entry_range, rows)
        yield from rows
    recorder.flush()
