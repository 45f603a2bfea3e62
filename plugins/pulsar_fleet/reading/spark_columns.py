"""Columns of a Spark data source: their Arrow schema says what Spark is told (pure)."""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.map_(pa.string(), pa.string())
_SQL = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    TIME: "timestamp",
    TEXTS: "map<string,string>",
}


def spark_schema(columns: pa.Schema) -> str:
    """The columns in Spark's own words."""
    return ", ".join(f"`{column.name}` {_SQL[column.type]}" for column in columns)
