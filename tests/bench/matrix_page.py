"""The table of docs/client_matrix.md, row by row."""

from __future__ import annotations

from collections.abc import Sequence


def with_rows(page: str, table_name: str, lines: Sequence[str]) -> str:
    """The page with these rows in the place of those of the same client and way; others stay as they are."""
    before, begin, rest = page.partition(f"<!-- {table_name}: made by make bench -->")
    table, end, after = rest.partition(f"<!-- end of {table_name} -->")
    head, rows = table.strip("\n").split("\n")[:2], table.strip("\n").split("\n")[2:]
    kept = {_key(line): line for line in rows} | {_key(line): line for line in lines}
    return f"{before}{begin}\n" + "\n".join([*head, *kept.values()]) + f"\n{end}{after}"


def _key(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.split("|")[1:3])
