"""A partitioned topic as single fields that mean the same on every cluster (pure).

Partition counts and schema histories only grow: where one of two values contains the other, the larger one counts,
whenever either was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import quote, unquote

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName, own_topic_properties
from pulsar_fleet.planning.diff import schema_values
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.fields import Values
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.snapshot.model import SchemaState, TopicState

PARTITIONS, SCHEMAS, PROPERTIES = "partitions", "schemas", "properties"
GROWING = (PARTITIONS, SCHEMAS)
_MOST_PARTITIONS = 100_000
"""A larger count in an event is no partition count: it is not searched for smaller ones."""


def partitioned_values(topic: TopicState, schemas: Iterable[SchemaState]) -> Values:
    """The fields of a partitioned topic: its partition count, each of its properties, its schema history."""
    own = own_topic_properties(topic.properties)
    properties = {f"{PROPERTIES}/{quote(name, safe='')}": value for name, value in own.items()}
    history = schema_values(schemas)
    return {PARTITIONS: topic.partitions, **properties, **({SCHEMAS: history} if history else {})}


def properties_of(values: Mapping[str, Json]) -> dict[str, str]:
    """The properties of a topic as one document."""
    prefix = f"{PROPERTIES}/"
    properties = {unquote(name.removeprefix(prefix)): text for name, text in values.items() if name.startswith(prefix)}
    return own_topic_properties(properties)


def topic_document(values: Mapping[str, Json]) -> JsonObject:
    """A topic as it is created: partition count and properties."""
    return {PARTITIONS: values.get(PARTITIONS), PROPERTIES: properties_of(values)}


def is_synchronised(topic: TopicName) -> bool:
    """Whether a topic of this name can take part: no system topic, no partition, none that stores no message."""
    return topic.persistent and not topic.is_system and topic.partition_index is None


def largest(values: Collection[Json]) -> Json:
    """The value of a growing field that contains all others; None if there is none."""
    return next((value for value in values if all(_contains(value, other) for other in values)), None)


def has_grown(value: Json, earlier: str) -> bool:
    """Whether a value of a growing field contains the one with this digest; an unset value is contained in none."""
    return any(digest(smaller) == earlier for smaller in _contained(value))


def _contains(value: Json, other: Json) -> bool:
    if isinstance(value, int) and isinstance(other, int):
        return value >= other
    return isinstance(value, list) and isinstance(other, list) and same(value[: len(other)], other)


def _contained(value: Json) -> Iterator[Json]:
    """The smaller values that a value contains, the largest first; none of a value with another shape."""
    if type(value) is int and value <= _MOST_PARTITIONS:
        yield from range(value - 1, 0, -1)
    elif isinstance(value, list):
        yield from (value[:count] for count in range(len(value) - 1, 0, -1))
