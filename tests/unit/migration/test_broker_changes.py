"""What a cut-over does when brokers joined, left or restarted since the gates."""

from __future__ import annotations

import pytest

from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions, absences, new_blockers, upgrades
from pulsar_fleet.snapshot.model import BrokerState, Snapshot

OLD, NEW = "4.0.7", "4.2.4"
GATES = BrokerVersions(blue=(OLD,), green=(OLD, OLD))
CHECKING = {"clusterMigrationCheckDurationSeconds": "1", "clusterMigrationAutoResourceCreation": "false"}


def green(*versions: str) -> BrokerVersions:
    return BrokerVersions(blue=(OLD,), green=versions)


def snapshot(version: str, **settings: str) -> Snapshot:
    brokers = (BrokerState("host:8080", version, {**CHECKING, **settings}),)
    return Snapshot(cluster="blue", began="", ended="", key_id="", brokers=brokers)


@pytest.mark.parametrize("now", [green(OLD, OLD), green(NEW, NEW), green(OLD), green(OLD, OLD, OLD)])
def test_brokers_of_one_version_are_in_no_upgrade(now: BrokerVersions) -> None:
    assert upgrades(GATES, now) == []


@pytest.mark.parametrize(
    ("before", "now"), [((OLD, OLD), (OLD, NEW)), ((OLD, OLD, NEW), (OLD, NEW, NEW)), ((OLD, OLD, OLD), (OLD, NEW))]
)
def test_a_rolling_upgrade_that_went_on_since_the_gates_is_named(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    (sentence,) = upgrades(green(*before), green(*now))
    assert "brokers of green" in sentence
    assert "a rolling upgrade is under way" in sentence


def test_versions_that_were_mixed_at_the_gates_and_stay_so_stop_nothing() -> None:
    assert upgrades(green(OLD, NEW), green(OLD, NEW)) == []


def test_a_broker_that_left_is_counted_and_one_that_joined_is_not() -> None:
    assert absences(GATES, green(OLD)) == ["1 broker of green answer, at the gates it was 2"]
    assert absences(GATES, green(OLD, OLD, OLD)) == []


def test_a_broker_restarted_with_another_setting_or_version_is_refused() -> None:
    unchecked, unknown = snapshot(OLD, clusterMigrationCheckDurationSeconds="0"), snapshot("6.0.0")
    ids = [
        [finding.id for finding in new_blockers(blue, snapshot(NEW), (), redirects=redirects)]
        for blue, redirects in ((unchecked, True), (unchecked, False), (unknown, True), (snapshot(OLD), True))
    ]
    assert ids == [["migration-check-off"], [], ["version-unknown"], []]


def test_a_blocker_that_the_gates_reported_has_its_waiver() -> None:
    unknown = snapshot("6.0.0")
    reported = new_blockers(unknown, snapshot(NEW), (), redirects=True)
    assert new_blockers(unknown, snapshot(NEW), reported, redirects=True) == ()
