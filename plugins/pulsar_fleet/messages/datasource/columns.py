"""Messages as rows: every field that a client of Pulsar provides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from pulsar_fleet.messages.protocol.stored_entry import StoredMessage, optional_text, signed, text

TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.map_(pa.string(), pa.string())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
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
        ("event_time_ms", pa.int64()),
        ("producer", pa.string()),
        ("schema_version", pa.int64()),
        ("properties", TEXTS),
        ("value", pa.binary()),
    ]
)


def message_row(message: StoredMessage, topic: str) -> dict[str, Any]:
    """The columns of one message; a field that is not set is null, and so is an absent value."""
    version = message.schema_version
    event_time = None if message.event_time is None else signed(message.event_time)
    return {
        "topic": topic,
        "ledger": message.ledger,
        "entry": message.entry,
        "batch": message.batch,
        "key": optional_text(message.key),
        "ordering_key": optional_text(message.ordering_key),
        "publish_time": _time(signed(message.publish_time)),
        "event_time": _time(event_time),
        "event_time_ms": event_time,
        "producer": text(message.producer),
        "schema_version": -1 if version is None else int.from_bytes(version, "big"),
        "properties": [(text(name), text(value)) for name, value in message.properties.items()],
        "value": None if message.null_value else message.payload,
    }


def _time(milliseconds: int | None) -> datetime | None:
    """None also beyond the years 1 to 9999, the range of Spark's timestamps: producers write what they like."""
    if milliseconds is None or not _FIRST_MS <= milliseconds <= _LAST_MS:
        return None
    return _EPOCH + timedelta(milliseconds=milliseconds)
