"""Snapshots as artefacts: one Parquet table per kind of resource, and a manifest that proves them."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

from pulsar_fleet.cluster.errors import Rejected
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.states import TABLES, Snapshot
from pulsar_fleet.records.artefacts import Artefacts, Reference

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
_PLAIN = {"str": "string", "int": "int64", "bool": "bool_"}
_HEAD = ("cluster", "began", "ended", "key_id", "selection", "known_clusters", "resource_groups", "calls")


def store_snapshot(artefacts: Artefacts, run_id: str, snapshot: Snapshot, *, name: str) -> Reference:
    """Write the tables and the manifest below `name`; the manifest's reference stands for the whole snapshot.

    The same name again replaces it, as a retried task must.
    """
    tables = {
        table: artefacts.write(run_id, f"{name}/{table}.parquet", _encode(kind, getattr(snapshot, table))).to_json()
        for table, kind in TABLES.items()
    }
    manifest = {
        "schema_version": SCHEMA_VERSION,
        **{key: getattr(snapshot, key) for key in _HEAD},
        "complete": snapshot.complete,
        "counts": snapshot.counts(),
        "tables": tables,
    }
    return artefacts.write(run_id, f"{name}/{MANIFEST}", json.dumps(manifest, indent=1).encode())


def load_snapshot(artefacts: Artefacts, reference: Reference) -> Snapshot:
    """Read a snapshot back; every table must be the one that was written."""
    manifest = json.loads(artefacts.read(reference))
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise Rejected(
            f"The snapshot {reference.uri} has schema version {manifest.get('schema_version')!r}, this release reads "
            f"{SCHEMA_VERSION}: take it again."
        )
    rows: dict[str, Any] = {
        table: _decode(kind, artefacts.read(Reference.from_json(manifest["tables"][table])))
        for table, kind in TABLES.items()
    }
    head: dict[str, Any] = {key: _tupled(manifest[key]) for key in _HEAD}
    return Snapshot(**head, **rows)


def _encode(kind: type, rows: tuple[Any, ...]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = dataclasses.fields(kind)
    schema = pa.schema([(one.name, getattr(pa, _PLAIN.get(str(one.type), "string"))()) for one in fields])
    columns = {one.name: [_cell(str(one.type), getattr(row, one.name)) for row in rows] for one in fields}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _decode(kind: type, content: bytes) -> tuple[Any, ...]:
    import pyarrow.parquet as pq

    types = {one.name: str(one.type) for one in dataclasses.fields(kind)}
    rows: list[JsonObject] = pq.read_table(io.BytesIO(content)).to_pylist()
    return tuple(
        kind(**{name: value if types[name] in _PLAIN else _tupled(json.loads(value)) for name, value in row.items()})
        for row in rows
    )


def _cell(kind: str, value: Json) -> Json:
    return value if kind in _PLAIN else json.dumps(value, sort_keys=True)


def _tupled(value: Json) -> Json:
    return tuple(value) if isinstance(value, list) else value
