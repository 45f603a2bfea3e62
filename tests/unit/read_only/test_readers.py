"""Who may read which shadow topic: who may consume from its source, and from no other one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.source_changes import (
    consumers_of,
    grant_changes,
    grants_of,
    narrowing_changes,
    only_readers,
    partial_readers,
    rights_of_readers,
)
from pulsar_fleet.read_only.state import Observed, SourceState

ORDERS, PAYROLL = TopicName.parse("persistent://acme/orders/events"), TopicName.parse("persistent://acme/payroll/pay")
REQUEST = Request.of({"topics": [str(ORDERS), str(PAYROLL)], "namespace": "acme/readers"})
CONSUME = ["consume"]


def rights(namespace: Mapping[str, list[str]], **topics: Mapping[str, list[str]]) -> JsonObject:
    """The policies of a namespace in which these roles have rights, on it and on topics of `acme/readers`."""
    named = {f"persistent://acme/readers/{name}": dict(granted) for name, granted in topics.items()}
    return {"auth_policies": {"namespace_auth": dict(namespace), "destination_auth": named}}


def observed(
    orders: list[str], payroll: list[str], *, readers: JsonObject | None = None, served: tuple[TopicName, ...] = ()
) -> Observed:
    policies = {topic: rights(dict.fromkeys(roles, CONSUME)) for topic, roles in ((ORDERS, orders), (PAYROLL, payroll))}
    return Observed(
        cluster="blue",
        tenant_exists=True,
        document=readers,
        sources=tuple(SourceState(topic=topic, partitions=0, namespace=policies[topic]) for topic in policies),
        shadows={},
        served={topic: policies[topic] for topic in served},
    )


def test_a_role_may_consume_by_its_namespace_or_by_the_topic_itself() -> None:
    document: JsonObject = {
        "auth_policies": {
            "namespace_auth": {"all": ["consume", "produce"], "writer": ["produce"]},
            "destination_auth": {str(ORDERS): {"one": CONSUME}, "persistent://acme/orders/other": {"two": CONSUME}},
        }
    }
    assert consumers_of(ORDERS, document) == {"all", "one"}
    assert consumers_of(ORDERS, {}) == set()


def test_a_new_namespace_is_open_to_who_may_consume_from_every_source() -> None:
    state = observed(["both", "clerk"], ["both", "payer"])
    assert grants_of(rights_of_readers(state, REQUEST)) == {"namespace_auth": {"both": CONSUME}}
    (change,) = grant_changes(state, REQUEST)
    assert change.after["namespace_auth"] == {"both": CONSUME}
    assert change.after["destination_auth"] == {
        "persistent://acme/readers/events": {"clerk": CONSUME},
        "persistent://acme/readers/pay": {"payer": CONSUME},
    }


def test_a_role_that_a_new_source_excludes_keeps_its_own_topics() -> None:
    state = observed(["clerk"], ["payer"], readers=rights({"clerk": CONSUME, "guest": CONSUME}), served=(ORDERS,))
    (first,) = narrowing_changes(state, REQUEST)
    # The shadow topic of the new source does not exist yet; a guest of no source was let in by a person.
    assert first.after == {
        "namespace_auth": {"guest": CONSUME},
        "destination_auth": {"persistent://acme/readers/events": {"clerk": CONSUME}},
    }
    (then,) = grant_changes(state, REQUEST)
    assert then.before == first.after
    assert then.after["destination_auth"]["persistent://acme/readers/pay"] == {"payer": CONSUME}


def test_the_watch_takes_nothing_away_and_reports_who_reads_too_much() -> None:
    both = (ORDERS, PAYROLL)
    state = observed(["clerk"], ["payer"], readers=rights({"clerk": CONSUME, "guest": CONSUME}), served=both)
    (change,) = grant_changes(state, REQUEST, revokes=False)
    assert change.after["namespace_auth"] == {"clerk": CONSUME, "guest": CONSUME}
    assert change.after["destination_auth"] == {"persistent://acme/readers/pay": {"payer": CONSUME}}
    assert partial_readers(state, REQUEST) == ["clerk"]
    assert only_readers(state, REQUEST) == ["guest"]


def test_a_right_on_a_topic_that_its_source_does_not_give_is_reported() -> None:
    readers = rights({}, events={"clerk": CONSUME, "payer": CONSUME}, pay={"payer": CONSUME})
    state = observed(["clerk"], ["payer"], readers=readers, served=(ORDERS, PAYROLL))
    assert list(grant_changes(state, REQUEST)) == []
    assert only_readers(state, REQUEST) == ["payer on persistent://acme/readers/events"]


def test_a_source_of_an_earlier_run_counts() -> None:
    request = Request.of({"topics": [str(ORDERS)], "namespace": "acme/readers"})
    state = observed(["clerk"], ["payer"], readers=rights({}), served=(PAYROLL,))
    state = replace(state, sources=state.sources[:1])
    (change,) = grant_changes(state, request)
    assert "namespace_auth" not in change.after
    assert change.after["destination_auth"]["persistent://acme/readers/events"] == {"clerk": CONSUME}
