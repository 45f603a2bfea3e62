"""Look up rows of the catalogue of namespace policies (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.model import Kind, Policy, Unset
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE
from pulsar_fleet.cluster.versions import version_numbers

__all__ = [
    "BY_FIELD",
    "CATALOGUE",
    "KEYED_BY_CLUSTER",
    "LOCAL_FIELDS",
    "Kind",
    "Policy",
    "Unset",
    "is_supported",
    "setting_order",
    "unknown_fields",
]

BY_FIELD: Mapping[str, Policy] = {policy.field: policy for policy in CATALOGUE}
LOCAL_FIELDS: tuple[Policy, ...] = tuple(policy for policy in CATALOGUE if policy.kind is Kind.LOCAL)
KEYED_BY_CLUSTER: tuple[str, ...] = tuple(policy.field for policy in CATALOGUE if policy.keyed_by_cluster)


def unknown_fields(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Fields that the catalogue does not have, from a newer broker; they are reported and never dropped."""
    return tuple(sorted(set(document) - set(BY_FIELD)))


def is_supported(since: str, version: str) -> bool:
    """Whether brokers of `version` have a policy that exists since Pulsar `since` (empty: always)."""
    return not since or version_numbers(version) >= version_numbers(since)


def setting_order(fields: Mapping[str, tuple[Json, Json]]) -> tuple[str, ...]:
    """The order in which to set fields (field → before and after), so that the broker accepts every call.

    It refuses a retention below the backlog quota: to widen, set retention first; to narrow, set the quota first.
    """
    ordered = [policy.field for policy in CATALOGUE if policy.field in fields]
    pair = ("retention_policies", "backlog_quota_map")
    if all(field in fields for field in pair):
        loses_data = BY_FIELD["retention_policies"].loses_data
        if loses_data is not None and loses_data(*fields["retention_policies"]):
            first, second = (ordered.index(field) for field in pair)
            ordered[first], ordered[second] = ordered[second], ordered[first]
    return tuple(ordered)
