"""Whether a schema may follow others under a strategy, as far as that can be told without a broker (pure)."""

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


class Judgement(IntEnum):
    """In order of gravity: the graver of two counts."""

    COMPATIBLE = 0
    UNDECIDED = 1
    INCOMPATIBLE = 2


def judge(strategy: str, new: SchemaState, existing: Sequence[SchemaState]) -> Judgement:
    """Whether a broker would take `new` after `existing` (oldest first); its own rules for Avro and JSON.

    :param strategy: the effective one; any other text if it is not known.
    """
    if not existing or any(same_schema(new, one) for one in existing):
        return Judgement.COMPATIBLE
    if strategy == "ALWAYS_INCOMPATIBLE":
        return Judgement.INCOMPATIBLE
    if any(one.type != new.type for one in existing):
        return Judgement.INCOMPATIBLE if strategy != "ALWAYS_COMPATIBLE" else Judgement.UNDECIDED
    if strategy == "ALWAYS_COMPATIBLE":
        return Judgement.COMPATIBLE
    if new.type not in _BY_AVRO_RULES or strategy not in _JUDGED:
        return Judgement.UNDECIDED
    against = existing if strategy.endswith("_TRANSITIVE") else existing[-1:]
    return max(_judge_pair(strategy.removesuffix("_TRANSITIVE"), new, one) for one in against)


def same_schema(one: SchemaState, other: SchemaState) -> bool:
    """Whether two versions define the same, white space and properties apart."""
    return one.type == other.type and _parsed(one.schema) == _parsed(other.schema)


def _judge_pair(strategy: str, new: SchemaState, old: SchemaState) -> Judgement:
    found = Judgement.COMPATIBLE
    if strategy in ("BACKWARD", "FULL"):
        found = max(found, readable(written=_parsed(old.schema), reader=_parsed(new.schema)))
    if strategy in ("FORWARD", "FULL"):
        found = max(found, readable(written=_parsed(new.schema), reader=_parsed(old.schema)))
    return found


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def readable(*, written: Json, reader: Json) -> Judgement:
    """Whether data written with one Avro schema can be read with another, by Avro's rules of resolution."""
    try:
        return _Resolution().resolve(written, reader)
    except (KeyError, TypeError):
        # Not an Avro schema after all: some JSON schemas of old clients are of another kind.
        return Judgement.UNDECIDED


class _Resolution:
    """One comparison; remembers named types, since schemas may refer to them and to themselves."""

    def __init__(self) -> None:
        self._written: dict[str, Json] = {}
        self._reader: dict[str, Json] = {}
        self._seen: set[tuple[str, str]] = set()

    def resolve(self, written: Json, reader: Json) -> Judgement:
        written, reader = _named(written, self._written), _named(reader, self._reader)
        if isinstance(written, list):
            return max((self.resolve(one, reader) for one in written), default=Judgement.COMPATIBLE)
        if isinstance(reader, list):
            return min((self.resolve(written, one) for one in reader), default=Judgement.INCOMPATIBLE)
        kind, wanted = _kind(written), _kind(reader)
        if kind != wanted:
            fits = wanted in _PROMOTED.get(kind, ())
            return Judgement.COMPATIBLE if fits else Judgement.INCOMPATIBLE
        match kind:
            case "record":
                return self._records(written, reader)
            case "array":
                return self.resolve(written["items"], reader["items"])
            case "map":
                return self.resolve(written["values"], reader["values"])
            case "enum":
                # The broker lets symbols come and go (observed); a reader fails at the first one that it lacks.
                return Judgement.COMPATIBLE if written["name"] == reader["name"] else Judgement.UNDECIDED
            case "fixed":
                return Judgement.COMPATIBLE if written["size"] == reader["size"] else Judgement.INCOMPATIBLE
        return Judgement.COMPATIBLE if kind else Judgement.UNDECIDED

    def _records(self, written: Json, reader: Json) -> Judgement:
        names = (str(written.get("name")), str(reader.get("name")))
        if names in self._seen:
            return Judgement.COMPATIBLE
        self._seen.add(names)
        # Brokers of different versions judge a renamed record differently.
        found = Judgement.COMPATIBLE if names[0] == names[1] else Judgement.UNDECIDED
        there = {field["name"]: field for field in written["fields"]}
        for field in reader["fields"]:
            if field["name"] in there:
                found = max(found, self.resolve(there[field["name"]]["type"], field["type"]))
            elif "default" not in field:
                found = max(found, Judgement.UNDECIDED if field.get("aliases") else Judgement.INCOMPATIBLE)
        return found


def _named(schema: Json, known: dict[str, Json]) -> Json:
    """The definition behind a name, without a wrapper around it; a definition is remembered under its name."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
        schema = schema["type"]
    if isinstance(schema, str):
        return known.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, dict) and "name" in schema:
        known[str(schema["name"]).rpartition(".")[2]] = schema
    return schema


def _kind(schema: Json) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return kind if isinstance(kind, str) else ""
