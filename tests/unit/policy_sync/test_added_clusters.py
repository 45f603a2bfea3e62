"""Which clusters a change adds to a list: these are checked before it is written."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazard import Hazard
from pulsar_fleet.planning.plan import Action, Change
from pulsar_fleet.policy_sync.guards.added_clusters import added_clusters
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, ROLES

LIST = "replication_clusters"


def change(resource: Resource, field: str, before: Json, after: Json) -> Change:
    return Change(
        resource=resource,
        name="acme/orders",
        field=field,
        action=Action.SET,
        calls=(),
        before=before,
        after=after,
        hazard=Hazard.NONE,
        reason="",
    )


@pytest.mark.parametrize(
    ("resource", "field", "before", "after", "added"),
    [
        (Resource.POLICY, LIST, ["blue"], ["blue", "green"], ("green",)),
        (Resource.POLICY, LIST, ["blue", "green"], ["blue", "green"], ()),
        (Resource.POLICY, LIST, ["blue", "green"], ["blue"], ()),
        (Resource.POLICY, "allowed_clusters", None, ["blue", "green", "red"], ("green", "red")),
        (Resource.POLICY, "message_ttl_in_seconds", None, 5, ()),
        (Resource.NAMESPACE, "", None, {LIST: ["blue", "green"], "message_ttl_in_seconds": 5}, ("green",)),
        (Resource.NAMESPACE, "", None, {LIST: ["blue"]}, ()),
        (Resource.TENANT, "", {ROLES: [], CLUSTERS: ["blue"]}, {ROLES: [], CLUSTERS: ["blue", "red"]}, ("red",)),
        (Resource.TENANT, "", None, {ROLES: [], CLUSTERS: ["blue"]}, ()),
    ],
)
def test_the_clusters_that_a_list_did_not_name_are_added(
    resource: Resource, field: str, before: Json, after: Json, added: tuple[str, ...]
) -> None:
    assert added_clusters(change(resource, field, before, after), "blue") == added
