"""Convert rows of a snapshot to Parquet columns and back: plain values unchanged, documents as JSON text (pure)."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.snapshot.model import (
    TABLES,
    UNREAD_RANGES,
    InventoryState,
    NamespaceState,
    Row,
    SchemaState,
    SubscriptionState,
    TopicPolicyState,
    TopicState,
)

if TYPE_CHECKING:
    import pyarrow as pa

NAMESPACE = "in_namespace"
"""An additional column of the tables by namespace, to find the rows of a namespace without reading the others."""
ABSENT = "{}"
"""The cells of a column that an earlier release did not write, unless it is `acknowledged_ranges`, of numbers."""
TOPIC = "topic"
"""The column with the topic's name in the tables of schemas, subscriptions and topic policies."""

_PLAIN = {"str": "string", "int": "int64", "bool": "bool_"}
TABLE_OF: dict[type, str] = {kind: table for table, kind in TABLES.items()}
_BY_NAMESPACE = (NamespaceState, TopicState, SchemaState, SubscriptionState, TopicPolicyState, InventoryState)


def is_by_namespace(table: str) -> bool:
    """Whether every row of the table belongs to a namespace."""
    return issubclass(TABLES[table], _BY_NAMESPACE)


def namespace_of(row: Row) -> str:
    """The namespace of a row; empty for a row that belongs to none."""
    match row:
        case NamespaceState():
            return row.name
        case TopicState():
            return namespace_of_topic(row.name)
        case SchemaState() | SubscriptionState() | TopicPolicyState():
            return namespace_of_topic(row.topic)
        case InventoryState():
            return row.namespace
        case _:
            return ""


def namespace_of_topic(name: str) -> str:
    """The namespace in a topic's name."""
    return "/".join(name.split("/", 4)[2:4])


def arrow_schema(table: str) -> pa.Schema:
    """The columns of a table."""
    import pyarrow as pa

    columns = [(name, getattr(pa, _PLAIN.get(kind, "string"))()) for name, kind in _fields(table)]
    return pa.schema([*columns, *([(NAMESPACE, pa.string())] if is_by_namespace(table) else [])])


def to_columns(table: str, rows: Sequence[Row]) -> pa.Table:
    """Rows as columns of their table."""
    import pyarrow as pa

    columns: dict[str, list[Json]] = {
        name: [value if kind in _PLAIN else _document(value) for value in (getattr(row, name) for row in rows)]
        for name, kind in _fields(table)
    }
    if is_by_namespace(table):
        columns[NAMESPACE] = [namespace_of(row) for row in rows]
    return pa.table(columns, schema=arrow_schema(table))


def from_columns(table: str, part: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch of their table. Strings and keys that repeat within the batch share one object."""
    kind: Any = TABLES[table]
    columns = [_values(_cells(part, name, plain), plain) for name, plain in _fields(table)]
    for values in zip(*columns, strict=True):
        yield kind(*values)


def _cells(part: pa.RecordBatch, name: str, kind: str) -> list[Json]:
    absent = UNREAD_RANGES if kind == "int" else ABSENT
    return part.column(name).to_pylist() if name in part.schema.names else [absent] * len(part)


def _values(cells: list[Json], kind: str) -> list[Json]:
    if kind == "str":
        return [sys.intern(cell) for cell in cells]
    if kind in _PLAIN:
        return cells
    # One parse for all cells lets equal keys share one object: documents repeat their keys thousands of times.
    parsed = json.loads(f"[{','.join(cells)}]")
    return [tuple(value) if isinstance(value, list) else value for value in parsed]


def _fields(table: str) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in dataclasses.fields(TABLES[table])]


def _document(value: Json) -> str:
    return json.dumps(value, sort_keys=True) if value else ("{}" if isinstance(value, dict) else "[]")
