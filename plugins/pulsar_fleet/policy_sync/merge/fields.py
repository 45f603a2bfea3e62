"""Documents of policies and partitioned topics as single fields that mean the same on every cluster, and back (pure).

Permissions, properties and quotas are split into their entries, so that edits of different entries do not conflict. In
a list of clusters the cluster's own name becomes `$self` if the list names no other cluster of the fleet.

Partition counts and schema histories only grow: where one of two values contains the other, the larger one counts,
whenever either was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import quote, unquote

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName, own_topic_properties
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.model import OWN_LIST, TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_comparable
from pulsar_fleet.planning.diff import schema_values
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.snapshot.model import SchemaState, TenantState, TopicState

SELF = "$self"
ROLES, CLUSTERS = "adminRoles", "allowedClusters"
_IN_ENTRIES = (Kind.GRANTS, Kind.PROPERTIES, Kind.QUOTAS)

Values = dict[str, Json]
"""Field → value, only of fields that are set. `retention_policies`, `properties/owner`, `local/maxProducers`."""


_LISTS = frozenset({CLUSTERS, "allowed_clusters", "replication_clusters", OWN_LIST})


def tenant_values(tenant: TenantState, fleet: Collection[str], own: str) -> Values:
    """The fields of a tenant."""
    return {ROLES: list(tenant.admin_roles), CLUSTERS: neutral(tenant.allowed_clusters, fleet, own)}


def namespace_values(document: Mapping[str, Json], fleet: Collection[str], own: str) -> Values:
    """The fields of a namespace that clusters can share: without local settings and settings for its creation."""
    values: Values = {}
    for field, value in comparable(document, own).items():
        policy = BY_FIELD.get(field)
        if policy is not None and (policy.own or policy.kind is Kind.AT_CREATION):
            continue
        if field in _LISTS:
            values[field] = neutral(value, fleet, own)
        elif policy is not None and policy.kind in _IN_ENTRIES:
            values |= {_key(field, *path): entry for path, entry in _entries(value, deep=policy.kind is Kind.GRANTS)}
        else:
            values[field] = value
    return values


def topic_values(documents: Mapping[str, Mapping[str, Json]], fleet: Collection[str], own: str) -> Values:
    """The policies of a topic that can be copied to other clusters, by the text of their `TopicPolicyField`.

    :param documents: scope → the document as the broker stores it.
    """
    values: Values = {}
    for scope in map(Scope, documents):
        for name, value in topic_comparable(documents[scope]).items():
            policy = TOPIC_BY_FIELD.get(name)
            if policy is not None and not policy.is_copied(scope):
                continue
            field = str(TopicPolicyField(scope, name))
            values[field] = neutral(value, fleet, own) if field in _LISTS else value
    return values


def policy_of(field: str) -> str:
    """The policy of a namespace to which a field belongs: `properties` for `properties/owner`."""
    return field.partition("/")[0]


def whole_value(policy: str, values: Mapping[str, Json], own: str) -> Json:
    """The comparable value of one policy, composed of its fields; None if none of them is set."""
    if policy in _LISTS:
        return localised(values.get(policy), own)
    row = BY_FIELD.get(policy)
    if row is None or row.kind not in _IN_ENTRIES:
        return values.get(policy)
    whole: JsonObject = {}
    for field, value in values.items():
        if policy_of(field) == policy:
            _put(whole, [unquote(part) for part in field.split("/")[1:]], value)
    return whole or None


def entry_of(whole: Json, field: str) -> Json:
    """The value of a field such as `properties/owner` in the value of its policy; None if it is not set."""
    for part in field.split("/")[1:]:
        whole = (whole or {}).get(unquote(part))
    return whole


def neutral(names: Collection[str], fleet: Collection[str], own: str) -> list[str]:
    """A cluster list with `$self` for the cluster's own name."""
    if set(names) & set(fleet) != {own}:
        return sorted(names)
    return sorted({SELF if name == own else name for name in names})


def localised(names: Json, own: str) -> Json:
    """A neutral list with the name of one cluster instead of `$self`."""
    return None if names is None else sorted({own if name == SELF else name for name in names})


def is_cluster_list(field: str) -> bool:
    """Whether a field lists clusters. **Hazard**: a list without the serving cluster's own name deletes topics."""
    return field in _LISTS


def namespace_document(values: Mapping[str, Json]) -> JsonObject:
    """The fields of a namespace as one document, by policy, that means the same on every cluster."""
    return {policy: whole_value(policy, values, SELF) for policy in sorted({policy_of(name) for name in values})}


def values_of_document(document: Mapping[str, Json]) -> Values:
    """Read what `namespace_document` wrote, also after manual edits: lists may have any order."""
    keyed = {
        policy: {SELF: value} if policy in BY_FIELD and BY_FIELD[policy].kind is Kind.CLUSTER_MAP else value
        for policy, value in document.items()
    }
    return namespace_values(keyed, (SELF,), SELF)


def with_policy(document: Mapping[str, Json], policy: str, value: Json, own: str) -> JsonObject:
    """The document of a namespace with one policy set to a comparable value; None unsets it."""
    row = BY_FIELD.get(policy)
    others = {field: old for field, old in document.items() if field != policy}
    if row is not None and row.kind is Kind.CLUSTER_MAP:
        entries = {name: entry for name, entry in (document.get(policy) or {}).items() if name != own}
        return {**others, policy: entries if value is None else {**entries, own: value}}
    return others if value is None else {**others, policy: value}


def _entries(value: JsonObject, *, deep: bool) -> Iterator[tuple[tuple[str, ...], Json]]:
    for name, entry in value.items():
        if deep and isinstance(entry, dict):
            for path, inner in _entries(entry, deep=True):
                yield (name, *path), inner
        else:
            yield (name,), entry


def _key(field: str, *path: str) -> str:
    return "/".join((field, *(quote(part, safe="") for part in path)))


def _put(tree: JsonObject, path: list[str], value: Json) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


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
