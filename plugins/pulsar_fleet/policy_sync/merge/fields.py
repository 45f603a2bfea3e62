"""Documents of policies as single fields that mean the same on every cluster, and back (pure).

Rights, properties and quotas are taken apart into their entries, so that two edits of different entries never meet. In
lists of clusters a cluster's own name becomes `$self`, where the list names no other cluster of the fleet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from urllib.parse import quote, unquote

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, Kind
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_comparable
from pulsar_fleet.snapshot.model import TenantState

SELF = "$self"
ROLES, CLUSTERS = "adminRoles", "allowedClusters"
_LISTS = frozenset({CLUSTERS, "allowed_clusters", "replication_clusters", "local/replicationClusters"})
_IN_ENTRIES = (Kind.GRANTS, Kind.PROPERTIES, Kind.QUOTAS)

Values = dict[str, Json]
"""Field → value, only of fields that are set. `retention_policies`, `properties/owner`, `local/maxProducers`."""


def tenant_values(tenant: TenantState, fleet: Collection[str], own: str) -> Values:
    """The fields of a tenant."""
    return {ROLES: list(tenant.admin_roles), CLUSTERS: neutral(tenant.allowed_clusters, fleet, own)}


def namespace_values(document: Mapping[str, Json], fleet: Collection[str], own: str) -> Values:
    """The fields of a namespace that clusters can agree on: not what each keeps for itself or takes once, when made."""
    found: Values = {}
    for field, value in comparable(document, own).items():
        policy = BY_FIELD.get(field)
        if policy is not None and (policy.own or policy.kind is Kind.AT_CREATION):
            continue
        if field in _LISTS:
            found[field] = neutral(value, fleet, own)
        elif policy is not None and policy.kind in _IN_ENTRIES:
            found |= {_key(field, *path): one for path, one in _entries(value, deep=policy.kind is Kind.GRANTS)}
        else:
            found[field] = value
    return found


def topic_values(documents: Mapping[str, Mapping[str, Json]], fleet: Collection[str], own: str) -> Values:
    """The policies of a topic that can be carried, by `scope/field`.

    :param documents: scope → the document as the broker keeps it.
    """
    found: Values = {}
    for scope, document in documents.items():
        for field, value in topic_comparable(document).items():
            policy = TOPIC_BY_FIELD.get(field)
            if policy is not None and not policy.carried(Scope(scope)):
                continue
            key = f"{scope}/{field}"
            found[key] = neutral(value, fleet, own) if key in _LISTS else value
    return found


def policy_of(field: str) -> str:
    """The policy of a namespace in which a field lies: `properties` of `properties/owner`."""
    return field.partition("/")[0]


def whole_value(policy: str, values: Mapping[str, Json], own: str) -> Json:
    """The comparable value of one policy, put together from its fields; None when none of them is set."""
    if policy in _LISTS:
        return localised(values.get(policy), own)
    row = BY_FIELD.get(policy)
    if row is None or row.kind not in _IN_ENTRIES:
        return values.get(policy)
    found: JsonObject = {}
    for field, value in values.items():
        if policy_of(field) == policy:
            _put(found, [unquote(part) for part in field.split("/")[1:]], value)
    return found or None


def neutral(names: Collection[str], fleet: Collection[str], own: str) -> list[str]:
    """A cluster list as every cluster of the fleet would have it."""
    if set(names) & set(fleet) != {own}:
        return sorted(names)
    return sorted({SELF if name == own else name for name in names})


def localised(names: Json, own: str) -> Json:
    """A neutral list in the terms of one cluster."""
    return None if names is None else sorted({own if name == SELF else name for name in names})


def is_cluster_list(field: str) -> bool:
    """Whether a field names clusters: without the serving cluster's own name it deletes topics."""
    return field in _LISTS


def namespace_document(values: Mapping[str, Json]) -> JsonObject:
    """A namespace's fields as one document, policy by policy, that means the same on every cluster."""
    return {policy: whole_value(policy, values, SELF) for policy in sorted({policy_of(name) for name in values})}


def values_of_document(document: Mapping[str, Json]) -> Values:
    """Read what `namespace_document` made, also when a person has edited it: lists come in any order."""
    keyed = {
        policy: {SELF: value} if policy in BY_FIELD and BY_FIELD[policy].kind is Kind.CLUSTER_MAP else value
        for policy, value in document.items()
    }
    return namespace_values(keyed, (SELF,), SELF)


def with_policy(document: Mapping[str, Json], policy: str, value: Json, own: str) -> JsonObject:
    """The document of a namespace with one policy as a comparable value says."""
    row = BY_FIELD.get(policy)
    rest = {field: one for field, one in document.items() if field != policy}
    if row is not None and row.kind is Kind.CLUSTER_MAP:
        others = {name: one for name, one in (document.get(policy) or {}).items() if name != own}
        return {**rest, policy: others if value is None else {**others, own: value}}
    return rest if value is None else {**rest, policy: value}


def _entries(value: JsonObject, *, deep: bool) -> Iterator[tuple[tuple[str, ...], Json]]:
    for name, one in value.items():
        if deep and isinstance(one, dict):
            for path, inner in _entries(one, deep=True):
                yield (name, *path), inner
        else:
            yield (name,), one


def _key(field: str, *path: str) -> str:
    return "/".join((field, *(quote(part, safe="") for part in path)))


def _put(tree: JsonObject, path: list[str], value: Json) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value
