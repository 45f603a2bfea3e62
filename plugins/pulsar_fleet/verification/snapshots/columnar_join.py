"""The join of two tables by their keys, compared column by column (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """Rows of source and target; rows with the same index have the same key and equal columns unless `unequal`.

    :param key: key of the source's row, as a number; rows with the same key are adjacent.
    :param owner: owner of the row, as an index into `owners`.
    :param owners: the names of the resources to which rows belong.
    :param uneven: owners with different numbers of rows in source and target; their rows are left out.
    """

    source: pa.Table
    target: pa.Table
    key: Numbers
    owner: Numbers
    owners: pa.Array
    unequal: Flags
    uneven: Flags

    def owners_of(self, rows: Flags) -> list[str]:
        """The names of the owners of these rows, and of the uneven owners."""
        import pyarrow as pa

        flags = self.uneven.copy()
        flags[self.owner[rows]] = True
        names: list[str] = self.owners.filter(pa.array(flags)).to_pylist()
        return names


def join_columns(
    source: pa.Table, target: pa.Table, *, key: Sequence[str], order: str, values: Sequence[str]
) -> JoinedRows:
    """Join the rows of each owner by their keys; rows with the same key keep their order.

    :param key: the columns that identify a row; the first one is its owner.
    :param order: a column that orders rows with the same key; it is not compared.
    :param values: the columns that are compared.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = [source, target]
    owners, belong = number_texts(*(side.column(key[0]) for side in sides))
    counts = [np.bincount(numbers, minlength=len(owners)) for numbers in belong]
    uneven = counts[0] != counts[1]
    if uneven.any():
        kept = [~uneven[numbers] for numbers in belong]
        sides = [side.filter(pa.array(mask)) for side, mask in zip(sides, kept, strict=True)]
        belong = [numbers[mask] for numbers, mask in zip(belong, kept, strict=True)]
    keys = _keys(sides, belong, key[1:])
    (left_rows, left_key), (right_rows, right_key) = (
        _in_order(side, number, order) for side, number in zip(sides, keys, strict=True)
    )
    unequal = left_key != right_key
    for name in values:
        equal = pc.fill_null(pc.equal(left_rows.column(name), right_rows.column(name)), False)
        unequal |= ~equal.to_numpy()
    # Keys are in the order of the owners, and each owner has equally many rows in both tables.
    return JoinedRows(left_rows, right_rows, left_key, np.sort(belong[0]), owners, unequal, uneven)


def number_texts(*columns: pa.ChunkedArray) -> tuple[pa.Array, list[Numbers]]:
    """The distinct texts of all columns, and each column as indices into them."""
    import numpy as np
    import pyarrow as pa

    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pa.chunked_array(chunks, columns[0].type).combine_chunks().dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, np.split(numbers, np.cumsum([len(column) for column in columns])[:-1])


def combine_keys(columns: Sequence[Numbers]) -> Numbers:
    """Each row of several columns of non-negative numbers as one number, in the order of the first column."""
    combined, *rest = columns
    for column in rest:
        combined = combined * (column.max(initial=0) + 1) + column
    return combined


def _keys(sides: Sequence[pa.Table], owners: Sequence[Numbers], columns: Sequence[str]) -> list[Numbers]:
    """Keys as numbers that are comparable between the tables and in the order of the owners."""
    import numpy as np

    texts = [number_texts(*(side.column(column) for side in sides))[1] for column in columns]
    both = combine_keys([np.concatenate(owners), *(np.concatenate(numbers) for numbers in texts)])
    return np.split(both, [len(owners[0])])


def _in_order(side: pa.Table, key: Numbers, order: str) -> tuple[pa.Table, Numbers]:
    import numpy as np

    # Both sorts are stable, so rows with the same key stay in the order of the file.
    ranks = np.lexsort((side.column(order).to_numpy(), key)) if order else np.argsort(key, kind="stable")
    if (ranks[1:] > ranks[:-1]).all():
        return side, key
    return side.take(ranks), key[ranks]
