"""Digest rows as an Arrow table: the form in which an executor returns them and a checkpoint stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:  # planning does not need numpy
    from pulsar_fleet.messages.digests import DigestRow

DIGEST_COLUMNS = pa.schema(
    [
        *((name, pa.int32()) for name in ("pair", "range", "bucket")),
        *((name, pa.int64()) for name in ("messages", "lane0", "lane1", "lane2", "lane3", "ordered")),
        ("problem", pa.string()),
        ("side", pa.string()),
    ]
)


def flat_row(row: DigestRow, side: str) -> dict[str, Any]:
    """The columns of a digest row; the order digest is a signed number, because Spark has no unsigned one."""
    lanes = {f"lane{number}": lane for number, lane in enumerate(row.sums.lanes)}
    signed = row.order - (1 << 64) if row.order >> 63 else row.order
    numbers = {"pair": row.pair, "range": row.index, "bucket": row.bucket, "messages": row.sums.count}
    return {**numbers, **lanes, "ordered": signed, "problem": row.problem, "side": side}


def digest_row(row: Any) -> DigestRow:
    """The digest row of the columns that `flat_row` wrote."""
    from pulsar_fleet.messages.digests import DigestRow, Sums

    sums = Sums(row["messages"], (row["lane0"], row["lane1"], row["lane2"], row["lane3"]))
    return DigestRow(row["pair"], row["range"], row["bucket"], sums, row["ordered"] % (1 << 64), row["problem"])
