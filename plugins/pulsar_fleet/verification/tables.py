"""Verdicts as tables, for whoever asks many runs at once: a row for each topic, a row for each named message."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pulsar_fleet.reading.environment import Side
from pulsar_fleet.verification.verdict import Verification

if TYPE_CHECKING:
    import pyarrow as pa

_TOPIC_FIELDS = ("topic", "verdict", "source_messages", "target_messages", "differing", "reordered", "reason", "engine")
_DIFFERENCE_FIELDS = ("kind", "source", "target", "key", "publish_time", "producer", "cause")


def verdict_tables(found: Verification) -> dict[str, bytes]:
    """Two Parquet files by name: `topics.parquet` and `differences.parquet`, which has no row where all is equal."""
    topics, differences = [], []
    for namespace in found.namespaces:
        for topic in namespace.topics:
            plain = topic.to_json()
            bounds = {f"{side}_bounds": topic.bounds.get(side, "") for side in Side}
            notes = {"notes": "\n".join(topic.notes), "proof": json.dumps(topic.proof)}
            topics.append(
                {"namespace": namespace.namespace, **{name: plain[name] for name in _TOPIC_FIELDS}} | bounds | notes
            )
            for each in plain["differences"]:
                fields = {"fields": json.dumps(each["fields"]), "copies": json.dumps(each["copies"])}
                differences.append(
                    {"topic": topic.topic, **{name: each[name] for name in _DIFFERENCE_FIELDS}, **fields}
                )
    return {
        "topics.parquet": _parquet(topics, _topic_columns()),
        "differences.parquet": _parquet(differences, _difference_columns()),
    }


def _topic_columns() -> pa.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    kinds = {"source_messages": number, "target_messages": number, "differing": number, "reordered": pa.bool_()}
    names = ("namespace", *_TOPIC_FIELDS, "source_bounds", "target_bounds", "notes", "proof")
    return pa.schema([(name, kinds.get(name, text)) for name in names])


def _difference_columns() -> pa.Schema:
    import pyarrow as pa

    names = ("topic", *_DIFFERENCE_FIELDS, "fields", "copies")
    return pa.schema([(name, pa.int64() if name == "publish_time" else pa.string()) for name in names])


def _parquet(rows: list[dict[str, Any]], columns: pa.Schema) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=columns), content)
    return content.getvalue()
