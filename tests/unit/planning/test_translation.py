"""Lists of clusters in the terms of another cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.snapshots import PLAIN, full_pair, with_policies

from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.translation import without_way_back
from pulsar_fleet.snapshot.model import Snapshot, TopicPolicyState

BOTH = ("blue", "green")


def side(cluster: str, namespace: Sequence[str], **topic: Sequence[str]) -> Snapshot:
    """A cluster with lists of a namespace, and by scope of one of its topics."""
    pair = full_pair()
    policies = tuple(
        TopicPolicyState(PLAIN, scope, {"replicationClusters": [*names]}, 0) for scope, names in topic.items()
    )
    of = with_policies(pair.source if cluster == "blue" else pair.target, replication_clusters=[*namespace])
    return replace(of, topic_policies=policies, known_clusters=("blue", "c", "green"))


def changes(blue: Snapshot, green: Snapshot) -> dict[tuple[str, str], object]:
    plan = plan_changes(without_way_back(blue, green), green)
    return {(change.name, change.field): change.after for change in plan.changes if change.resource != "tenant"}


@pytest.mark.parametrize(
    ("blue", "green", "expected"),
    [
        pytest.param(side("blue", BOTH), side("green", ["green"]), {}, id="namespace one way"),
        pytest.param(side("blue", BOTH), side("green", BOTH), {}, id="namespace both ways"),
        pytest.param(side("blue", ["blue"]), side("green", ["green"]), {}, id="not replicated"),
        pytest.param(
            side("blue", ["blue"], local=BOTH),
            side("green", ["green"]),
            {(PLAIN, "local/replicationClusters"): ["green"]},
            id="topic one way",
        ),
        pytest.param(
            side("blue", ["blue"], local=["blue", "c", "green"]),
            side("green", ["green"], local=["c", "green"]),
            {},
            id="topic one way, and a third cluster",
        ),
        pytest.param(
            side("blue", ["blue"], local=BOTH), side("green", ["green"], local=BOTH), {}, id="topic both ways"
        ),
        pytest.param(
            side("blue", ["blue"], local=BOTH),
            side("green", BOTH),
            {(PLAIN, "local/replicationClusters"): [*BOTH]},
            id="topic, back by the namespace",
        ),
    ],
)
def test_a_one_way_list_is_copied_without_a_way_back(
    blue: Snapshot, green: Snapshot, expected: dict[tuple[str, str], object]
) -> None:
    assert changes(blue, green) == expected


def test_a_list_of_the_topic_decides_before_that_of_its_namespace() -> None:
    blue, green = side("blue", ["blue"], **{Scope.GLOBAL: BOTH}), side("green", BOTH, **{Scope.LOCAL: ["green"]})
    (state,) = without_way_back(blue, green).topic_policies
    assert state.policies["replicationClusters"] == ["green"]


@pytest.mark.parametrize(
    ("blue", "green", "asked"),
    [
        pytest.param(side("blue", BOTH), side("green", ["green"]), "policy", id="namespace one way"),
        pytest.param(side("blue", ["blue", "c"]), side("green", ["green"]), "", id="to a third cluster only"),
        pytest.param(side("blue", ["blue"], local=BOTH), side("green", ["green"]), "topic policy", id="topic one way"),
        pytest.param(side("blue", BOTH, local=BOTH), side("green", BOTH), "", id="topic of a namespace both ways"),
        pytest.param(
            side("blue", BOTH, local=BOTH),
            side("green", BOTH, local=["green"]),
            "topic policy",
            id="topic that is not sent back, of a namespace both ways",
        ),
    ],
)
def test_a_plan_asks_before_a_one_way_replication_gets_a_way_back(blue: Snapshot, green: Snapshot, asked: str) -> None:
    plan = plan_changes(blue, green)
    asking = [change for change in plan.needing_permission() if change.field.lower().startswith(("repl", "local/repl"))]
    assert [change.resource.value for change in asking] == [asked] * bool(asked)
    assert all("sent back to blue" in change.reason for change in asking)


def test_a_namespace_that_is_created_gets_its_whole_list() -> None:
    blue, green = side("blue", BOTH), replace(side("green", BOTH), namespaces=(), topics=(), topic_policies=())
    (created,) = [change for change in plan_changes(blue, green).changes if change.resource == "namespace"]
    assert (created.hazard, sorted(created.after["replication_clusters"])) == ("none", list(BOTH))


def test_a_topic_that_is_created_gets_its_whole_list() -> None:
    blue, green = side("blue", ["blue"], local=BOTH), replace(side("green", ["green"]), topics=(), topic_policies=())
    (listed,) = [one for one in plan_changes(blue, green).changes if one.field == "local/replicationClusters"]
    assert not listed.hazard.needs_permission
