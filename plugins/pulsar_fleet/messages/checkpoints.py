"""Digests of ranges that were read as a whole, kept so that a job that was killed does not read them again.

Only digests are kept, never a message. The folder's name holds a hash of the request: another request, or the same
topics with other bounds, never finds them.
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
from pulsar_fleet.messages.ranges import Range
from pulsar_fleet.messages.scan import Engine, sum_up

if TYPE_CHECKING:  # an executor may lack it: then it keeps nothing
    from upath import UPath

log = logging.getLogger(__name__)

KEEP_EVERY_SECONDS = 1.0
RANGES_AHEAD = 8
Number = tuple[int, int]
"""Of a range on one side: its pair, its index."""


class Checkpoints:
    """Digests under a URI; any number of processes write, each files of its own, so that none overwrites another's."""

    def __init__(self, folder: UPath) -> None:
        self._folder = folder

    @classmethod
    def beside(cls, result_uri: str, request: bytes) -> Self:
        """Those of one request, next to its result."""
        from upath import UPath

        result = UPath(result_uri)
        return cls(result.parent / f"{result.stem}-checkpoints" / hashlib.sha256(request).hexdigest()[:32])

    @classmethod
    def at(cls, uri: str) -> Self | None:
        """Those that another process kept there; None where universal-pathlib is not installed."""
        try:
            from upath import UPath
        except ImportError as error:
            log.warning("no checkpoint at %s, a killed job will begin anew: %s", uri, error)
            return None
        return cls(UPath(uri))

    @property
    def uri(self) -> str:
        """Where they lie."""
        return str(self._folder)

    def load(self, side: Side, wanted: Iterable[Number] | None = None) -> dict[Number, list[DigestRow]]:
        """Rows of ranges of one side that were read; `wanted` leaves files aside that begin with none of them."""
        begins = None if wanted is None else {f"{pair}-{index}" for pair, index in wanted}
        found: dict[Number, list[DigestRow]] = {}
        for path in self._folder.glob(f"{side}-*.parquet") if self._folder.exists() else ():
            if begins is None or path.name.removeprefix(f"{side}-").rpartition("-")[0] in begins:
                found |= _read(path)
        return found

    def keep(self, side: Side, rows: Mapping[Number, Sequence[DigestRow]]) -> None:
        """Keep the rows of ranges, in one file that is there as a whole or not at all."""
        pair, index = next(iter(rows))
        table = pa.Table.from_pylist(
            [flat_row(row, side) for each in rows.values() for row in each], schema=DIGEST_COLUMNS
        )
        content = BytesIO()
        pq.write_table(table, content)
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{uuid.uuid4().hex}.new"
        unfinished.write_bytes(content.getvalue())
        unfinished.rename(self._folder / f"{side}-{pair}-{index}-{uuid.uuid4().hex[:12]}.parquet")

    def remove(self) -> None:
        """Forget all; again does nothing."""
        for path in list(self._folder.iterdir()) if self._folder.exists() else ():
            path.unlink(missing_ok=True)
        if self._folder.exists():
            self._folder.rmdir()


def _read(path: UPath) -> dict[Number, list[DigestRow]]:
    found: dict[Number, list[DigestRow]] = defaultdict(list)
    for row in pq.read_table(BytesIO(path.read_bytes())).to_pylist():
        found[row["pair"], row["range"]].append(digest_row(row))
    return dict(found)


class Recorder:
    """Keeps finished ranges of one task, at most once a second; if the store fails, the reading goes on without it."""

    def __init__(self, checkpoints: Checkpoints | None, side: Side) -> None:
        self._checkpoints = checkpoints
        self._side = side
        self._waiting: dict[Number, Sequence[DigestRow]] = {}
        self._kept_at = time.monotonic()

    def add(self, wanted: Range, rows: Sequence[DigestRow]) -> None:
        """Note a finished range; one that could not be read is left for the next try."""
        if not any(row.problem for row in rows):
            self._waiting[wanted.pair, wanted.index] = rows
        if time.monotonic() - self._kept_at >= KEEP_EVERY_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Keep what is waiting."""
        if self._checkpoints and self._waiting:
            try:
                self._checkpoints.keep(self._side, self._waiting)
            except OSError as error:
                log.warning("no checkpoint at %s, a killed job will begin anew: %s", self._checkpoints.uri, error)
                self._checkpoints = None
        self._waiting = {}
        self._kept_at = time.monotonic()


def sum_up_group(
    engine: Engine, side: Side, ranges: Sequence[Range], buckets: int, checkpoints: Checkpoints | None
) -> Iterator[DigestRow]:
    """Digest rows of ranges; those that an earlier try finished are not read again."""
    numbers = [(wanted.pair, wanted.index) for wanted in ranges]
    kept = checkpoints.load(side, numbers) if checkpoints else {}
    recorder = Recorder(checkpoints, side)
    unread = [wanted for wanted, number in zip(ranges, numbers, strict=True) if number not in kept]
    done = 0
    for wanted, number in zip(ranges, numbers, strict=True):
        rows: Sequence[DigestRow] | None = kept.get(number)
        if rows is None:
            done += 1
            engine.expect(unread[done : done + RANGES_AHEAD])
            rows = sum_up(engine, wanted, buckets)
            recorder.add(wanted, rows)
        yield from rows
    recorder.flush()
