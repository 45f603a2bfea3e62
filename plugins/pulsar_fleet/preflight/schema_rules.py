"""Whether a schema may follow others under a strategy, as far as it can be decided without a broker (pure)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.snapshot.model import SchemaState

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_BY_AVRO_RULES = frozenset({"AVRO", "JSON"})
_JUDGED = frozenset(f"{name}{suffix}" for name in ("BACKWARD", "FORWARD", "FULL") for suffix in ("", "_TRANSITIVE"))


class SchemaFit(IntEnum):
    """Whether a schema is compatible, in order of severity: the higher of two results counts."""

    COMPATIBLE = 0
    UNDECIDED = 1
    INCOMPATIBLE = 2


def check_schema(strategy: str, new: SchemaState, existing: Sequence[SchemaState]) -> SchemaFit:
    """Whether a broker would accept `new` after `existing` (oldest first), by the broker's rules for Avro and JSON.

    :param strategy: the effective strategy; any other text if it is unknown.
    """
    if not existing or any(same_schema(new, version) for version in existing):
        return SchemaFit.COMPATIBLE
    if strategy == "ALWAYS_INCOMPATIBLE":
        return SchemaFit.INCOMPATIBLE
    if any(version.type != new.type for version in existing):
        return SchemaFit.INCOMPATIBLE if strategy != "ALWAYS_COMPATIBLE" else SchemaFit.UNDECIDED
    if strategy == "ALWAYS_COMPATIBLE":
        return SchemaFit.COMPATIBLE
    if new.type not in _BY_AVRO_RULES or strategy not in _JUDGED:
        return SchemaFit.UNDECIDED
    against = existing if strategy.endswith("_TRANSITIVE") else existing[-1:]
    return max(_judge_pair(strategy.removesuffix("_TRANSITIVE"), new, version) for version in against)


def same_schema(first: SchemaState, second: SchemaState) -> bool:
    """Whether two versions define the same schema; white space and properties are ignored."""
    return first.type == second.type and _parsed(first.schema) == _parsed(second.schema)


def _judge_pair(strategy: str, new: SchemaState, old: SchemaState) -> SchemaFit:
    fit = SchemaFit.COMPATIBLE
    if strategy in ("BACKWARD", "FULL"):
        fit = max(fit, readable(written=_parsed(old.schema), reader=_parsed(new.schema)))
    if strategy in ("FORWARD", "FULL"):
        fit = max(fit, readable(written=_parsed(new.schema), reader=_parsed(old.schema)))
    return fit


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def readable(*, written: Json, reader: Json) -> SchemaFit:
    """Whether data written with one Avro schema can be read with another, by Avro's rules of resolution."""
    try:
        return _Resolution().resolve(written, reader)
    except (KeyError, TypeError):
        # Not an Avro schema: old clients registered some JSON schemas in another format.
        return SchemaFit.UNDECIDED


class _Resolution:
    """One comparison; it stores named types, since schemas may refer to them and to themselves."""

    def __init__(self) -> None:
        self._written: dict[str, Json] = {}
        self._reader: dict[str, Json] = {}
        self._compared: set[tuple[str, str]] = set()

    def resolve(self, written: Json, reader: Json) -> SchemaFit:
        written, reader = _named(written, self._written), _named(reader, self._reader)
        if isinstance(written, list):
            return max((self.resolve(branch, reader) for branch in written), default=SchemaFit.COMPATIBLE)
        if isinstance(reader, list):
            return min((self.resolve(written, branch) for branch in reader), default=SchemaFit.INCOMPATIBLE)
        kind, reader_kind = _kind(written), _kind(reader)
        if kind != reader_kind:
            fits = reader_kind in _PROMOTED.get(kind, ())
            return SchemaFit.COMPATIBLE if fits else SchemaFit.INCOMPATIBLE
        match kind:
            case "record":
                return self._records(written, reader)
            case "array":
                return self.resolve(written["items"], reader["items"])
            case "map":
                return self.resolve(written["values"], reader["values"])
            case "enum":
                # The broker accepts added and removed symbols (observed); a reader fails on the first that it lacks.
                return SchemaFit.COMPATIBLE if written["name"] == reader["name"] else SchemaFit.UNDECIDED
            case "fixed":
                return SchemaFit.COMPATIBLE if written["size"] == reader["size"] else SchemaFit.INCOMPATIBLE
        return SchemaFit.COMPATIBLE if kind else SchemaFit.UNDECIDED

    def _records(self, written: Json, reader: Json) -> SchemaFit:
        names = (str(written.get("name")), str(reader.get("name")))
        if names in self._compared:
            return SchemaFit.COMPATIBLE
        self._compared.add(names)
        # Brokers of different versions decide differently about a renamed record.
        fit = SchemaFit.COMPATIBLE if names[0] == names[1] else SchemaFit.UNDECIDED
        written_fields = {field["name"]: field for field in written["fields"]}
        for field in reader["fields"]:
            if field["name"] in written_fields:
                fit = max(fit, self.resolve(written_fields[field["name"]]["type"], field["type"]))
            elif "default" not in field:
                fit = max(fit, SchemaFit.UNDECIDED if field.get("aliases") else SchemaFit.INCOMPATIBLE)
        return fit


def _named(schema: Json, definitions: dict[str, Json]) -> Json:
    """The definition of a name, without a wrapper around it; a definition is stored under its name."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
        schema = schema["type"]
    if isinstance(schema, str):
        return definitions.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, dict) and "name" in schema:
        definitions[str(schema["name"]).rpartition(".")[2]] = schema
    return schema


def _kind(schema: Json) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return kind if isinstance(kind, str) else ""
