"""The rows of two tables laid side by side by their keys, and compared as columns (pure)."""

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
class Pair:
    """Rows of both sides; two at the same place have the same key and equal columns unless they are `unequal`.

    :param key: of the source's row, as a number; rows with one key lie together.
    :param owner: of the row, as a number: its place among the `owners`.
    :param owners: the names of the resources to which rows belong.
    :param uneven: of which owners the sides have another number of rows; these rows are left out.
    """

    source: pa.Table
    target: pa.Table
    key: Numbers
    owner: Numbers
    owners: pa.Array
    unequal: Flags
    uneven: Flags

    def owners_of(self, rows: Flags) -> list[str]:
        """The names of those to which one of these rows belongs, and of the uneven ones."""
        import pyarrow as pa

        found = self.uneven.copy()
        found[self.owner[rows]] = True
        names: list[str] = self.owners.filter(pa.array(found)).to_pylist()
        return names


def lay_side_by_side(
    source: pa.Table, target: pa.Table, *, key: Sequence[str], order: str, values: Sequence[str]
) -> Pair:
    """Lay the rows of each owner side by side by their keys; rows with one key keep their order.

    :param key: the columns that name a row, the one that names its owner first.
    :param order: a column by which rows with one key are put in order; it is not compared.
    :param values: the columns that are compared as they are.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = [source, target]
    owners, belong = as_numbers(*(side.column(key[0]) for side in sides))
    counts = [np.bincount(one, minlength=len(owners)) for one in belong]
    uneven = counts[0] != counts[1]
    if uneven.any():
        kept = [~uneven[one] for one in belong]
        sides = [side.filter(pa.array(mask)) for side, mask in zip(sides, kept, strict=True)]
        belong = [one[mask] for one, mask in zip(belong, kept, strict=True)]
    keys = _keys(sides, belong, key[1:])
    (left, mine), (right, theirs) = (_in_order(side, number, order) for side, number in zip(sides, keys, strict=True))
    unequal = mine != theirs
    for name in values:
        equal = pc.fill_null(pc.equal(left.column(name), right.column(name)), False)
        unequal |= ~equal.to_numpy()
    # Keys lie in the order of the owners, of which each has as many rows on either side.
    return Pair(left, right, mine, np.sort(belong[0]), owners, unequal, uneven)


def as_numbers(*columns: pa.ChunkedArray) -> tuple[pa.Array, list[Numbers]]:
    """The distinct texts of all columns, and each column with the places of its texts among them."""
    import numpy as np
    import pyarrow as pa

    chunks = [chunk for column in columns for chunk in column.chunks]
    found = pa.chunked_array(chunks, columns[0].type).combine_chunks().dictionary_encode()
    numbers = found.indices.to_numpy().astype(np.int64)
    return found.dictionary, np.split(numbers, np.cumsum([len(column) for column in columns])[:-1])


def as_one(columns: Sequence[Numbers]) -> Numbers:
    """Each row of several columns of numbers, none below 0, as one number; in the order of the first column."""
    found, *rest = columns
    for column in rest:
        found = found * (column.max(initial=0) + 1) + column
    return found


def _keys(sides: Sequence[pa.Table], owners: Sequence[Numbers], columns: Sequence[str]) -> list[Numbers]:
    """Keys as numbers that mean the same on both sides and lie in the order of the owners."""
    import numpy as np

    texts = [as_numbers(*(side.column(column) for side in sides))[1] for column in columns]
    both = as_one([np.concatenate(owners), *(np.concatenate(one) for one in texts)])
    return np.split(both, [len(owners[0])])


def _in_order(side: pa.Table, key: Numbers, order: str) -> tuple[pa.Table, Numbers]:
    import numpy as np

    # Both sorts are stable: what one key has several times is merged in the order of the file.
    ranks = np.lexsort((side.column(order).to_numpy(), key)) if order else np.argsort(key, kind="stable")
    if (ranks[1:] > ranks[:-1]).all():
        return side, key
    return side.take(ranks), key[ranks]
