"""How two clusters differ in what belongs to a cluster as a whole: peers, resource groups, placement (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.change.difference import Difference, Resource, diff_whole
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.states import Snapshot

# How the last write was to be carried out, not what the policy says.
_HOW_TO_WRITE = "unload_scope"


def diff_cluster(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """Differences in the order of creation; the source is translated, so it names only what the target should hold.

    What only the target has is told when the source's snapshot was not limited to a selection.
    """
    unlimited = not source.selection
    peers = {one.name: cluster_value(one.data) for one in source.clusters if one.name != target.cluster}
    known = {one.name: cluster_value(one.data) for one in target.clusters}
    known |= {name: peers[name] for name in target.known_clusters if name in peers and name not in known}
    # Other peers of the target are none of the source's affair.
    yield from diff_whole(Resource.CLUSTER, peers, {name: data for name, data in known.items() if name in peers})
    for resource, wanted, held in (
        (Resource.RESOURCE_GROUP, _groups(source), _groups(target)),
        (Resource.FAILURE_DOMAIN, _domains(source), _domains(target)),
        (Resource.ISOLATION, _isolation(source), _isolation(target)),
    ):
        shown = {name: value for name, value in held.items() if unlimited or name in wanted}
        yield from diff_whole(resource, wanted, shown)


def cluster_value(data: Mapping[str, Json]) -> JsonObject:
    """A cluster's addresses in a comparable shape: what is empty or off is left out, as it is after a read."""
    return {key: value for key, value in data.items() if value not in (None, "", False, [], {})}


def group_value(limits: Mapping[str, Json]) -> JsonObject:
    """A resource group's limits; -1 is without limit, as is one that is not given."""
    return {key: value for key, value in limits.items() if value is not None and value != -1}


def domain_value(document: Mapping[str, Json]) -> JsonObject:
    """A failure domain; the order of its brokers means nothing."""
    return {"brokers": sorted(document.get("brokers") or ())}


def isolation_value(document: Mapping[str, Json]) -> JsonObject:
    """A namespace isolation policy, without how its last write was carried out."""
    return {key: value for key, value in document.items() if key != _HOW_TO_WRITE and value is not None}


def _groups(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {one.name: group_value(one.limits) for one in snapshot.resource_groups}


def _domains(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {name: domain_value(one) for name, one in _own(snapshot, "failure_domains").items()}


def _isolation(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {name: isolation_value(one) for name, one in _own(snapshot, "isolation").items()}


def _own(snapshot: Snapshot, table: str) -> JsonObject:
    found: JsonObject = {}
    for one in snapshot.clusters:
        if one.name == snapshot.cluster:
            found |= getattr(one, table)
    return found
