"""Which clusters a change adds to a list: these are checked before it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.snapshots import full_pair

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.policy_sync.guards import added_clusters, harmful_policies, leave_incompatible_out
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, ROLES
from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.snapshot.model import TopicPolicyState

LIST, TOPIC_LIST = "replication_clusters", "local/replicationClusters"


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
        (Resource.TOPIC_POLICY, TOPIC_LIST, None, ["blue", "green"], ("green",)),
        (Resource.TOPIC_POLICY, TOPIC_LIST, ["blue", "green"], ["blue", "green", "red"], ("red",)),
        (Resource.TOPIC_POLICY, TOPIC_LIST, ["blue", "green"], ["blue"], ()),
        (Resource.TOPIC_POLICY, TOPIC_LIST, ["blue", "green"], None, ()),
        (Resource.TOPIC_POLICY, "local/maxProducers", None, 5, ()),
        (Resource.TENANT, "", None, {ROLES: [], CLUSTERS: ["blue"]}, ()),
    ],
)
def test_the_clusters_that_a_list_did_not_name_are_added(
    resource: Resource, field: str, before: Json, after: Json, added: tuple[str, ...]
) -> None:
    assert added_clusters(change(resource, field, before, after), "blue") == added


@pytest.mark.parametrize(
    ("resource", "field"), [(Resource.POLICY, "allowed_clusters"), (Resource.TOPIC_POLICY, TOPIC_LIST)]
)
async def test_a_list_that_is_left_out_leaves_the_other_policies_in(resource: Resource, field: str) -> None:
    name = "persistent://acme/orders/a" if resource is Resource.TOPIC_POLICY else "acme/orders"
    rows = (change(resource, field, None, ["blue", "green"]), change(resource, "local/maxProducers", None, 5))
    listed, other = (replace(row, name=name) for row in rows)
    plan = Plan(source="the merge", target="blue", changes=(listed, other))
    kept, _ = await leave_incompatible_out(plan, {}, {}, Redactor(b"a key of the tests"), full_pair().source)
    assert kept.changes == (other,)
    assert [(row.field, "no connection to it" in row.reason) for row in kept.left_alone] == [(field, True)]


async def test_a_list_is_decided_later_while_its_cluster_may_be_one_that_is_down() -> None:
    listed, other = change(Resource.POLICY, LIST, None, ["blue", "green"]), change(Resource.POLICY, "ttl", None, 5)
    plan = Plan(source="the merge", target="blue", changes=(listed, other))
    behind = {"pulsar_green": "pulsar_green got no answer."}
    kept, undecided = await leave_incompatible_out(
        plan, {}, behind, Redactor(b"a key of the tests"), full_pair().source
    )
    assert (kept.changes, undecided) == ((other,), {"acme/orders"})
    assert kept.left_alone[0].reason.endswith("could not be checked: pulsar_green got no answer.")


FIVE = {"bookkeeperEnsemble": 5, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
ENCRYPTED = change(Resource.POLICY, "encryption_required", None, True)
LISTED = change(Resource.POLICY, LIST, ["blue"], ["blue", "green"])


@pytest.mark.parametrize(
    ("changes", "bookies", "left_out"),
    [
        ((change(Resource.POLICY, "persistence", None, FIVE),), 4, ["bookies-missing"]),
        ((change(Resource.POLICY, "persistence", None, FIVE),), 5, []),
        ((change(Resource.POLICY, "persistence", None, FIVE),), None, []),
        ((change(Resource.POLICY, "persistence", FIVE, None),), 4, []),
        ((change(Resource.NAMESPACE, "", None, {LIST: ["blue"], "persistence": FIVE}),), 4, ["bookies-missing"]),
        ((ENCRYPTED,), None, []),
        ((ENCRYPTED, LISTED), None, ["replicator-not-encrypted"]),
        ((change(Resource.POLICY, "encryption_required", True, False), LISTED), None, []),
        ((change(Resource.NAMESPACE, "", None, {LIST: ["blue"], "encryption_required": True}),), None, []),
    ],
)
def test_policies_that_a_cluster_accepts_and_cannot_carry_are_left_out(
    changes: tuple[Change, ...], bookies: int | None, left_out: list[str]
) -> None:
    plan = Plan(source="the merge", target="blue", changes=changes)
    reasons = harmful_policies(plan, full_pair().source, Bookies(count=bookies))
    assert [reason.partition(":")[0] for reason in reasons.values()] == left_out


def test_an_ensemble_of_a_topic_is_judged_like_that_of_its_namespace() -> None:
    row = replace(change(Resource.TOPIC_POLICY, "local/persistence", None, FIVE), name="persistent://acme/orders/a")
    plan = Plan(source="the merge", target="blue", changes=(row,))
    assert list(harmful_policies(plan, full_pair().source, Bookies(count=1))) == [row.id]


@pytest.mark.parametrize("planned", [False, True])
def test_a_replicated_topic_keeps_its_namespace_from_requiring_encryption(planned: bool) -> None:
    row, topic = change(Resource.POLICY, "encryption_required", None, True), "persistent://acme/orders/a"
    both = {"replicationClusters": ["blue", "green"]}
    snapshot = replace(
        full_pair().source, topic_policies=() if planned else (TopicPolicyState(topic, "local", both, 0),)
    )
    listed = replace(change(Resource.TOPIC_POLICY, TOPIC_LIST, None, ["blue", "green"]), name=topic)
    plan = Plan(source="the merge", target="blue", changes=(row, *((listed,) if planned else ())))
    assert list(harmful_policies(plan, snapshot, None)) == [row.id]
    assert not harmful_policies(replace(plan, changes=(row,)), replace(snapshot, topic_policies=()), None)
