"""Policies documents: translate, normalize, compare and validate them; join rights, and name revoked ones (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.namespace_catalogue import (
    BY_FIELD,
    CATALOGUE,
    KEYED_BY_CLUSTER,
    Kind,
    Policy,
    unknown_fields,
)
from pulsar_fleet.cluster.policies.refusals import Level, exceeding_quota
from pulsar_fleet.cluster.runs.overrides import PROPERTY as OVERRIDES


def joined_grants(first: JsonObject, second: JsonObject) -> JsonObject:
    """The rights of both sides: of each role on the namespace and on each topic, and the roles of each subscription."""
    return {name: _joined(first.get(name), second.get(name)) for name in sorted({*first, *second})}


def _joined(first: Json, second: Json) -> Json:
    if isinstance(first, dict) or isinstance(second, dict):
        return joined_grants(first or {}, second or {})
    return sorted({*(first or ()), *(second or ())})


def revoked_rights(before: Json, after: Json) -> tuple[str, ...]:
    """What a change of `auth_policies` or of a tenant takes away: `produce of app`, `s of reader`, `adminRoles of ops`.

    :param before: comparable rights, or a tenant; None is none.
    """
    return tuple(_revoked(before or {}, after or {}))


def _revoked(before: JsonObject, after: JsonObject) -> Iterator[str]:
    old, new = (side.get("namespace_auth", {}) for side in (before, after))
    yield from _actions(old, new)
    topics, kept = (side.get("destination_auth", {}) for side in (before, after))
    for topic in sorted(topics):
        yield from (f"{text} on {topic}" for text in _actions(topics[topic], kept.get(topic, {})))
    subscriptions, roles = (side.get("subscription_auth_roles", {}) for side in (before, after))
    yield from (f"subscription {name} of {role}" for name, role in _lost(subscriptions, roles))
    admins, remaining = (side.get("adminRoles") or () for side in (before, after))
    yield from (f"the tenant of {role}" for role in sorted(set(admins) - set(remaining)))


def _actions(before: JsonObject, after: JsonObject) -> Iterator[str]:
    yield from (f"{action} of {role}" for role, action in _lost(before, after))


def _lost(before: JsonObject, after: JsonObject) -> Iterator[tuple[str, str]]:
    for name in sorted(before):
        yield from ((name, entry) for entry in sorted(set(before[name] or ()) - set(after.get(name) or ())))


# Fields that the broker adds to offload policies; 4.0 does not have the number of read threads.
_OFFLOAD_ADDED = ("s3Driver", "gcsDriver", "fileSystemDriver")
_OFFLOAD_DEFAULTS = {"managedLedgerOffloadReadThreads": 2, "managedLedgerExtraConfigurations": {}}
_WITHOUT_DRIVER = {"managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST"}
OFFLOAD_DRIVER = "managedLedgerOffloadDriver"

PROVENANCE_PROPERTIES = ("lastUpdatedBy", "lastUpdatedTime")
"""Properties in which PIP-136 stores who last wrote a namespace, and when; they are provenance, not policies."""

STORE_OF = "pulsar-fleet.store-of"
"""The property of an event topic's namespace that names the cluster which takes part with this configuration store."""

