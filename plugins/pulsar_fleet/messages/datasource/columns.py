"""Messages as rows: every field that the pulsar client provides."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from pulsar_fleet.messages.message_ids import position_of

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
    """The columns as a Spark DDL string."""
    return ", ".join(f"`{column.name}` {_SQL[column.type]}" for column in columns)


MESSAGE_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("batch", pa.int32()),
        ("key", pa.string()),
        ("ordering_key", pa.string()),
        ("publish_time", TIME),
        ("event_time", TIME),
        ("producer", pa.string()),
        ("schema_version", pa.int64()),
        ("properties", TEXTS),
        ("value", pa.binary()),
    ]
)


def message_row(message: Any, topic: str) -> dict[str, Any]:
    """The columns of one message; a field that is not set is null, and so is an absent value."""
    at, event_time = position_of(message), message.event_timestamp()
    return {
        "topic": topic,
        "ledger": at.ledger,
        "entry": at.entry,
        "batch": message.message_id().batch_index(),
        "key": message.partition_key() or None,
        "ordering_key": message.ordering_key() or None,
        "publish_time": _time(message.publish_timestamp()),
        "event_time": _time(event_time) if event_time else None,
        "producer": message.producer_name(),
        "schema_version": message.int_schema_version(),
        "properties": list(message.properties().items()),
        "value": None if message.has_null_value() else message.data(),
    }


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
