"""What a switch relies on: old proofs, changed settings, topics and foreign writers are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.remedies import require_harmless

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.proof.baseline import Growth, ProofBaseline, policy_fingerprints, stale, uncopied

CLUSTERS = {"blue": "east", "green": "west"}
PROVEN = ProofBaseline(
    namespace="acme/orders",
    at=1_000_000.0,
    verdict="equal",
    blue={"retention_policies": "a1"},
    green={"retention_policies": "a1"},
    topics={"persistent://acme/orders/events": 4},
    ends={"persistent://acme/orders/events-partition-0": ("5:9", "7:9")},
    stored={"persistent://acme/orders/audit": 0},
)
COPIED = (Growth("persistent://acme/orders/events-partition-0", 40, 38),)


def ids(basis: ProofBaseline | None, now: ProofBaseline, growth: tuple[Growth, ...] = COPIED) -> list[str]:
    return [finding.id for finding in stale(basis, now, growth, max_age_minutes=60, clusters=CLUSTERS)]


def test_a_young_proof_under_live_replication_is_fresh() -> None:
    assert ids(PROVEN, replace(PROVEN, at=PROVEN.at + 3599)) == []


@pytest.mark.parametrize(
    ("now", "growth", "findings"),
    [
        (replace(PROVEN, at=PROVEN.at + 3601), COPIED, "proof-too-old"),
        (replace(PROVEN, blue={**PROVEN.blue, "policies of x": "b2"}), COPIED, "settings-changed"),
        (replace(PROVEN, green={}), COPIED, "settings-changed"),
        (replace(PROVEN, topics={**PROVEN.topics, "persistent://acme/orders/new": 0}), COPIED, "topics-changed"),
        (replace(PROVEN, topics={"persistent://acme/orders/events": 8}), COPIED, "topics-changed"),
        (PROVEN, (Growth("persistent://acme/orders/events-partition-0", 40, 41),), "green-written-to"),
        (PROVEN, (Growth("persistent://acme/orders/events-partition-0", 0, 900, "bytes"),), "green-written-to"),
    ],
    ids=[
        "old",
        "policy on blue",
        "policy on green",
        "new topic",
        "more partitions",
        "foreign writer",
        "bytes on green",
    ],
)
def test_what_changed_since_the_proof_is_named(now: ProofBaseline, growth: tuple[Growth, ...], findings: str) -> None:
    assert ids(PROVEN, now, growth) == [findings]
    for finding in stale(PROVEN, now, growth, max_age_minutes=60, clusters=CLUSTERS):
        require_harmless(finding)


@pytest.mark.parametrize(
    ("confirmed", "last", "expected"),
    [(None, None, 0), (15, None, 0), (6, None, 9), (6, Position(7, 1), 3), (6, Position(5, 2), 9)],
    ids=["nothing is copied", "all is copied", "confirmed", "some came between", "confirmed after it was asked"],
)
def test_what_was_not_copied_yet_at_the_proof_is_no_foreign_message(
    confirmed: int | None, last: Position | None, expected: int
) -> None:
    entries = Ledgers(((5, 10), (7, 5)))
    assert uncopied(entries, confirmed, last) == expected
    later = Growth("persistent://acme/orders/events-partition-0", 40 + expected, 40 + expected)
    assert ids(PROVEN, PROVEN, (later,)) == []
    assert ids(PROVEN, PROVEN, (replace(later, green=later.green + 1),)) == ["green-written-to"]


def test_a_proof_that_aged_in_a_window_is_renewed_by_clearing_one_task() -> None:
    (findings,) = stale(PROVEN, replace(PROVEN, at=PROVEN.at + 7200), COPIED, max_age_minutes=60, clusters=CLUSTERS)
    assert findings.evidence == "equal 2.0 h ago, 60 min are allowed"
    assert "window is open: clear the task verify_copy" in findings.remedy


def test_without_a_proof_nothing_is_switched() -> None:
    assert ids(None, PROVEN) == ["no-proof"]


def test_a_basis_survives_the_way_through_json() -> None:
    assert ProofBaseline.from_json(PROVEN.to_json()) == PROVEN


def test_the_same_permissions_in_another_order_are_no_change() -> None:
    """Each broker lists a set in an order of its own."""

    def granted(*actions: str) -> dict[str, str]:
        grants = {"namespace_auth": {"checkout": list(actions)}, "destination_auth": {}, "subscription_auth_roles": {}}
        return policy_fingerprints(
            {"auth_policies": grants, "retention_policies": None, "migrated": False, "bundles": {"numBundles": 4}},
            "blue",
        )

    assert granted("produce", "consume") == granted("consume", "produce")
    assert granted("produce").keys() == {"auth_policies"}
    assert granted("produce") != granted("consume")
