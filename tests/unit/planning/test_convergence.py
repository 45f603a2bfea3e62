"""Whatever two clusters hold: after the planned changes nothing is left to plan.

The changes are made by a small model of a broker that knows only calls: it reads path, query and body of what would be
sent and writes them into the target's document as a broker does. The model is no stand-in for Pulsar (that the calls
themselves are right is shown on real brokers); it lets many pairs of documents be tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE, Kind, Policy, Unset
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE, Form, TopicPolicy, topic_comparable
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot, TenantState, TopicPolicyState, TopicState

EVENTS = "persistent://acme/orders/events"
Document = dict[str, Any]
OF_BODIES = [row for row in CATALOGUE if not row.in_query]
NAMESPACE_BY_PATH = {row.unset_path or row.path: row for row in OF_BODIES} | {row.path: row for row in OF_BODIES}
TOPIC_BY_PATH = {row.path: row for row in TOPIC_CATALOGUE}
SETTABLE = tuple(
    row for row in CATALOGUE if row.path and row.since != "5.0" and row.kind not in (Kind.LOCAL, Kind.AT_CREATION)
)

numbers = st.integers(min_value=1, max_value=3)
names = st.sampled_from(["a", "b", "c"])
quotas = st.fixed_dictionaries({"limitSize": numbers, "limitTime": numbers, "policy": st.just("producer_exception")})
grants = st.fixed_dictionaries(
    {
        "namespace_auth": st.dictionaries(names, st.lists(st.sampled_from(["consume", "produce"]), min_size=1)),
        "subscription_auth_roles": st.dictionaries(names, st.lists(names, min_size=1, unique=True)),
    }
)
inactive = st.fixed_dictionaries({"maxInactiveDurationSeconds": numbers, "deleteWhileInactive": st.booleans()})
IN_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "retention_policies": st.fixed_dictionaries({"retentionTimeInMinutes": numbers, "retentionSizeInMB": numbers}),
    "inactive_topic_policies": inactive,
    "resource_group_name": names,
}
VALUES: dict[Kind | Form, st.SearchStrategy[Any]] = {
    Kind.NAMES: st.lists(names, unique=True, min_size=1),
    Kind.FLAG: st.booleans(),
    Kind.OFFLOAD: st.fixed_dictionaries({"managedLedgerOffloadDriver": names, "s3ManagedLedgerOffloadBucket": names}),
    Kind.DELAYED: st.fixed_dictionaries(
        {"active": st.booleans(), "tickTime": numbers}, optional={"maxDeliveryDelayInMillis": numbers}
    ),
    Kind.QUOTAS: st.dictionaries(st.sampled_from(["destination_storage", "message_age"]), quotas),
    Kind.GRANTS: grants,
    Kind.PROPERTIES: st.dictionaries(names, names),
    Form.NAMES: st.lists(names, unique=True, min_size=1),
    Form.FLAG: st.booleans(),
    Form.OFFLOAD: st.fixed_dictionaries({"managedLedgerOffloadDriver": names}),
    Form.QUOTAS: st.dictionaries(st.sampled_from(["destination_storage", "message_age"]), quotas),
    Form.PER_SUBSCRIPTION: st.dictionaries(names, st.fixed_dictionaries({"dispatchRate": st.just({"a": 1})})),
}


def documents(own: str) -> st.SearchStrategy[Document]:
    """Documents of namespaces of a cluster: each policy set or not."""

    def value(row: Policy) -> st.SearchStrategy[Any]:
        kind, default = row.kind, row.default
        if row.field in IN_PARTS:
            return IN_PARTS[row.field]
        if kind is Kind.CLUSTER_MAP:
            return st.fixed_dictionaries({}, optional={own: numbers, "third": numbers})
        if kind is Kind.CLUSTER_LIST:
            return st.sampled_from([[own], [own, "third"]])
        if isinstance(default, bool):
            return st.booleans()
        return VALUES.get(kind, numbers)

    always = ("replication_clusters", "is_allow_auto_update_schema")
    return st.fixed_dictionaries(
        {
            "replication_clusters": st.sampled_from([[own], [own, "third"]]),
            "is_allow_auto_update_schema": st.booleans(),
        },
        optional={row.field: value(row) for row in SETTABLE if row.field not in always},
    )


def topic_documents() -> st.SearchStrategy[Document]:
    """Documents of a topic; its cluster list is left to the rules of its own."""
    rows = [row for row in TOPIC_CATALOGUE if row.form not in (Form.NOT_COPIED, Form.CLUSTER_LIST)]
    values = {field: _of_topic(row) for row in rows for field in row.fields or (row.field,)}
    return st.fixed_dictionaries({}, optional=values)


def _of_topic(row: TopicPolicy) -> st.SearchStrategy[Any]:
    if row.namespace_field in IN_PARTS:
        return IN_PARTS[row.namespace_field]
    return VALUES.get(row.form, numbers if row.can_unset else st.booleans())


def holding(own: str, policies: Document, local: Document, shared: Document) -> Snapshot:
    return Snapshot(
        cluster=own,
        began="",
        ended="",
        key_id="k",
        known_clusters=("blue", "green", "third"),
        tenants=(TenantState("acme", (), (own,)),),
        namespaces=(NamespaceState("acme/orders", policies),),
        topics=(TopicState(EVENTS, 1, {}),),
        topic_policies=(
            TopicPolicyState(EVENTS, "local", local, 1),
            TopicPolicyState(EVENTS, "global", {**shared, "isGlobal": True}, 1),
        ),
        brokers=(BrokerState("localhost:8080", "4.2.4", {}),),
    )


def after(plan: Plan, target: Snapshot) -> Snapshot:
    """The target once every call of the plan was sent."""
    document: Document = dict(target.namespaces[0].policies)
    topics = {policies.scope: dict(policies.policies) for policies in target.topic_policies}
    for change in plan.changes:
        for call in change.calls:
            if call.path.startswith("/namespaces/acme/orders/"):
                take(document, call, target.cluster)
            elif call.path.startswith("/persistent/"):
                take_topic(topics["global" if dict(call.params).get("isGlobal") else "local"], call)
    return replace(
        target,
        namespaces=(NamespaceState("acme/orders", document),),
        topic_policies=tuple(replace(policies, policies=topics[policies.scope]) for policies in target.topic_policies),
    )


def take(document: Document, call: Call, own: str) -> None:
    """What a broker does with the call of a namespace's setter."""
    head, _, rest = call.path.removeprefix("/namespaces/acme/orders/").partition("/")
    if head == "permissions":
        _take_grant(document, call, rest)
    elif head in ("properties", "property"):
        before = {**document.get("properties", {}), **(call.body or {})}
        document["properties"] = {key: value for key, value in before.items() if head == "properties" or key != rest}
    else:
        row = NAMESPACE_BY_PATH[head]
        before = document.get(row.field)
        document[row.field] = _written(row.kind, call, before, rest, own)


