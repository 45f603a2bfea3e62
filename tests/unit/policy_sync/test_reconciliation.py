"""From what clusters hold to what is written and remembered: presence, joining, lists, deletions, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.admin.partial_reads import Note, Problem
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import MergeBase, ReconciliationStore, RecordedConflict, StoredObservation
from pulsar_fleet.planning.apply.outcome import ChangeResult, Outcome, PlanResult, result_after_write
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.policy_sync.merge.compare import (
    ComparedResource,
    CompareOptions,
    Comparison,
    DesiredState,
    Drift,
    compare,
    namespaces_to_list,
)
from pulsar_fleet.policy_sync.merge.fields import (
    SELF,
    Values,
    localised,
    namespace_values,
    neutral,
    topic_values,
    whole_value,
    with_policy,
)
from pulsar_fleet.policy_sync.merge.plan import Target, plan_deletions, plan_repair
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, PolicyEvents, Provenance
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of
from pulsar_fleet.policy_sync.reconcile.agreement import conclude, decided_values, written
from pulsar_fleet.policy_sync.reconcile.desired_state_files import export, load
from pulsar_fleet.policy_sync.reconcile.request import Authority, Request
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState

FLEET = ("blue", "green")
ORDERS: Item = (Resource.NAMESPACE, "acme/orders")
EVENTS = "persistent://acme/orders/events"
TOPIC: Item = (Resource.TOPIC_POLICY, EVENTS)
TENANT: Item = (Resource.TENANT, "acme")
TTL, PRODUCERS = "message_ttl_in_seconds", "max_producers_per_topic"


def snapshot(cluster: str, topics: dict[str, Any] | None = None, **policies: Any) -> Snapshot:
    """A cluster with one tenant and one namespace."""
    document = {"replication_clusters": [cluster], **policies}
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        known_clusters=(cluster,),
        tenants=(TenantState("acme", (), (cluster,)),),
        namespaces=(NamespaceState("acme/orders", document),),
        topic_policies=tuple(TopicPolicyState(EVENTS, "local", policies, 0) for policies in [topics] if topics),
    )


def without_namespace(cluster: str) -> Snapshot:
    return replace(snapshot(cluster), namespaces=())


def views(*snapshots: Snapshot, **topics: Any) -> list[View]:
    return [View(cluster=taken.cluster, items=items_of(taken, FLEET), **topics) for taken in snapshots]


def agreed_by(*snapshots: Snapshot) -> dict[Item, MergeBase]:
    """What snapshots that hold the same would have agreed on."""
    conclusion = conclude(compare(views(*snapshots), {}, CompareOptions()).compared, {}, all_reachable=True)
    return {item: merge_base for item, merge_base in conclusion.merge_bases.items() if merge_base}


def one(comparison: Comparison, item: Item) -> ComparedResource:
    return next(resource for resource in comparison.compared if resource.item == item)


def plan(comparison: Comparison, current: Snapshot, *others: Snapshot, **options: Any) -> Plan:
    target = Target(snapshot=current, topics=options.pop("topics", {}), deletable=options.pop("whole", {}))
    return plan_repair(comparison.compared, target, others, source="merge", **options)


def steps(planned: Plan) -> list[tuple[str, str, Any]]:
    return [(change.resource.value, change.field, change.after) for change in planned.changes]


def test_only_the_changed_field_is_written_and_only_where_it_differs() -> None:
    base = agreed_by(snapshot("blue"), snapshot("green"))
    blue, green = snapshot("blue", **{PRODUCERS: 5}), snapshot("green")
    comparison = compare(views(blue, green), base, CompareOptions())
    assert steps(plan(comparison, green, blue)) == [("policy", PRODUCERS, 5)]
    assert steps(plan(comparison, blue, green)) == []


def test_a_role_that_was_taken_away_on_one_side_is_taken_away_on_the_other() -> None:
    granted = {"auth_policies": {"namespace_auth": {"writer": ["produce"], "reader": ["consume"]}}}
    base = agreed_by(snapshot("blue", **granted), snapshot("green", **granted))
    reduced = {"auth_policies": {"namespace_auth": {"reader": ["consume"]}}}
    blue, green = snapshot("blue", **reduced), snapshot("green", **granted)
    planned = plan(compare(views(blue, green), base, CompareOptions()), green, blue)
    assert [call.text() for change in planned.changes for call in change.calls] == [
        "DELETE /namespaces/acme/orders/permissions/writer"
    ]


def test_an_action_that_a_repair_takes_away_is_named_as_revoked() -> None:
    def holding(cluster: str, *actions: str) -> Snapshot:
        return snapshot(cluster, auth_policies={"namespace_auth": {"app": list(actions)}})

    base = agreed_by(holding("blue", "consume", "produce"), holding("green", "consume", "produce"))
    blue, green = holding("blue", "consume"), holding("green", "consume", "produce")
    planned = plan(compare(views(blue, green), base, CompareOptions()), green, blue)
    assert "rights are revoked" in planned.changes[0].reason
    assert "revokes produce of app" in plan_text(planned)


def test_a_rate_is_compared_by_the_entry_of_each_cluster_for_itself() -> None:
    def rate(cluster: str, number: int) -> Snapshot:
        return snapshot(cluster, publishMaxMessageRate={cluster: {"publishThrottlingRateInMsg": number}})

    base = agreed_by(rate("blue", 1), rate("green", 1))
    planned = plan(
        compare(views(rate("blue", 2), rate("green", 1)), base, CompareOptions()), rate("green", 1), rate("blue", 2)
    )
    assert steps(planned) == [("policy", "publishMaxMessageRate", {"publishThrottlingRateInMsg": 2})]


def test_what_each_cluster_keeps_for_itself_is_no_field() -> None:
    own = {"bookie_affinity": {"a": "b"}, "bundles": {"numBundles": 9}, "migrated": True, "offload_threshold": 5}
    document = {**own, PRODUCERS: 1, "properties": {"owner": "x"}, "policyOfTomorrow": 2}
    values = {PRODUCERS: 1, "properties/owner": "x", "policyOfTomorrow": 2}
    assert namespace_values(document, FLEET, "blue") == values


def test_of_a_topic_each_scope_has_the_policies_that_are_copied_in_it() -> None:
    document = {"replicationClusters": ["blue"], "shadowTopics": ["t"], LIMIT_OF_TOPIC: 1, "policyOfTomorrow": 2}
    assert topic_values({"local": document, "global": document}, FLEET, "blue") == {
        "local/replicationClusters": [SELF],
        **{f"{scope}/{LIMIT_OF_TOPIC}": 1 for scope in ("local", "global")},
        **{f"{scope}/policyOfTomorrow": 2 for scope in ("local", "global")},
    }


RATE, OTHER_RATE = "publishMaxMessageRate", "topicDispatchRate"


@pytest.mark.parametrize(
    ("policy", "value", "document"),
    [
        (PRODUCERS, 5, {RATE: {"blue": 1, "green": 2}, PRODUCERS: 5}),
        (PRODUCERS, None, {RATE: {"blue": 1, "green": 2}}),
        (RATE, 7, {RATE: {"blue": 7, "green": 2}, PRODUCERS: 3}),
        (RATE, None, {RATE: {"green": 2}, PRODUCERS: 3}),
        (OTHER_RATE, 7, {RATE: {"blue": 1, "green": 2}, PRODUCERS: 3, OTHER_RATE: {"blue": 7}}),
        ("policyOfTomorrow", 7, {RATE: {"blue": 1, "green": 2}, PRODUCERS: 3, "policyOfTomorrow": 7}),
    ],
)
def test_a_policy_is_set_for_one_cluster_and_all_else_is_kept(
    policy: str, value: Json, document: dict[str, Json]
) -> None:
    before: dict[str, Json] = {RATE: {"blue": 1, "green": 2}, PRODUCERS: 3}
    assert with_policy(before, policy, value, "blue") == document


def test_taken_apart_and_put_together_a_policy_is_the_same() -> None:
    document = {
        "auth_policies": {
            "namespace_auth": {"a/b": ["produce"]},
            "destination_auth": {EVENTS: {"role": ["consume"]}},
            "subscription_auth_roles": {"billing": ["reader"]},
        },
        "properties": {"a/b": "x", "c%2Fd": "y"},
        "backlog_quota_map": {"message_age": {"limitTime": 5, "limitSize": -1, "policy": "producer_exception"}},
    }
    values = namespace_values(document, FLEET, "blue")
    assert {policy: whole_value(policy, values, "blue") for policy in document} == document
    assert values[f"auth_policies/destination_auth/{quote(EVENTS, safe='')}/role"] == ["consume"]


def test_a_cluster_list_names_each_cluster_itself_unless_they_replicate() -> None:
    assert neutral(["blue", "mirror", "archive"], FLEET, "blue") == [SELF, "archive", "mirror"]
    assert neutral(["blue", "green"], FLEET, "blue") == ["blue", "green"]
    assert localised([SELF, "mirror"], "green") == ["green", "mirror"]


def test_a_list_with_a_missing_or_unknown_cluster_is_never_written() -> None:
    base = agreed_by(snapshot("blue"), snapshot("green"))
    blue, green = snapshot("blue", replication_clusters=["blue", "mirror"]), snapshot("green")
    planned = plan(compare(views(blue, green), base, CompareOptions()), green, blue)
    assert (planned.changes, [entry.reason for entry in planned.left_alone]) == ((), ["green does not know mirror"])
    blue = replace(snapshot("blue", replication_clusters=["blue", "third"]), known_clusters=("blue", "third"))
    desired = DesiredState(source="file", items={ORDERS: {"replication_clusters": ["blue", "third"]}})
    planned = plan(compare(views(blue, green), base, CompareOptions(desired=desired)), green, blue)
    assert planned.changes == ()
    assert "leaves green out, which would delete its topics" in planned.left_alone[0].reason


def test_what_is_in_a_tenant_that_is_not_created_is_left_alone_too() -> None:
    tenant = TenantState("acme", (), ("blue", "mirror"))
    blue, green = replace(snapshot("blue"), tenants=(tenant,)), replace(without_namespace("green"), tenants=())
    comparison = compare(views(blue, green), {}, CompareOptions())
    planned = plan(comparison, green, blue)
    assert planned.changes == ()
    assert {(entry.resource, entry.reason) for entry in planned.left_alone} == {
        (Resource.TENANT, "green does not know mirror"),
        (Resource.NAMESPACE, "the tenant acme is not created: green does not know mirror"),
    }


def test_a_namespace_nobody_agreed_on_is_created_with_the_others_values() -> None:
    blue, green = snapshot("blue", **{PRODUCERS: 5}, bundles={"numBundles": 7}), without_namespace("green")
    (change,) = plan(compare(views(blue, green), {}, CompareOptions()), green, blue).changes
    assert (change.resource, change.after[PRODUCERS], change.after["replication_clusters"]) == (
        Resource.NAMESPACE,
        5,
        ["green"],
    )
    assert change.after["bundles"] == {"numBundles": 7}


def test_a_namespace_gone_on_one_side_is_neither_recreated_nor_deleted() -> None:
    base = agreed_by(snapshot("blue"), snapshot("green"))
    blue, green = without_namespace("blue"), snapshot("green")
    comparison = compare(views(blue, green), base, CompareOptions())
    assert one(comparison, ORDERS).gone == ("blue",)
    assert [steps(plan(comparison, target)) for target in (blue, green)] == [[], []]
    whole = {"acme/orders": {"replication_clusters": ["green"]}}
    (change,) = plan_deletions(comparison.compared, Target(snapshot=green, deletable=whole)).changes
    assert (change.calls[0].text(), change.hazard.needs_permission) == ("DELETE /namespaces/acme/orders", True)


def test_a_deletion_is_not_carried_over_an_edit() -> None:
    base = agreed_by(snapshot("blue"), snapshot("green"))
    green = snapshot("green", **{PRODUCERS: 9})
    comparison = compare(views(without_namespace("blue"), green), base, CompareOptions())
    assert plan_deletions(comparison.compared, Target(snapshot=green)).changes == ()


def test_a_tombstone_stays_and_a_recreated_namespace_joins() -> None:
    base = agreed_by(snapshot("blue", **{PRODUCERS: 5}), snapshot("green", **{PRODUCERS: 5}))
    gone = compare(views(without_namespace("blue"), snapshot("green", **{PRODUCERS: 5})), base, CompareOptions())
    kept = conclude(gone.compared, {}, all_reachable=True).merge_bases
    assert kept[ORDERS] == replace(base[ORDERS], clusters=("green",), gone=("blue",))
    again = compare(
        views(snapshot("blue"), snapshot("green", **{PRODUCERS: 5})), {**base, ORDERS: kept[ORDERS]}, CompareOptions()
    )
    assert one(again, ORDERS).drifting == {PRODUCERS: ("blue",)}


def test_a_topic_that_is_gone_takes_its_policies_away_from_nobody() -> None:
    both = (snapshot("blue", {"maxProducerPerTopic": 3}), snapshot("green", {"maxProducerPerTopic": 3}))
    base = agreed_by(*both)
    snapshots = [both[0], snapshot("green")]
    assert namespaces_to_list(views(*snapshots)) == {"green": frozenset({"acme/orders"})}
    gone = compare(views(*snapshots, topics={"acme/orders": ()}), base, CompareOptions())
    assert (one(gone, TOPIC).drifting, one(gone, TOPIC).without_topic) == ({}, ("green",))
    unset = compare(views(*snapshots, topics={"acme/orders": (EVENTS,)}), base, CompareOptions())
    assert one(unset, TOPIC).drifting == {"local/maxProducerPerTopic": ("blue",)}


def test_what_could_not_be_read_is_left_out_on_all_sides() -> None:
    base = agreed_by(snapshot("blue", **{PRODUCERS: 5}), snapshot("green", **{PRODUCERS: 5}))
    blind = [
        View(cluster="blue", items=items_of(snapshot("blue", **{PRODUCERS: 6}), FLEET)),
        View(cluster="green", items=items_of(without_namespace("green"), FLEET), unread=frozenset({"acme/orders"})),
    ]
    comparison = compare(blind, base, CompareOptions())
    assert (comparison.unread, [resource.item for resource in comparison.drift()]) == ((ORDERS,), [])


def test_nothing_is_agreed_on_while_a_cluster_is_away() -> None:
    comparison = compare(views(snapshot("blue"), snapshot("green")), {}, CompareOptions())
    assert conclude(comparison.compared, {}, all_reachable=False).merge_bases == {}


def test_only_values_read_back_are_agreed_and_a_copy_keeps_its_age() -> None:
    base = agreed_by(snapshot("blue"), snapshot("green"))
    blue, green = snapshot("blue", **{PRODUCERS: 5, TTL: 60}), snapshot("green")
    original = Provenance("d", 100, 101)
    sides = [
        View(cluster="blue", items=items_of(blue, FLEET), provenance={ORDERS: {PRODUCERS: original, TTL: original}}),
        View(cluster="green", items=items_of(green, FLEET)),
    ]
    comparison = compare(sides, base, CompareOptions())
    planned = plan(comparison, green, blue)
    ends = {PRODUCERS: Outcome.APPLIED, TTL: Outcome.REFUSED}
    results = tuple(ChangeResult(change, ends[change.field]) for change in planned.changes)
    done = {"green": written(PlanResult(planned.id, "green", results))}
    settled = conclude(Drift.from_json(Drift(tuple(comparison.drift())).to_json()).compared, done, all_reachable=True)
    agreed = settled.merge_bases[ORDERS]
    assert agreed is not None
    assert (agreed.document.get(PRODUCERS), agreed.document.get(TTL)) == (5, None)
    decided = {ORDERS: {PRODUCERS: original, TTL: original}}
    assert decided_values(comparison.drift(), 500) == {"blue": decided, "green": decided}


def grants(**by_role: list[str]) -> dict[str, Any]:
    return {"auth_policies": {"namespace_auth": by_role}}


def test_an_entry_read_back_as_written_is_agreed_beside_an_edited_one() -> None:
    before = grants(writer=["packages"], reader=["produce"])
    base = agreed_by(snapshot("blue", **before), snapshot("green", **before))
    blue, green = snapshot("blue", **grants(writer=["sources"], reader=["sinks"])), snapshot("green", **before)
    compared = compare(views(blue, green), base, CompareOptions())
    (change,) = plan(compared, green, blue).changes
    read_back = grants(writer=["sources"], reader=["consume"])["auth_policies"]
    result = result_after_write(change, read_back, None)
    assert result.outcome is Outcome.FAILED
    done = {"green": written(PlanResult("p", "green", (result,)))}
    agreed = conclude(compared.compared, done, all_reachable=True).merge_bases[ORDERS]
    assert agreed is not None
    rights = {role: agreed.document[f"auth_policies/namespace_auth/{role}"] for role in ("writer", "reader")}
    assert rights == {"writer": ["sources"], "reader": ["produce"]}
    # Then somebody gives the writer its former rights back on blue: that is an edit, and green's value is only a copy.
    edited = snapshot("blue", **grants(writer=["packages"], reader=["sinks"]))
    copied = snapshot("green", **grants(writer=["sources"], reader=["consume"]))
    merged = one(compare(views(edited, copied), {**base, ORDERS: agreed}, CompareOptions()), ORDERS).merged
    assert merged.decisions["auth_policies/namespace_auth/writer"].value == ["packages"]


def test_a_topic_policy_is_as_old_as_the_event_that_first_had_its_value() -> None:
    times = PolicyEvents()
    for at, policies in ((1000, {"maxMessageSize": 1}), (5000, {"maxMessageSize": 1, "maxProducerPerTopic": 2})):
        times.note(EVENTS, Scope.LOCAL, TopicPolicyState(EVENTS, "local", policies, at), at)
    assert times.spans(EVENTS, ClockSkew(ahead=0, uncertainty=0.5), 0.5) == {
        "local/maxMessageSize": (UNKNOWN, 2.0),
        "local/maxProducerPerTopic": (4.0, 6.0),
    }


def test_files_name_their_source_and_a_second_export_changes_no_byte(tmp_path: Path) -> None:
    blue = snapshot(
        "blue",
        {"maxProducerPerTopic": 3, "subscriptionTypesEnabled": ["Shared", "Exclusive"]},
        publishMaxMessageRate={"blue": {"publishThrottlingRateInMsg": 5}},
        properties={"on": "yes", "Ω": "0123"},
        auth_policies={"namespace_auth": {"writer": ["produce", "consume"]}},
    )
    items = items_of(blue, FLEET)
    assert len(export(items, tmp_path).written) == 2
    assert load(tmp_path) == items
    assert export(items, tmp_path).written == ()


def test_comments_and_order_are_the_writers(tmp_path: Path) -> None:
    export(items_of(snapshot("blue", **{PRODUCERS: 5, TTL: 60}), FLEET), tmp_path)
    file = tmp_path / "acme" / "orders.yaml"
    text = f"""# owned by billing
