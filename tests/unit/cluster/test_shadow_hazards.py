"""Which calls are looked at by the guard of shadow topics: decided by their text."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.shadows.guard import ledgers_in
from pulsar_fleet.cluster.admin.shadows.hazards import INFINITE, RETIRED_FROM, Effect, endangered
from pulsar_fleet.cluster.names import SHADOW_SOURCE

TOPIC = "/persistent/acme/readers/a%2Fb"
NAMESPACE = "/namespaces/acme/readers"
SHADOW = {SHADOW_SOURCE: "persistent://acme/orders/a"}


@pytest.mark.parametrize(
    ("call", "effect", "where"),
    [
        (
            with_body("POST", f"{NAMESPACE}/retention", {**INFINITE, "retentionSizeInMB": 9}),
            Effect.LOWERS,
            "acme/readers",
        ),
        (with_body("POST", f"{NAMESPACE}/retention", None), Effect.LOWERS, "acme/readers"),
        (bare("DELETE", f"{NAMESPACE}/retention"), Effect.LOWERS, "acme/readers"),
        (bare("DELETE", NAMESPACE, force="true"), Effect.DELETES, "acme/readers"),
        (with_body("POST", f"{TOPIC}/retention", {}), Effect.LOWERS, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/retention", isGlobal="true"), Effect.UNCOVERS, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/policies"), Effect.UNCOVERS, "persistent://acme/readers/a/b"),
        (bare("DELETE", TOPIC), Effect.DELETES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/partitions", force="true"), Effect.DELETES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}-partition-3/truncate"), Effect.DELETES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/properties", key=RETIRED_FROM), Effect.FORGETS, "persistent://acme/readers/a/b"),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), Effect.FORGETS, "persistent://acme/readers/a/b"),
        (with_body("PUT", TOPIC, SHADOW), Effect.CREATES, "persistent://acme/readers/a/b"),
        (
            with_body("PUT", f"{TOPIC}/partitions", {"partitions": 2, "properties": SHADOW}),
            Effect.CREATES,
            "persistent://acme/readers/a/b",
        ),
    ],
)
def test_a_call_that_may_endanger_a_source_is_recognised(call: Call, effect: Effect, where: str) -> None:
    danger = endangered(call)
    assert danger is not None
    assert (danger.effect, str(danger.where)) == (effect, where)


@pytest.mark.parametrize(
    "call",
    [
        with_body("POST", f"{NAMESPACE}/retention", INFINITE),
        with_body("POST", f"{TOPIC}/retention", INFINITE, isGlobal="true"),
        bare("GET", f"{NAMESPACE}/retention"),
        bare("DELETE", NAMESPACE),
        bare("DELETE", f"{NAMESPACE}/0x00000000_0x40000000"),
        bare("DELETE", f"{TOPIC}/subscription/retention"),
        bare("DELETE", f"{TOPIC}/properties", key="team"),
        with_body("PUT", TOPIC, {"team": "billing"}),
        with_body("PUT", f"{TOPIC}/partitions", 3),
        bare("DELETE", "/non-persistent/acme/readers/a"),
        with_body("PUT", NAMESPACE, {"retention_policies": None}),
    ],
)
def test_any_other_call_costs_no_read(call: Call) -> None:
    assert endangered(call) is None


def test_ledgers_of_all_partitions_count() -> None:
    infos = {"p0": {"ledgers": [{"ledgerId": 1}]}, "p1": {"ledgers": [{"ledgerId": 2}, {"ledgerId": 3}]}}
    assert ledgers_in({"version": 1, "partitions": infos}) == {1, 2, 3}
    assert ledgers_in({"ledgers": [{"ledgerId": 4}]}) == {4}
    assert ledgers_in({}) == set()
