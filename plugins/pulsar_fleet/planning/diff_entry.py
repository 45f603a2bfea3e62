"""One difference between two clusters, as a value, and how two documents are compared (pure)."""

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

    @property
    def in_namespace(self) -> bool:
        """Whether it lies in a namespace, and not in the cluster as a whole."""
        return self not in _OF_THE_CLUSTER


_OF_THE_CLUSTER = frozenset(
    {Resource.CLUSTER, Resource.RESOURCE_GROUP, Resource.FAILURE_DOMAIN, Resource.ISOLATION, Resource.TENANT}
)


class Side(StrEnum):
    """Where something is."""

    MISSING = "missing on the target"
    DIFFERENT = "different"
    EXTRA = "only on the target"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `field` names a policy, a topic's property set or a subscription, else it is empty."""

    resource: Resource
    name: str
    field: str
    side: Side
    source: Json
    target: Json


def same(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal; `1` and `True` are not, lists and tuples are."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


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


def diff_whole(resource: Resource, wanted: Mapping[str, Json], held: Mapping[str, Json]) -> Iterator[Difference]:
    """Resources, by name, that are compared as one value each."""
    for found in diff_documents(resource, "", wanted, held):
        yield Difference(resource, found.field, "", found.side, found.source, found.target)
