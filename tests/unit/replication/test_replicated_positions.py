"""Which changes of lists stop the positions of replicated subscriptions, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.replicated_positions import stopped_positions
from pulsar_fleet.replication.setup.stages import plan_replication
from pulsar_fleet.replication.topology import Topology
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, SubscriptionState, TopicPolicyState, TopicState

NAMESPACE, TOPIC = "acme/orders", "persistent://acme/orders/events"
STOP = ("replicated-subscriptions-stop", "acme/orders on blue")
FLAGGED = (SubscriptionState(TOPIC, TOPIC, "billing", "1:1", True),)
PLAIN = (SubscriptionState(TOPIC, TOPIC, "billing", "1:1", False),)


def holding(
    name: str,
    *listed: str,
    subscriptions: Sequence[SubscriptionState] = (),
    own_list: Sequence[str] = (),
    scope: str = "",
) -> Snapshot:
    """A cluster with the namespace, its topic and their lists."""
    policies = TopicPolicyState(TOPIC, scope or "local", {"replicationClusters": list(own_list)}, 0)
    return Snapshot(
        cluster=name,
        began="",
        ended="",
        key_id="k",
        namespaces=(NamespaceState(NAMESPACE, {"replication_clusters": list(listed) or [name]}),),
        topics=(TopicState(TOPIC, 0, {}),),
        subscriptions=tuple(subscriptions),
        topic_policies=(policies,) if own_list else (),
    )


def found(
    members: Sequence[Snapshot],
    receive_only: Sequence[Snapshot] = (),
    leaving: Sequence[Snapshot] = (),
    **settings: Json,
) -> list[Finding]:
    snapshots = {snapshot.cluster: snapshot for snapshot in (*members, *receive_only, *leaving)}
    groups = {"clusters": members, "receive_only": receive_only, "leaving": leaving}
    names = {group: tuple(row.cluster for row in rows) for group, rows in groups.items()}
    topology = Topology(members=names["clusters"], receive_only=names["receive_only"], leaving=names["leaving"])
    conf: dict[str, Json] = {**names, "namespaces": [NAMESPACE], **settings}
    request = Request.of(conf)
    data: dict[str, dict[str, Json]] = {name: {} for name in snapshots}
    return list(stopped_positions(snapshots, plan_replication(snapshots, topology, request, data, ()), request))


def keys(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(row.id, row.resource) for row in findings]


BOTH = ("blue", "green")
BLUE, GREEN = holding("blue", *BOTH, subscriptions=FLAGGED), holding("green", *BOTH)
FAR = holding("far")


def test_a_cluster_that_joins_as_receiver_stops_what_works() -> None:
    (finding,) = found([BLUE, GREEN], [FAR])
    assert keys([finding]) == [STOP]
    assert "far will not replicate back to blue; 1 subscription: billing of " + TOPIC in finding.evidence
    assert "green included" in finding.consequence


def test_a_cluster_that_joins_as_member_stops_nothing() -> None:
    assert found([BLUE, GREEN, FAR]) == []


def test_what_a_run_does_not_change_is_no_finding() -> None:
    three = (*BOTH, "far")
    members = [holding("blue", *three, subscriptions=FLAGGED), holding("green", *three)]
    assert found(members, [FAR]) == []
    assert keys(found(members, [FAR], replicated_subscriptions=True)) == []


def test_flags_that_a_run_sets_beside_a_receiver_are_one() -> None:
    members = [replace(BLUE, subscriptions=PLAIN), GREEN]
    assert found(members, [FAR]) == []
    assert keys(found(members, [FAR], replicated_subscriptions=True)) == [STOP]


def test_a_member_that_becomes_a_receiver_stops_what_works() -> None:
    assert keys(found([BLUE], [GREEN])) == [STOP]


def test_a_first_copy_in_one_direction_stops_nothing_and_is_said() -> None:
    alone = holding("blue", subscriptions=FLAGGED)
    assert keys(found([alone], [FAR])) == [("receive-only-subscriptions", "acme/orders on blue")]


@pytest.mark.parametrize("scope", ["local", "global"])
def test_the_list_of_a_topic_itself_is_the_one_in_effect(scope: str) -> None:
    """It gets the cluster as the namespace's does: the topic is sent there too."""
    own: dict[str, Any] = {"own_list": BOTH, "scope": scope}
    members = [holding("blue", *BOTH, subscriptions=FLAGGED, **own), holding("green", *BOTH, **own)]
    assert keys(found(members, [FAR])) == [STOP]


def test_a_topic_that_loses_its_own_list_gets_its_global_one() -> None:
    """Its global list has `elsewhere`, which answers for all that is known; that of its namespace has not."""
    blue = holding("blue", "blue", "far", subscriptions=PLAIN, own_list=("blue", "c", "elsewhere", "far"))
    shared = TopicPolicyState(TOPIC, "global", {"replicationClusters": ["blue", "elsewhere", "far"]}, 0)
    blue = replace(blue, topic_policies=(*blue.topic_policies, shared))
    assert keys(found([blue], [FAR], [holding("c")], replicated_subscriptions=True)) == [STOP]


def test_a_topic_that_gets_a_list_of_its_own_is_asked_about() -> None:
    settings: dict[str, Json] = {"namespaces": [], "topics": [TOPIC]}
    own: dict[str, Any] = {"own_list": BOTH}
    members = [holding("blue", subscriptions=FLAGGED, **own), holding("green", **own)]
    assert keys(found(members, [FAR], **settings)) == [STOP]
    assert found([*members, FAR], **settings) == []
