"""Who joins a fleet, who publishes the snapshot for it, and what happens if that one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.policy_sync.events.fleet import Members
from pulsar_fleet.policy_sync.events.request import EVENT_TOPIC

BOTH, ALL = ("blue", "green"), ("blue", "green", "red")
NOW = 1_800_000_000_000


@pytest.fixture
def members(tmp_path: Path) -> Members:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    fleet_members = Members(ledger, TopicName.parse(EVENT_TOPIC))
    fleet_members.begin(BOTH, ())
    return fleet_members


def test_for_the_founders_of_a_fleet_no_snapshot_is_due(members: Members) -> None:
    assert members.claim_snapshot("blue", BOTH, NOW) == ()
    assert not members.joins("blue")


def test_a_joining_cluster_gets_one_snapshot_and_is_equal_after_it(members: Members) -> None:
    members.begin(ALL, ("red",))
    assert members.joins("red")
    assert members.claim_snapshot("blue", ALL, NOW) == ("red",)
    assert members.claim_snapshot("green", ALL, NOW) == ()
    members.end_snapshot(("red",), sent=True)
    assert members.claim_snapshot("green", ALL, NOW) == ()
    assert not members.become_equal("red")
    members.receive_snapshot("red", ())
    assert members.become_equal("red")
    assert not members.joins("red")


def test_a_snapshot_whose_process_died_or_gave_up_is_published_by_another(members: Members) -> None:
    members.begin(ALL, ("red",))
    members.claim_snapshot("blue", ALL, NOW)
    assert members.claim_snapshot("green", ALL, NOW + 119_000) == ()
    assert members.claim_snapshot("green", ALL, NOW + 120_000) == ("red",)
    members.end_snapshot(("red",), sent=False)
    assert members.claim_snapshot("blue", ALL, NOW + 120_001) == ("red",)


def test_a_ledger_that_missed_the_join_publishes_one_snapshot_for_it(members: Members) -> None:
    assert members.claim_snapshot("blue", ALL, NOW) == ("red",)
    members.end_snapshot(("red",), sent=True)
    assert members.claim_snapshot("green", ALL, NOW) == ()
    assert not members.joins("red")


def test_periodic_snapshots_are_due_these_minutes_after_the_first_call(members: Members) -> None:
    times = (NOW, NOW + 89_999, NOW + 90_000, NOW + 90_001, NOW + 180_000)
    assert [members.periodic_snapshot_is_due("blue", 1.5, now) for now in times] == [False, False, True, False, True]


def test_with_zero_minutes_no_periodic_snapshot_is_ever_due(members: Members) -> None:
    times = (NOW, NOW, NOW + 86_400_000)
    assert not any(members.periodic_snapshot_is_due("blue", 0, now) for now in times)


def test_what_a_snapshot_left_out_is_owed_until_it_is_published(members: Members) -> None:
    members.begin(ALL, ("red",))
    members.claim_snapshot("blue", ALL, NOW)
    members.end_snapshot(("red",), sent=True, left_out=("acme/b", "acme/a"))
    assert members.claim_snapshot("green", ALL, NOW + 600_000) == ()
    assert (members.owed("green"), members.owed("blue")) == ({}, {"red": {"acme/a", "acme/b"}})
    members.receive_snapshot("red", ("acme/a: it is in a migration on blue",))
    assert members.become_equal("red")
    assert members.lacks("red") == ("acme/a: it is in a migration on blue",)
    members.end_snapshot(("red",), sent=True, left_out=("acme/a",))
    assert members.owed("blue") == {"red": {"acme/a"}}
    members.end_snapshot(("red",), sent=True)
    members.receive_snapshot("red", ())
    assert (members.owed("blue"), members.lacks("red"), members.joins("red")) == ({}, (), False)
