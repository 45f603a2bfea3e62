"""What a resource lacks that was perhaps created again: filled, or asked about, and never taken from the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.recreated import lacking_fields
from pulsar_fleet.policy_sync.events.versions import (
    EXISTS,
    FieldVersion,
    ObservedValues,
    ResourceVersions,
    Version,
    next_versions,
)
from pulsar_fleet.policy_sync.merge.compare import ComparedResource, CompareOptions, compare
from pulsar_fleet.policy_sync.merge.identity import Suspect, identity_at, suspects
from pulsar_fleet.policy_sync.merge.merge_resource import Rule
from pulsar_fleet.policy_sync.merge.plan import Target, plan_repair
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, PolicyEvents, Provenance, digest
from pulsar_fleet.policy_sync.merge.view import Identity, Item, View
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TopicPolicyState

ITEM: Item = (Resource.NAMESPACE, "acme/orders")
TENANT: Item = (Resource.TENANT, "acme")
TTL, APP, OPS = "message_ttl_in_seconds", "auth_policies/namespace_auth/app", "auth_policies/namespace_auth/ops"
AGREED: dict[str, Json] = {TTL: 60, APP: ["consume"]}
BASES = {ITEM: MergeBase(document=AGREED, clusters=("blue", "green"))}


def view(cluster: str, values: Mapping[str, Json], identity: Identity = Identity.SAME, since: float = 7.0) -> View:
    times = {name: Provenance(digest(values.get(name)), since, since + 1) for name in AGREED}
    return View(cluster=cluster, items={ITEM: dict(values)}, provenance={ITEM: times}, identity={ITEM: identity})


def compared(green: Mapping[str, Json], identity: Identity, **options: Any) -> ComparedResource:
    views = [view("blue", AGREED), view("green", green, identity)]
    (resource,) = compare(views, BASES, CompareOptions(**options)).compared
    return resource


def planned(resource: ComparedResource, cluster: str) -> list[tuple[str, Json]]:
    values = next(side.values for side in resource.sides if side.cluster == cluster)
    roles = {name.rpartition("/")[2]: value for name, value in values.items() if name != TTL}
    document = {TTL: values.get(TTL), "auth_policies": {"namespace_auth": roles}}
    snapshot = Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="",
        known_clusters=("blue", "green"),
        namespaces=(NamespaceState(ITEM[1], document),),
    )
    plan = plan_repair([resource], Target(snapshot=snapshot), [], source="merge")
    return [(change.field, change.after) for change in plan.changes]


def test_of_the_same_resource_what_is_missing_was_removed() -> None:
    resource = compared({}, Identity.SAME)
    assert (planned(resource, "green"), resource.conflicts) == ([], ())
    assert {field for field, _ in planned(resource, "blue")} == {TTL, "auth_policies"}


def test_a_recreated_resource_is_filled_from_the_others() -> None:
    resource = compared({}, Identity.RECREATED)
    assert (planned(resource, "blue"), resource.conflicts) == ([], ())
    assert dict(planned(resource, "green")) == {TTL: 60, "auth_policies": {"namespace_auth": {"app": ["consume"]}}}


def test_of_an_unknown_one_nothing_is_written_before_a_choice() -> None:
    resource = compared({}, Identity.UNKNOWN)
    assert [planned(resource, cluster) for cluster in ("blue", "green")] == [[], []]
    assert set(resource.conflicts) == set(AGREED)
    assert {decision.rule for decision in resource.merged.decisions.values()} == {Rule.UNDECIDED}


@pytest.mark.parametrize(("chosen", "cluster"), [(60, "green"), (None, "blue")])
def test_a_choice_fills_it_or_removes_the_value_elsewhere(chosen: Json, cluster: str) -> None:
    resource = compared({APP: ["consume"]}, Identity.UNKNOWN, choices={ITEM: {TTL: chosen}})
    assert planned(resource, cluster) == [(TTL, chosen)]


def test_a_policy_with_an_undecided_entry_is_not_written_whole() -> None:
    views = [view("blue", {**AGREED, OPS: ["produce"]}), view("green", {TTL: 60}, Identity.UNKNOWN)]
    (resource,) = compare(views, BASES, CompareOptions()).compared
    assert planned(resource, "green") == []


def test_fewer_actions_of_a_role_are_a_removal_too() -> None:
    bases = {ITEM: MergeBase(document={APP: ["consume", "produce"]}, clusters=("blue", "green"))}
    views = [view("blue", {APP: ["consume", "produce"]}), view("green", {APP: ["consume"]}, Identity.UNKNOWN)]
    (resource,) = compare(views, bases, CompareOptions()).compared
    assert (resource.conflicts, planned(resource, "blue")) == ((APP,), [])


def test_only_what_another_cluster_still_has_needs_an_answer() -> None:
    assert list(suspects([view("blue", AGREED), view("green", {TTL: 60})], BASES)) == [
        Suspect("green", ITEM, 7.0, (APP,))
    ]
    assert list(suspects([view("blue", {}), view("green", {})], BASES)) == []


@pytest.mark.parametrize(
    ("created", "at", "identity"),
    [
        ([(1.0, 2.0), (8.0, 9.0)], 5.0, Identity.SAME),
        ([(6.0, 7.0)], 5.0, Identity.RECREATED),
        ([(4.5, 5.5)], 5.0, Identity.UNKNOWN),
        ([], 5.0, Identity.UNKNOWN),
        ([(1.0, 2.0)], UNKNOWN, Identity.UNKNOWN),
    ],
)
def test_the_oldest_partition_tells_whether_a_topic_existed(
    created: list[tuple[float, float]], at: float, identity: Identity
) -> None:
    assert identity_at(created, at) is identity


def test_a_policy_that_was_unset_is_told_from_one_that_went_with_its_topic() -> None:
    topic, events = "persistent://acme/orders/t", PolicyEvents()
    full = TopicPolicyState(topic, "local", {"maxProducerPerTopic": 7, "messageTTLInSeconds": 9}, 1)
    events.note(topic, Scope.LOCAL, full, 1)
    events.note(topic, Scope.LOCAL, TopicPolicyState(topic, "local", {"messageTTLInSeconds": 9}, 2), 2)
    events.note(topic, Scope.LOCAL, None, 3)
    names = {name for change in events._changes[topic, Scope.LOCAL] for name in change.values}
    producers = next(name for name in names if name.endswith("maxProducerPerTopic"))
    (ttl,) = names - {producers}
    assert events.unsets(topic, [producers])
    assert not events.unsets(topic, [ttl])
    assert not events.unsets(topic, [producers, ttl])


def version(at: int, value: Json) -> FieldVersion:
    return FieldVersion(digest(value), Version(at, "green"))


STORED = ResourceVersions(fields={EXISTS: version(1, True), TTL: version(2, 60), "adminRoles": version(2, ["ops"])})


def test_events_know_what_a_resource_lacks_since_the_last_scan() -> None:
    assert lacking_fields(ITEM, STORED, {EXISTS: True, TTL: 60}) == {"adminRoles"}
    assert lacking_fields(TENANT, STORED, {EXISTS: True, TTL: 60, "adminRoles": []}) == {"adminRoles"}
    assert lacking_fields(TENANT, STORED, {EXISTS: True, TTL: 60, "adminRoles": ["new"]}) == frozenset()
    assert lacking_fields(ITEM, STORED, {}) == frozenset(), "it is gone"
    unsetting = STORED.awaiting({TTL: version(5, None)})
    assert lacking_fields(ITEM, unsetting, {EXISTS: True, "adminRoles": ["ops"]}) == frozenset(), "by an event"


def test_a_field_that_is_withheld_keeps_its_version_and_is_not_published() -> None:
    observed = ObservedValues(values={EXISTS: True}, now=9, withheld=frozenset({TTL, "adminRoles"}))
    after = next_versions(STORED, observed, "green")
    assert (after.fields, after.published, after.withheld) == (STORED.fields, True, ("adminRoles", TTL))


def test_a_recreated_resource_unsets_nothing_that_its_deletion_took() -> None:
    gone = next_versions(STORED, ObservedValues(values={}, now=9), "green")
    assert {name for name, entry in gone.fields.items() if not entry.digest} == {EXISTS, TTL, "adminRoles"}
    again = next_versions(gone, ObservedValues(values={EXISTS: True, TTL: 5}, now=20), "green")
    assert set(again.fields) == {EXISTS, TTL}
