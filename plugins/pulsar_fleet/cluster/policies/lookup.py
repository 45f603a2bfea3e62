"""Looking up the catalogue of namespace policies (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.model import Kind, Loses, Policy, Unset
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE
from pulsar_fleet.cluster.versions import version_numbers

__all__ = [
    "BY_FIELD",
    "CATALOGUE",
    "KEYED_BY_CLUSTER",
    "LOCAL_FIELDS",
    "Kind",
    "Loses",
    "Policy",
    "Unset",
    "known_at",
    "setting_order",
    "unknown_fields",
]

BY_FIELD: Mapping[str, Policy] = {policy.field: policy for policy in CATALOGUE}
LOCAL_FIELDS: tuple[Policy, ...] = tuple(policy for policy in CATALOGUE if policy.kind is Kind.LOCAL)
KEYED_BY_CLUSTER: tuple[str, ...] = tuple(policy.field for policy in CATALOGUE if policy.keyed_by_cluster)


def unknown_fields(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Fields of a document that the catalogue does not have: a newer broker's; they are shown and never dropped."""
    return tuple(sorted(set(document) - set(BY_FIELD)))


def known_at(since: str, version: str) -> bool:
    """Whether brokers of `version` know what came with Pulsar `since` (empty: since ever)."""
    return not since or version_numbers(version) >= version_numbers(since)


def setting_order(fields: Mapping[str, tuple[Json, Json]]) -> tuple[str, ...]:
    """The order in which to set fields (field → before and after), so that the broker takes every one.

    It refuses a retention below the backlog quota: widening sets retention first, narrowing sets the quota first.
    """
    ordered = [policy.field for policy in CATALOGUE if policy.field in fields]
    pair = ("retention_policies", "backlog_quota_map")
    if all(field in fields for field in pair):
        loses = BY_FIELD["retention_policies"].loses
        if loses is not None and loses(*fields["retention_policies"]):
            first, second = (ordered.index(field) for field in pair)
            ordered[first], ordered[second] = ordered[second], ordered[first]
    return tuple(ordered)