STRATEGIES = frozenset(
    {"UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"}
    | {"BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}
)


@dataclass(frozen=True, slots=True)
class Translated:
    """A document for another cluster.

    :param omitted_clusters: names removed from its lists, because the other cluster does not know them.
    """

    document: JsonObject
    omitted_clusters: tuple[str, ...]


def translate(
    document: Mapping[str, Json], source: str, target: str, known_clusters: Collection[str] | None = None
) -> Translated:
    """Convert the document of cluster `source` to one for cluster `target`.

    Renames cluster keys and lists, adds the target to its lists, removes clusters that are not in `known_clusters`
    (None: keeps all), and drops the broker's own state (`deleted`, `migrated`), the record of what a run overrides and
    the claim of a configuration store. Keeps unknown fields.
    """
    result = {
        field: deepcopy(value)
        for field, value in document.items()
        if field not in BY_FIELD or BY_FIELD[field].kind is not Kind.INTERNAL
    }
    omitted_clusters: set[str] = set()
    for field, value in result.items():
        if field in KEYED_BY_CLUSTER:
            result[field] = _rename_key(value or {}, source, target)
        elif field == "properties":
            result[field] = {key: text for key, text in (value or {}).items() if key not in (STORE_OF, OVERRIDES)}
        elif field == "replication_clusters" or (field == "allowed_clusters" and value):
            result[field], missing = translate_clusters(value or (), source, target, known_clusters)
            omitted_clusters.update(missing)
    return Translated(result, tuple(sorted(omitted_clusters)))


def translate_clusters(
    names: Iterable[str], source: str, target: str, known_clusters: Collection[str] | None = None
) -> tuple[list[str], tuple[str, ...]]:
    """A cluster list for `target`, which always includes it, and the omitted names.

    A list that has both clusters (they replicate to each other) keeps both; else the target replaces the source.
    """
    clusters = set(names)
    renamed = clusters if target in clusters else clusters - {source}
    kept = {name for name in renamed if known_clusters is None or name in known_clusters}
    return sorted(kept | {target}), tuple(sorted(renamed - kept - {target}))


_STORE_KEYS = (
    "configurationMetadataStoreUrl",
    "configurationStoreServers",
    "globalZookeeperServers",
    "metadataStoreUrl",
    "zookeeperServers",
)


def configuration_servers(configuration: Mapping[str, Json]) -> frozenset[str]:
    """The servers of the store for tenants and namespaces, from brokers' settings; empty for one inside a process.

    `zk:one:2181,two:2181/chroot` → each server with the common path.
    """
    url = next((str(configuration[key]) for key in _STORE_KEYS if configuration.get(key)), "")
    if url.startswith(("rocksdb:", "memory:")):
        return frozenset()
    hosts, _, folder = url.removeprefix("zk:").rpartition("://")[2].partition("/")
    return frozenset(f"{host.strip()}/{folder}" for host in hosts.split(",") if host)


def stored_policies(document: JsonObject) -> JsonObject:
    """The policies in the configuration store; each cluster stores bundles, affinity and the migrated flag itself."""
    own = ("bundles", "migrated", "bookie_affinity", "anti_affinity")
    return {field: value for field, value in document.items() if field not in own}


def comparable(document: Mapping[str, Json], own: str) -> dict[str, Json]:
    """The fields of a document that are set, normalized for comparison; `own` is the cluster's name.

    Fields that the catalogue does not have are kept.
    """
    fields = {policy.field: normalized(policy, document, own) for policy in CATALOGUE if policy.comparable}
    fields |= {field: without_nulls(document[field]) for field in unknown_fields(document)}
    return {field: value for field, value in fields.items() if value is not None}


def normalized(policy: Policy, document: Mapping[str, Json], own: str) -> Json:
    """The comparable value of one field; None when it is not set."""
    value = without_nulls(document.get(policy.field))
    if policy.kind is Kind.CLUSTER_MAP or policy.field in KEYED_BY_CLUSTER:
        value = (value or {}).get(own)
    elif policy.kind in (Kind.CLUSTER_LIST, Kind.NAMES):
        value = sorted(value or ())
    elif policy.kind is Kind.QUOTAS:
        value = quotas(value)
    elif policy.kind is Kind.PROPERTIES:
        ignored = (*PROVENANCE_PROPERTIES, STORE_OF, OVERRIDES)
        value = {key: text for key, text in (value or {}).items() if key not in ignored}
    elif policy.kind is Kind.GRANTS:
        value = _grants(value)
    elif policy.kind is Kind.OFFLOAD:
        value = offload(value)
    elif policy.kind is Kind.DELAYED:
        value = delayed_delivery(value)
    elif policy.kind is Kind.FLAG:
        value = value or None
    unset = value in (None, [], {}) or (policy.default is not None and value == policy.default)
    return None if unset else value


def quotas(value: Json) -> Json:
    """Backlog quotas without `limit`, which duplicates `limitSize`."""
    return {kind: {key: part for key, part in quota.items() if key != "limit"} for kind, quota in (value or {}).items()}


def offload(value: Json) -> Json:
    """Offload policies without the fields and defaults that the broker adds; without a driver 3.0 adds one more."""
    defaults = _OFFLOAD_DEFAULTS if (value or {}).get(OFFLOAD_DRIVER) else _OFFLOAD_DEFAULTS | _WITHOUT_DRIVER
    return {
        key: part
        for key, part in (value or {}).items()
        if key not in _OFFLOAD_ADDED and not (key in defaults and part == defaults[key])
    }


def delayed_delivery(value: Json) -> Json:
    """Delayed delivery without a limit of 0, which brokers add and which means none."""
    return {part: one for part, one in (value or {}).items() if (part, one) != ("maxDeliveryDelayInMillis", 0)}


def body_for_creation(document: Mapping[str, Json]) -> JsonObject:
    """The body of `PUT /namespaces` from a translated document: without local settings and the broker's own state."""
    skipped = (Kind.LOCAL, Kind.INTERNAL)
    return {
        field: value
        for field, value in document.items()
        if value is not None and (field not in BY_FIELD or BY_FIELD[field].kind not in skipped)
    }


def problems(document: Mapping[str, Json], own: str) -> tuple[str, ...]:
    """The errors in a document that is about to create a namespace; the broker would accept them."""
    return tuple(_problems(document, own))


def _problems(document: Mapping[str, Json], own: str) -> Iterator[str]:
    for field in ("replication_clusters", "allowed_clusters"):
        names = document.get(field) or []
        if (names or field == "replication_clusters") and own not in names:
            yield f"{field} {names!r} does not include {own!r}: its topics would be deleted"
    strategy = document.get("schema_compatibility_strategy", "UNDEFINED")
    if strategy not in STRATEGIES:
        yield f"schema_compatibility_strategy {strategy!r} is not one of {', '.join(sorted(STRATEGIES))}"
    for field, value in document.items():
        if field.startswith(("max_", "message_ttl", "subscription_expiration")) and (value or 0) < 0:
            yield f"{field} is {value!r}, must be at least 0"
    retention, backlog = document.get("retention_policies"), document.get("backlog_quota_map") or {}
    if kind := exceeding_quota(retention, backlog, Level.NAMESPACE):
        yield f"the backlog quota {kind} {backlog[kind]!r} is not below the retention {retention!r}"


def _rename_key(entries: Mapping[str, Json], source: str, target: str) -> JsonObject:
    others = {name: value for name, value in entries.items() if name not in (source, target)}
    if source in entries:
        return {**others, target: entries[source]}
    return {**others, **({target: entries[target]} if target in entries else {})}


def _grants(value: Json) -> Json:
    """Rights by section, sorted, without empty sections."""
    sections = {}
    for section, entries in (value or {}).items():
        shaped = {name: _sorted_grant(grant) for name, grant in (entries or {}).items()}
        shaped = {name: grant for name, grant in shaped.items() if grant}
        if shaped:
            sections[section] = shaped
    return sections


def _sorted_grant(grant: Json) -> Json:
    if isinstance(grant, dict):
        return {role: sorted(actions) for role, actions in grant.items() if actions}
    return sorted(grant or ())


def without_nulls(value: Json) -> Json:
    """The value without null entries, which some versions of the broker return and others omit."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return value
