"""A difference between two clusters, as a value, and the comparison of two documents (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json


class Resource(StrEnum):
    """Kinds of resources, in the order in which they are created."""

    CLUSTER = "cluster"
    RESOURCE_GROUP = "resource group"
    FAILURE_DOMAIN = "failure domain"
    ISOLATION = "isolation policy"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    POLICY = "policy"
    TOPIC = "topic"
    SCHEMA = "schema"
    TOPIC_POLICY = "topic policy"
    SUBSCRIPTION = "subscription"
    SCALABLE_TOPIC = "scalable topic"
    """Never created: it is only named."""

    @property
    def in_namespace(self) -> bool:
        """Whether the resource belongs to a namespace and not to the whole cluster."""
        return self not in _CLUSTER_WIDE


_CLUSTER_WIDE = frozenset(
    {Resource.CLUSTER, Resource.RESOURCE_GROUP, Resource.FAILURE_DOMAIN, Resource.ISOLATION, Resource.TENANT}
)


class Side(StrEnum):
    """How the target differs from the source in one value."""

    MISSING = "missing on the target"
    DIFFERENT = "different"
    EXTRA = "only on the target"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `field` is a policy, a `TopicPolicyField`, a topic's property set, a subscription or empty."""

    resource: Resource
    name: str
    field: str
    side: Side
    source: Json
    target: Json

    @property
    def whole(self) -> bool:
        """Whether the resource as a whole differs, and not one of its fields."""
        return self.resource is Resource.SUBSCRIPTION or not self.field


def same(first: Json, second: Json) -> bool:
    """Whether two JSON values are equal: a list equals a tuple, `1` does not equal `True`."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def diff_documents(
    resource: Resource, name: str, source: Mapping[str, Json], target: Mapping[str, Json]
) -> Iterator[Difference]:
    """The fields in which two comparable documents differ."""
    for field in sorted({*source, *target}):
        if same(source.get(field), target.get(field)):
            continue
        side = Side.DIFFERENT
        if field not in target:
            side = Side.MISSING
        elif field not in source:
            side = Side.EXTRA
        yield Difference(resource, name, field, side, source.get(field), target.get(field))


def diff_resources(resource: Resource, source: Mapping[str, Json], target: Mapping[str, Json]) -> Iterator[Difference]:
    """Resources that differ, by name; each resource is compared as one value."""
    for difference in diff_documents(resource, "", source, target):
        yield Difference(resource, difference.field, "", difference.side, difference.source, difference.target)
