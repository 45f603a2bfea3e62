"""What a migration remembers of blue, and what it sets instead."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.frozen import Frozen, never_deleting, quiet_rate

ORDERS, AUDIT = NamespaceName("acme", "orders"), NamespaceName("acme", "audit")
EVENTS = TopicName(ORDERS, "events")
LIMITS = st.integers(-1, 10**9)
RATES = st.none() | st.fixed_dictionaries({"publishThrottlingRateInMsg": LIMITS, "publishThrottlingRateInByte": LIMITS})


@given(RATES)
def test_writers_are_held_to_one_message_and_never_allowed_more_bytes_than_before(rate: JsonObject | None) -> None:
    quiet = quiet_rate(rate)
    before = int((rate or {}).get("publishThrottlingRateInByte", -1))
    assert quiet["publishThrottlingRateInMsg"] == 1
    assert quiet["publishThrottlingRateInByte"] == (before if before > 0 else -1)


@given(st.none() | st.fixed_dictionaries({"deleteWhileInactive": st.booleans(), "maxInactiveDurationSeconds": LIMITS}))
def test_nothing_is_deleted_whatever_the_policies_were(policies: JsonObject | None) -> None:
    held = never_deleting(policies)
    assert held["deleteWhileInactive"] is False
    assert {key: value for key, value in held.items() if key != "deleteWhileInactive"} == {
        key: value for key, value in (policies or held).items() if key != "deleteWhileInactive"
    }


@given(RATES, RATES)
def test_what_is_remembered_survives_the_process_that_read_it(
    namespace: JsonObject | None, own: JsonObject | None
) -> None:
    before = Frozen(
        dynamic={"loadBalancerSheddingEnabled": None, "replicationStartAt": "latest"},
        effective={"b:1": {"loadBalancerSheddingEnabled": "true"}},
        publish_rates={str(ORDERS): namespace, str(AUDIT): None},
        replication={str(ORDERS): ["blue"], str(AUDIT): []},
        inactive={str(ORDERS): None, str(AUDIT): None},
        topic_rates={str(EVENTS): own},
    )
    read = Frozen.from_json(json.loads(json.dumps(before.to_json())))
    assert read == before
    assert (read.own_rates(ORDERS), read.own_rates(AUDIT)) == ({EVENTS: own}, {})
    assert read.namespaces == (ORDERS, AUDIT)