namespace: acme/orders
policies:
  {TTL}: 60
  # more than five break the printer
  {PRODUCERS}: 5   # sic
  replication_clusters: [$self]
"""
    file.write_text(text)
    assert export(items_of(snapshot("blue", **{PRODUCERS: 5, TTL: 60}), FLEET), tmp_path).written == ()
    export(items_of(snapshot("blue", **{PRODUCERS: 4, TTL: 60}), FLEET), tmp_path)
    assert file.read_text() == text.replace(f"{PRODUCERS}: 5", f"{PRODUCERS}: 4")


NAMED = ("a", "b", "c")
TTL_OF_TOPIC, LIMIT_OF_TOPIC = "messageTTLInSeconds", "maxConsumerPerTopic"
SHARED = {
    "an alias": "a: &s {local: {T: 60}}\nb: *s\nc: *s\n",
    "an alias of a part": "a: {local: &s {T: 60}}\nb: {local: *s}\nc: {local: *s, global: {}}\n",
    "an alias of a value": "a: {local: {T: &s 60}}\nb: {local: {T: *s}}\nc: {local: {T: *s}}\n",
    "a merge key": "a: &s {local: {T: 60}}\nb: {<<: *s}\nc:\n  <<: *s\n  global: {}\n",
    "several merge keys": "a: &s {local: {T: 60}}\nb: &t {<<: *s, global: {}}\nc: {<<: [*t, *s]}\n",
    "an anchor below an anchor": "a: &s {local: &t {T: 60}}\nb: *s\nc: {local: *t}\n",
    "an anchor below one that is shared": "a: &s {local: &t {T: 60}}\nb: {local: *t}\nc: *s\n",
    "an anchor without an alias": "a: &s {local: {T: 60}}\nb: {local: {T: 60}}\nc: {local: {T: 60}}\n",
}


@pytest.mark.parametrize("shared", SHARED)
@settings(max_examples=30)
@given(*(st.tuples(*[st.sampled_from(choices)] * 3) for choices in ([None, 60, 120, 7], [None, 5])))
def test_a_file_with_anchors_gets_the_values_of_the_cluster(
    tmp_path_factory: pytest.TempPathFactory, shared: str, values: tuple[int | None], limits: tuple[int | None]
) -> None:
    folder = tmp_path_factory.mktemp("desired")
    namespace: dict[Item, Values] = {(Resource.NAMESPACE, "acme/orders"): {}}
    fields = (f"local/{TTL_OF_TOPIC}", f"local/{LIMIT_OF_TOPIC}")
    topics: dict[Item, Values] = {
        (Resource.TOPIC_POLICY, f"persistent://acme/orders/{name}"): {
            field: value for field, value in zip(fields, pair, strict=True) if value is not None
        }
        for name, pair in zip(NAMED, zip(values, limits, strict=True), strict=True)
    }
    wanted = namespace | {item: fields for item, fields in topics.items() if fields}
    file = folder / "acme" / "orders.yaml"
    file.parent.mkdir()
    rows = SHARED[shared].replace("T:", f"{TTL_OF_TOPIC}:").splitlines()
    names = (f"  persistent://acme/orders/{row}" if row[0] in NAMED else f"  {row}" for row in rows)
    file.write_text("\n".join(["# owned by billing", "namespace: acme/orders", "policies: {}", "topics:", *names, ""]))
    before = load(folder)
    exported = export(wanted, folder)
    assert load(folder) == wanted
    assert (exported.written == ()) == (before == wanted)
    assert export(wanted, folder).written == ()
    assert file.read_text().startswith("# owned by billing\n")


def test_what_an_edit_does_not_concern_keeps_its_anchor(tmp_path: Path) -> None:
    file = tmp_path / "acme" / "orders.yaml"
    file.parent.mkdir()
    head = "namespace: acme/orders\npolicies: {}\ntopics:\n"
    first, *others = (f"  persistent://acme/orders/{name}:" for name in "abcd")
    local = f"local:\n      {TTL_OF_TOPIC}: 60   # a minute\n"
    file.write_text(f"{head}{first}\n    {local}{others[0]} &s\n    {local}{others[1]} *s\n{others[2]} *s\n")
    wanted = load(tmp_path)
    wanted[Resource.TOPIC_POLICY, "persistent://acme/orders/d"] = {f"local/{TTL_OF_TOPIC}": 120}
    export(wanted, tmp_path)
    changed = local.replace("60   #", "120  #")
    kept = f"{head}{first}\n    {local}{others[0]} &s\n    {local}{others[1]} *s\n"
    assert file.read_text() == f"{kept}{others[2]}\n    {changed}"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("acme/orders.yaml", "namespace: acme/orders\npolicies: {max_producer_per_topic: 5}", "did you mean"),
        ("acme/orders.yaml", "namespace: acme/orders\npolicies: 7", "7 is not a mapping"),
        ("acme/orders.yaml", "namespace: acme/orders\npolicies: {backlog_quota_map: 7}", "not have the shape"),
        ("acme/orders.yaml", "namespace: acme/audit", "whose file is acme/audit.yaml"),
        ("acme/orders.yaml", "[1, 2]", "is not a mapping"),
        ("acme/orders.yaml", "a: [", "is not valid YAML"),
        ("acme.yaml", "tenant: acme\nroles: []", "'roles' is not known"),
        ("notes.txt", "", "There is no desired state"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_one_sentence(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=words):
        load(tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a file"):
        export({(Resource.NAMESPACE, "../orders"): {}}, tmp_path)


@pytest.mark.parametrize("text", ["", "blue", "cluster:", "merge:blue", "file:"])
def test_an_authority_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is none of"):
        Authority.parse(text)


def store(*clusters: str) -> ReconciliationStore:
    return ReconciliationStore(Ledger.open(), clusters)


KEY = ("namespace", "acme/orders")
AGREED = MergeBase(document={TTL: 60}, clusters=("blue", "green"))


def test_agreements_are_replaced_and_forgotten_and_follow_a_growing_fleet(records: Path) -> None:
    store("blue", "green").save_merge_bases(
        {KEY: MergeBase(document={}, clusters=("blue",)), ("tenant", "acme"): AGREED}
    )
    store("green", "blue").save_merge_bases({KEY: AGREED, ("tenant", "acme"): None})
    assert store("blue", "green").merge_bases() == {KEY: AGREED}
    grown = store("blue", "green", "red")
    assert grown.merge_bases() == {KEY: AGREED}
    grown.save_merge_bases({("tenant", "other"): AGREED})
    assert grown.merge_bases() == {KEY: AGREED, ("tenant", "other"): AGREED}
    assert store("teal", "red").merge_bases() == {}


def test_a_look_replaces_what_was_seen_of_the_same_resource_only(records: Path) -> None:
    provenance = store("blue", "green")
    provenance.save_observations(
        "blue", {KEY: StoredObservation(1.0, {"a": ["x", 0, 1]}), ("tenant", "acme"): StoredObservation(1.0, {})}
    )
    provenance.save_observations("blue", {KEY: StoredObservation(2.0, {})})
    assert provenance.observations("blue") == {
        KEY: StoredObservation(2.0, {}),
        ("tenant", "acme"): StoredObservation(1.0, {}),
    }
    assert (provenance.last_observed("blue"), provenance.last_observed("green")) == (2.0, None)


CONFLICT = RecordedConflict(
    kind="namespace",
    name="acme/orders",
    field=TTL,
    rule="name of the cluster",
    winner="blue",
    sides={name: {"value": value, "not_before": 0, "not_after": 1} for name, value in (("blue", 1), ("green", 2))},
)


def test_a_conflict_is_journaled_once_and_its_loser_can_be_chosen(records: Path) -> None:
    kept = store("blue", "green")
    assert [kept.record_conflicts("run", [CONFLICT]) for _ in range(2)] == [1, 0]
    ((conflict_id, conflict),) = kept.conflicts()
    assert conflict == CONFLICT
    with pytest.raises(InvalidRequest, match="is not part of"):
        kept.choose(conflict_id, "red")
    with pytest.raises(NotFound, match="has no conflict"):
        kept.choose("nothing", "green")
    kept.choose(conflict_id, "green")
    assert list(kept.choices().values()) == [(KEY, TTL, 2)]
    kept.resolve_choices([conflict_id])
    assert kept.choices() == {}


def test_a_conflict_that_occurs_again_is_open_and_without_a_choice(records: Path) -> None:
    kept = store("blue", "green")
    kept.record_conflicts("first", [CONFLICT])
    ((conflict_id, _),) = kept.conflicts()
    kept.choose(conflict_id, "green")
    kept.resolve_choices([conflict_id])
    kept.record_conflicts("second", [CONFLICT])
    assert kept.choices() == {}
    assert kept.unresolved(TTL) == [(conflict_id, CONFLICT)]


def test_settings_that_contradict_each_other_are_refused() -> None:
    params = {
        "selection": [],
        "mode": "dry_run",
        "authority": "merge",
        "tie_break": "smaller",
        "granularity": "field",
        "topics": True,
        "partitioned_topics": True,
        "propagate_deletes": "never",
        "skew_seconds": 2.0,
        "allow_changes": [],
        "choose": ["1f=green"],
    }
    with pytest.raises(InvalidRequest, match="A dry run saves nothing"):
        Request.of(params)
    assert Request.of({**params, "mode": "repair"}).choose == {"1f": "green"}
    with pytest.raises(InvalidRequest, match="is not the id of a conflict"):
        Request.of({**params, "choose": ["green"]})


def test_a_note_hides_its_resource_and_a_superusers_note_hides_nothing() -> None:
    from pulsar_fleet.cluster.admin.partial_reads import Area
    from pulsar_fleet.policy_sync.merge.scan import ClusterScan

    notes = (
        Note("acme/orders", Problem.UNREADABLE.value, ""),
        Note(Area.BROKERS.value, Problem.HIDDEN.value, ""),
        Note("acme/gone", Problem.DELETED.value, ""),
    )
    provenance = ClusterScan(
        snapshot=replace(snapshot("blue"), notes=notes),
        clock=ClockSkew(0, 0),
        began=0,
        ended=1,
        calls=0,
        events={},
        topics={},
    )
    assert provenance.unread == {"acme/orders"}