def _written(kind: Kind, call: Call, before: Any, rest: str, own: str) -> Any:
    if call.method == "DELETE":
        value = None
    elif kind is Kind.FLAG:
        value = True
    else:
        value = call.body if call.has_body else (rest or None)
    if kind is Kind.CLUSTER_MAP:
        return {**(before or {}), own: value}
    if kind is Kind.QUOTAS:
        return _quotas(before, call)
    return value


def _quotas(before: Any, call: Call) -> Any:
    quota = dict(call.params)["backlogQuotaType"]
    others = {key: value for key, value in (before or {}).items() if key != quota}
    return others if call.method == "DELETE" else {**others, quota: call.body}


def _take_grant(document: Document, call: Call, rest: str) -> None:
    assert call.method == "POST", "a plan revokes nothing"
    section, _, name = rest.rpartition("/")
    field = "subscription_auth_roles" if section else "namespace_auth"
    granted = document.get("auth_policies") or {}
    document["auth_policies"] = {**granted, field: {**granted.get(field, {}), name: call.body}}


def take_topic(document: Document, call: Call) -> None:
    """What a broker does with the call of a topic's setter."""
    path = call.path.removeprefix("/persistent/acme/orders/events/")
    if path.endswith("/dispatchRate"):
        name = unquote(path.partition("/")[0])
        others = {
            key: policies for key, policies in (document.get("subscriptionPolicies") or {}).items() if key != name
        }
        document["subscriptionPolicies"] = others | (
            {name: {"dispatchRate": call.body}} if call.method != "DELETE" else {}
        )
        return
    row = TOPIC_BY_PATH[path]
    if row.form is Form.QUOTAS:
        document[row.field] = _quotas(document.get(row.field), call)
    elif row.form is Form.DELAYED:
        parts = call.body if call.has_body else {}
        keys = ("active", "tickTime", "maxDeliveryDelayInMillis")
        document |= {field: parts.get(key) for field, key in zip(row.fields, keys, strict=True)}
    elif call.method == "DELETE":
        document[row.field] = None
    elif row.form is Form.IN_QUERY:
        document[row.field] = int(dict(call.params)[path])
    else:
        document[row.field] = True if row.form is Form.FLAG else call.body


@settings(max_examples=60)
@given(documents("blue"), documents("green"), *[topic_documents()] * 4)
def test_nothing_is_left_to_plan(
    ours: Document, theirs: Document, our_local: Document, our_shared: Document, local: Document, shared: Document
) -> None:
    source, target = holding("blue", ours, our_local, our_shared), holding("green", theirs, local, shared)
    reached = after(plan_changes(source, target), target)
    again = plan_changes(source, reached)
    assert [change.label for change in again.changes] == []


@settings(max_examples=60)
@given(documents("blue"), documents("green"), topic_documents(), topic_documents())
def test_documents_are_equal_but_for_what_is_never_taken_away(
    ours: Document, theirs: Document, our_local: Document, local: Document
) -> None:
    source, target = holding("blue", ours, our_local, {}), holding("green", theirs, local, {})
    reached = after(plan_changes(source, target), target)
    merged = {row.field for row in CATALOGUE if row.kind in (Kind.CLUSTER_LIST, Kind.GRANTS, Kind.PROPERTIES)}
    kept = {row.field for row in CATALOGUE if row.unset is Unset.IMPOSSIBLE} - set(comparable(ours, "blue"))
    sides = (comparable(ours, "blue"), comparable(reached.namespaces[0].policies, "green"))
    expected, actual = ({field: value for field, value in side.items() if field not in merged | kept} for side in sides)
    assert actual == expected
    sides = (topic_comparable(our_local), topic_comparable(reached.topic_policies[0].policies))
    expected, actual = ({field: value for field, value in side.items() if value is not False} for side in sides)
    assert actual == expected
