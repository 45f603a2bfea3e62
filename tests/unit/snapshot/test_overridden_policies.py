"""What a snapshot has of topic policies that a run overrides."""

from __future__ import annotations

from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE, NamespaceOverrides
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
