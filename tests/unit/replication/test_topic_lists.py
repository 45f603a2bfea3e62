"""Which list of clusters is in effect for a topic, and how a run extends and shortens it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.planning.plan import Change, Hazard
from pulsar_fleet.replication.replicated_namespaces import list_in_effect
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.replication.setup.stages import plan_replication
from pulsar_fleet.replication.topology import Topology
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState, TopicState
from pulsar_fleet.snapshot.resources import lists_of_topics

NAMESPACE = "acme/orders"
TOPIC = "persistent://acme/orders/events"


def snapshot(cluster: str, listed: list[str], **own: list[str]) -> Snapshot:
    """One topic in a namespace with this list; `local` and `shared` are lists of the topic."""
    scopes = {"local": "local", "shared": "global"}
    policies = (TopicPolicyState(TOPIC, scopes[kind], {"replicationClusters": own[kind]}, 0) for kind in own)
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        tenants=(TenantState("acme", (), ("blue", "c", "far", "green")),),
        namespaces=(NamespaceState(NAMESPACE, {"replication_clusters": listed}),),
        topics=(TopicState(TOPIC, 0, {}),),
        topic_policies=tuple(policies),
    )


def planned(blue: Snapshot, *members: str, leaving: tuple[str, ...] = (), **what: Json) -> ReplicationPlan:
    topology = Topology(members=members, leaving=leaving)
    request = Request.of({"clusters": list(members), "leaving": list(leaving), **(what or {"namespaces": [NAMESPACE]})})
    others = {name: snapshot(name, [name]) for name in (*members, *leaving) if name != "blue"}
    data: dict[str, JsonObject] = {name: {"serviceUrl": f"http://{name}:8080"} for name in topology.clusters}
    return plan_replication({"blue": blue, **others}, topology, request, data, ())


def topic_lists(plan: ReplicationPlan, stage: int) -> list[Change]:
    return [change for change in plan.clusters["blue"].stages[stage].changes if change.name == TOPIC]


def test_the_local_list_counts_then_the_global_then_the_namespaces() -> None:
    topic = TopicName.parse(TOPIC)
    assert list_in_effect(snapshot("blue", ["blue", "c"], local=["blue"], shared=["blue", "far"]), topic) == ["blue"]
    assert list_in_effect(snapshot("blue", ["blue", "c"], shared=["blue", "far"]), topic) == ["blue", "far"]
    assert list_in_effect(snapshot("blue", ["c", "blue"]), topic) == ["blue", "c"]
    assert list_in_effect(snapshot("blue", []), topic) == ["blue"]


@pytest.mark.parametrize("scopes", [("local", "global"), ("global", "local")])
def test_the_list_of_a_topic_is_one_in_any_order_of_its_documents(scopes: tuple[str, str]) -> None:
    lists = {"local": ["blue"], "global": ["blue", "far"]}
    states = [TopicPolicyState(TOPIC, scope, {"replicationClusters": lists[scope]}, 0) for scope in scopes]
    topic = TopicName.parse(TOPIC)
    assert lists_of_topics(states) == {topic: frozenset({"blue"})}
    unset = [replace(state, policies={}) if state.scope == "local" else state for state in states]
    assert lists_of_topics(unset) == {topic: frozenset({"blue", "far"})}


def test_a_run_about_a_topic_extends_the_list_in_effect() -> None:
    for blue in (snapshot("blue", ["blue", "far"]), snapshot("blue", ["blue"], shared=["blue", "far"])):
        (change,) = topic_lists(planned(blue, "blue", "green", topics=[TOPIC]), 1)
        assert (change.before, change.after) == (None, ["blue", "far", "green"])
        assert change.hazard is Hazard.REVERSIBLE
    assert not topic_lists(planned(snapshot("blue", ["blue", "green"]), "blue", "green", topics=[TOPIC]), 1)


def test_a_run_about_a_namespace_extends_the_lists_of_its_topics() -> None:
    (change,) = topic_lists(planned(snapshot("blue", ["blue"], local=["blue", "c"]), "blue", "green"), 1)
    assert (change.before, change.after) == (["blue", "c"], ["blue", "c", "green"])


def test_a_topic_that_its_own_list_keeps_on_its_cluster_stays_there() -> None:
    plan = planned(snapshot("blue", ["blue"], local=["blue"]), "blue", "green")
    assert topic_lists(plan, 1) == []
    assert plan.kept_local["blue"] == (TOPIC,)


def test_a_list_that_is_its_namespaces_at_the_end_is_taken_away() -> None:
    blue = snapshot("blue", ["blue", "green"], local=["blue", "c", "green"])
    (change,) = topic_lists(planned(blue, "blue", "green", leaving=("c",)), 2)
    assert (change.before, change.after) == (["blue", "c", "green"], None)
    assert change.hazard is Hazard.IRREVERSIBLE


def test_a_list_that_the_run_extends_first_is_shortened_to_the_rest() -> None:
    blue = snapshot("blue", ["blue"], local=["blue", "c", "far"])
    plan = planned(blue, "blue", "green", leaving=("c",))
    (grows,), (shrinks,) = topic_lists(plan, 1), topic_lists(plan, 2)
    assert grows.after == shrinks.before == ["blue", "c", "far", "green"]
    assert shrinks.after == ["blue", "far", "green"]
