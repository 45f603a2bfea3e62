"""Versions with bounds: who had seen whom, which order is certain, and which conflict is recorded."""

from __future__ import annotations

import time

import pytest

from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.ordering.conflicts import conflicts_of
from pulsar_fleet.policy_sync.events.ordering.reference_clock import ReferenceClock
from pulsar_fleet.policy_sync.events.versions import (
    BEFORE_EVERYTHING,
    BEFORE_THE_FLEET,
    FieldVersion,
    ObservedValues,
    ResourceVersions,
    Version,
    is_version,
    next_versions,
)
from pulsar_fleet.policy_sync.merge.merge_resource import Rule
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

ITEM: Item = (Resource.NAMESPACE, "acme/orders")
NOW = 1_800_000_000_000


def holding(version: Version, value: int = 5) -> ResourceVersions:
    return ResourceVersions(fields={"ttl": FieldVersion(digest(value), version)})


def rules(incoming: Version, current: Version, value: int = 7) -> list[str]:
    recorded = conflicts_of(ITEM, {"ttl": (value, incoming)}, holding(current), {"ttl": 5})
    return [conflict.rule for conflict in recorded]


@pytest.mark.parametrize(
    ("incoming", "current", "rule"),
    [
        (Version(NOW, "green", (NOW - 9, NOW)), Version(NOW - 10, "blue", (NOW - 20, NOW - 10)), Rule.TIME),
        (Version(NOW, "green", (NOW - 10, NOW)), Version(NOW - 10, "blue", (NOW - 20, NOW - 10)), Rule.UNCERTAIN),
        (Version(NOW, "green"), Version(1, "blue", (1, 2)), Rule.UNCERTAIN),
        (Version(NOW, "green"), Version(NOW, "blue"), Rule.NAME),
        (Version(BEFORE_EVERYTHING, "green"), Version(BEFORE_EVERYTHING, "blue"), Rule.NAME),
        (Version(NOW, "green"), Version(BEFORE_EVERYTHING, "blue"), Rule.JOINED),
        (Version(BEFORE_EVERYTHING, "green"), Version(BEFORE_THE_FLEET, "blue"), Rule.JOINED),
    ],
)
def test_a_value_that_its_successor_had_not_seen_is_a_conflict(incoming: Version, current: Version, rule: Rule) -> None:
    assert rules(incoming, current) == [rule]


@pytest.mark.parametrize(
    ("incoming", "current"),
    [
        (Version(NOW, "green", replaced={"blue": 5}), Version(5, "blue")),
        (Version(NOW, "green", replaced={"blue": 5}), Version(4, "blue")),
        (Version(NOW, "green"), Version(5, "green")),
    ],
)
def test_a_value_that_its_successor_had_seen_is_no_conflict(incoming: Version, current: Version) -> None:
    assert rules(incoming, current) == []
    assert rules(incoming, Version(6, "red"), value=5) == [], "nor is the same value"


def test_an_edit_names_all_versions_that_it_replaces() -> None:
    before = holding(Version(5, "green", replaced={"red": 4, "blue": 3}))
    observed = ObservedValues(values={"ttl": 9}, now=NOW, since=NOW - 500, uncertainty=50)
    version = next_versions(before, observed, "blue").fields["ttl"].version
    assert version == Version(NOW, "blue")
    assert (version.bounds, version.replaced) == ((NOW - 550, NOW + 50), {"red": 4, "green": 5})
    assert is_version(version.as_array())
    assert Version.of(version.as_array()).replaced == version.replaced


def test_an_edit_without_a_scan_before_or_a_measured_clock_has_no_bounds() -> None:
    before = holding(Version(5, "green"))
    for observed in (
        ObservedValues(values={"ttl": 9}, now=NOW, uncertainty=50),
        ObservedValues(values={"ttl": 9}, now=NOW, since=NOW - 500),
    ):
        assert next_versions(before, observed, "blue").fields["ttl"].version.bounds is None


def test_a_value_of_a_joining_cluster_is_older_than_every_other() -> None:
    observed = ObservedValues(values={"ttl": 9}, now=NOW, first=True, joins=True)
    assert next_versions(None, observed, "blue").fields["ttl"].version == Version(BEFORE_THE_FLEET, "blue")


@pytest.mark.parametrize("array", [[1], ["1", "blue"], [1, 2], [1, "blue", [1], {}], [1, "blue", None, {"red": "1"}]])
def test_what_is_no_version_is_not_taken_as_one(array: list[object]) -> None:
    assert not is_version(array)


def test_the_brokers_clock_is_the_reference_whatever_the_host_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skew = ClockSkew(ahead=30.0, uncertainty=0.5)
    clock = ReferenceClock(cluster="blue", host=skew, brokers=ClockSkew(-10.0, 1.0), allowed=0.25)
    expected = (time.time() + 30) * 1000
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock.now() == pytest.approx(expected, abs=2000)
    assert clock.uncertainty == 750
    assert clock.written(100.0, 100.0) == (90_000, (88_750, 91_250))


def test_without_a_comparison_of_the_brokers_clocks_no_bound_is_known() -> None:
    clock = ReferenceClock(cluster="blue", host=ClockSkew(0.0, 0.5), brokers=None, allowed=0.25)
    assert clock.uncertainty is None
    assert clock.written(99.0, 100.0) == (100_000, None)
    assert "their order to edits elsewhere is uncertain" in clock.text("green")
