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
