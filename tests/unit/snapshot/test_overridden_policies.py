"""What a snapshot has of topic policies that a run overrides."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cluster.runs.overrides import HELD_REPLICATION, QUIESCED_RATE, NamespaceOverrides
from pulsar_fleet.snapshot.model import TopicPolicyState
from pulsar_fleet.snapshot.namespace_reader import original_state

EVENTS = "persistent://acme/orders/events"
RECORD = NamespaceOverrides(
    run="migrate/1",
    since="",
    cluster="blue",
    replicates_to="green",
    publish_rate=None,
    inactive=None,
    replication=["blue"],
    topic_rates={EVENTS: {"publishThrottlingRateInMsg": 9}},
)


def test_only_the_local_policies_of_a_topic_get_their_original_values() -> None:
    local, shared = (
        TopicPolicyState(EVENTS, scope, {"publishRate": QUIESCED_RATE}, 0) for scope in ("local", "global")
    )
    assert original_state(RECORD, local).policies == {"publishRate": {"publishThrottlingRateInMsg": 9}}
    assert original_state(RECORD, shared) == shared


def test_replication_that_a_run_holds_has_its_original_rates() -> None:
    limit = {"dispatchThrottlingRateInMsg": 500, "ratePeriodInSecond": 1}
    held = replace(RECORD, holds_replication=True, replicator_rate=limit, topic_replicator_rates={EVENTS: limit})
    document = {"replicatorDispatchRate": {"blue": HELD_REPLICATION, "green": limit}, "replication_clusters": ["blue"]}
    assert held.original_policies(document)["replicatorDispatchRate"] == {"blue": limit, "green": limit}
    unlimited = replace(held, replicator_rate=None)
    assert unlimited.original_policies(document)["replicatorDispatchRate"] == {"green": limit}
    # Of a run that holds nothing, and of a broker without the policy.
    assert RECORD.original_policies(document)["replicatorDispatchRate"] == document["replicatorDispatchRate"]
    assert "replicatorDispatchRate" not in held.original_policies({"replication_clusters": ["blue"]})
    changed = {**document, "replicatorDispatchRate": {"blue": {**limit, "dispatchThrottlingRateInMsg": 7}}}
    assert held.original_policies(changed)["replicatorDispatchRate"] == changed["replicatorDispatchRate"]
    local = TopicPolicyState(EVENTS, "local", {"replicatorDispatchRate": HELD_REPLICATION}, 0)
    assert original_state(held, local).policies == {"replicatorDispatchRate": limit}
    earlier = {key: value for key, value in RECORD.to_json().items() if "replicat" not in key or key == "replication"}
    assert NamespaceOverrides.from_json({**earlier, "replicates_to": "green", "topic_replication": {}}) == RECORD
