"""Policies documents: translate them for another cluster, compare them fairly, check them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, CATALOGUE, KEYED_BY_CLUSTER, Kind, Policy, unknown_fields

# What the broker adds to offload policies; 4.0 does not know the number of read threads.
_OFFLOAD_ADDED = ("s3Driver", "gcsDriver", "fileSystemDriver")
_OFFLOAD_DEFAULTS: Mapping[str, Json] = {"managedLedgerOffloadReadThreads": 2, "managedLedgerExtraConfigurations": {}}

STAMP = ("lastUpdatedBy", "lastUpdatedTime")
"""Properties in which PIP-136 keeps who wrote a namespace last, and when: about its policies, so none of them."""

STRATEGIES = frozenset(
    {"UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"}
    | {"BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"}
)


@dataclass(frozen=True, slots=True)
class Translated:
    """A document in another cluster's terms.

    :param left_out: cluster names that the other cluster does not know, so they are not in its lists.
    """

    document: JsonObject
    left_out: tuple[str, ...]


def translate(
    document: Mapping[str, Json], source: str, target: str, known: Collection[str] | None = None
) -> Translated:
    """Say for `target` what the document of `source` says for `source`.

    Cluster keys and lists are renamed, the target's own name is always in its lists, clusters that are not in `known`
    (None: every one) are left out, and the broker's own state (`deleted`, `migrated`) is dropped. Unknown fields stay.
    """
    result = {
        field: deepcopy(value)
        for field, value in document.items()
        if field not in BY_FIELD or BY_FIELD[field].kind is not Kind.INTERNAL
    }
    left_out: set[str] = set()
    for field, value in result.items():
        if field in KEYED_BY_CLUSTER:
            result[field] = _rename_key(value or {}, source, target)
        elif field == "replication_clusters" or (field == "allowed_clusters" and value):
            result[field], missing = translate_clusters(value or (), source, target, known)
            left_out.update(missing)
    return Translated(result, tuple(sorted(left_out)))


def translate_clusters(
    names: Iterable[str], source: str, target: str, known: Collection[str] | None = None
) -> tuple[list[str], tuple[str, ...]]:
    """A cluster list for `target`, which is always in it, and the names that were left out.

    A list that already has both (they replicate to each other) keeps both; else the source's name becomes the target's.
    """
    given = set(names)
    renamed = given if target in given else given - {source}
    kept = {name for name in renamed if known is None or name in known}
    return sorted(kept | {target}), tuple(sorted(renamed - kept - {target}))


def comparable(document: Mapping[str, Json], own: str) -> dict[str, Json]:
    """What counts when documents are compared: every field that is set, in one shape; `own` is the cluster's name.

    Fields that the catalogue does not know are kept as they are.
    """
    found = {policy.field: normal(policy, document, own) for policy in CATALOGUE if policy.comparable}
    found |= {field: pruned(document[field]) for field in unknown_fields(document)}
    return {field: value for field, value in found.items() if value is not None}


def normal(policy: Policy, document: Mapping[str, Json], own: str) -> Json:
    """One field in its comparable shape; None when it is not set."""
    value = pruned(document.get(policy.field))
    if policy.kind is Kind.CLUSTER_MAP or policy.field in KEYED_BY_CLUSTER:
        value = (value or {}).get(own)
    elif policy.kind in (Kind.CLUSTER_LIST, Kind.NAMES):
        value = sorted(value or ())
    elif policy.kind is Kind.QUOTAS:
        value = quotas(value)
    elif policy.kind is Kind.PROPERTIES:
        value = {key: one for key, one in (value or {}).items() if key not in STAMP}
    elif policy.kind is Kind.GRANTS:
        value = _grants(value)
    elif policy.kind is Kind.OFFLOAD:
        value = offload(value)
    elif policy.kind is Kind.FLAG:
        value = value or None
    unset = value in (None, [], {}) or (policy.default is not None and value == policy.default)
    return None if unset else value


def quotas(value: Json) -> Json:
    """Backlog quotas without `limit`, which repeats `limitSize`."""
    return {kind: {key: one for key, one in quota.items() if key != "limit"} for kind, quota in (value or {}).items()}


def offload(value: Json) -> Json:
    """Offload policies without what the broker adds by itself."""
    return {
        key: one
        for key, one in (value or {}).items()
        if key not in _OFFLOAD_ADDED and not (key in _OFFLOAD_DEFAULTS and one == _OFFLOAD_DEFAULTS[key])
    }


def body_for_creation(document: Mapping[str, Json]) -> JsonObject:
    """What `PUT /namespaces` takes of a translated document: all but what has an address of its own."""
    skipped = (Kind.LOCAL, Kind.INTERNAL)
    return {
        field: value
        for field, value in document.items()
        if value is not None and (field not in BY_FIELD or BY_FIELD[field].kind not in skipped)
    }


def problems(document: Mapping[str, Json], own: str) -> tuple[str, ...]:
    """What is wrong with a document that is about to create a namespace; the broker itself would take it."""
    return tuple(_problems(document, own))


def _problems(document: Mapping[str, Json], own: str) -> Iterator[str]:
    for field in ("replication_clusters", "allowed_clusters"):
        names = document.get(field) or []
        if (names or field == "replication_clusters") and own not in names:
            yield f"{field} {names!r} does not have {own!r}: its topics would be deleted"
    strategy = document.get("schema_compatibility_strategy", "UNDEFINED")
    if strategy not in STRATEGIES:
        yield f"schema_compatibility_strategy {strategy!r} is none of {', '.join(sorted(STRATEGIES))}"
    for field, value in document.items():
        if field.startswith(("max_", "message_ttl", "subscription_expiration")) and (value or 0) < 0:
            yield f"{field} is {value!r}, below 0"
    yield from _quota_problems(document.get("retention_policies"), document.get("backlog_quota_map") or {})


def _quota_problems(retention: Json, quota_map: Mapping[str, Json]) -> Iterator[str]:
    """Retention must exceed the backlog quota, as the broker's setters demand and its PUT does not check."""
    if not retention:
        return
    size, minutes = retention.get("retentionSizeInMB", 0), retention.get("retentionTimeInMinutes", 0)
    if size == 0 and minutes == 0:
        return
    quota = (quota_map.get("destination_storage") or {}).get("limitSize", -1)
    if size > 0 and (quota < 0 or quota >= size * 1024 * 1024) and "destination_storage" in quota_map:
        yield f"backlog quota of {quota} bytes is not below the retention of {size} MB"
    seconds = (quota_map.get("message_age") or {}).get("limitTime", -1)
    if minutes > 0 and (seconds < 0 or seconds >= minutes * 60) and "message_age" in quota_map:
        yield f"backlog quota of {seconds} s is not below the retention of {minutes} min"


def _rename_key(entries: Mapping[str, Json], source: str, target: str) -> JsonObject:
    others = {name: value for name, value in entries.items() if name not in (source, target)}
    if source in entries:
        return {**others, target: entries[source]}
    return {**others, **({target: entries[target]} if target in entries else {})}


def _grants(value: Json) -> Json:
    """Rights by section, with the names in order; empty sections are left out."""
    found = {}
    for section, entries in (value or {}).items():
        shaped = {name: _sorted_grant(grant) for name, grant in (entries or {}).items()}
        shaped = {name: grant for name, grant in shaped.items() if grant}
        if shaped:
            found[section] = shaped
    return found


def _sorted_grant(grant: Json) -> Json:
    if isinstance(grant, dict):
        return {role: sorted(actions) for role, actions in grant.items() if actions}
    return sorted(grant or ())


def pruned(value: Json) -> Json:
    """The value without entries that are null, which the broker shows or hides depending on its version."""
    if isinstance(value, dict):
        return {key: pruned(one) for key, one in value.items() if one is not None}
    return value
