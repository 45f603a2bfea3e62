"""What brokers do by their patch: lines between, milestones, and what changed since the measured patch."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.versions import (
    COMPLETES_PUBLISHES,
    FACTS,
    KEEPS_BATCH_ACKNOWLEDGMENTS,
    LIMITS_SCHEMAS_OF_REPLICATORS,
    RELEASES,
    UNTHROTTLES_AT_ONCE,
    Fact,
    changes_since_measured,
    deletes_shadows_alone,
)


@pytest.mark.parametrize(
    ("fact", "version", "holds"),
    [
        (COMPLETES_PUBLISHES, "4.0.13", False),
        (COMPLETES_PUBLISHES, "4.0.14", True),
        (COMPLETES_PUBLISHES, "4.0.15-SNAPSHOT", True),
        (COMPLETES_PUBLISHES, "4.2.4", False),
        (COMPLETES_PUBLISHES, "4.2.5", True),
        (COMPLETES_PUBLISHES, "4.1.9", False),
        (COMPLETES_PUBLISHES, "5.0.0-M1", False),
        (COMPLETES_PUBLISHES, "5.0.0", True),
        (COMPLETES_PUBLISHES, "5.1.0", True),
        (KEEPS_BATCH_ACKNOWLEDGMENTS, "5.0.0-M1", False),
        (KEEPS_BATCH_ACKNOWLEDGMENTS, "5.0.0-M2", True),
        (LIMITS_SCHEMAS_OF_REPLICATORS, "4.2.5", False),
        (LIMITS_SCHEMAS_OF_REPLICATORS, "5.0.0-M1", True),
        (UNTHROTTLES_AT_ONCE, "3.0.7", True),
        (UNTHROTTLES_AT_ONCE, "3.3.9", False),
        (UNTHROTTLES_AT_ONCE, "4.0.7", False),
        (UNTHROTTLES_AT_ONCE, "4.2.4", True),
        (UNTHROTTLES_AT_ONCE, "", False),
    ],
)
def test_a_fact_holds_from_a_patch_of_its_line_on(fact: Fact, version: str, holds: bool) -> None:
    assert fact.holds(version) is holds


@pytest.mark.parametrize(
    ("version", "alone"),
    [
        ("3.0.7", False),
        ("4.2.4", False),
        ("4.0.14", False),
        ("4.2.5", False),
        ("5.0.0-M2", False),
        ("5.0.0", True),
        ("5.0.1", True),
        ("5.1.0-SNAPSHOT", True),
        ("", False),
    ],
)
def test_shadows_are_deleted_alone_since_5_0_as_measured(version: str, alone: bool) -> None:
    assert deletes_shadows_alone(version) is alone


def test_a_measured_patch_has_no_changes() -> None:
    assert [changes_since_measured(release.measured) for release in RELEASES] == [()] * len(RELEASES)


def test_a_line_that_was_never_measured_has_no_changes() -> None:
    assert changes_since_measured("3.3.9") == ()


def test_a_newer_patch_has_what_came_after_the_measured_one() -> None:
    changed = changes_since_measured("4.2.5")
    assert COMPLETES_PUBLISHES in changed
    assert UNTHROTTLES_AT_ONCE not in changed


def test_an_older_patch_lacks_what_the_measured_one_has() -> None:
    assert changes_since_measured("4.2.0") == tuple(fact for fact in FACTS if fact.came_with("4.2.0", "4.2.4"))
    assert UNTHROTTLES_AT_ONCE in changes_since_measured("4.2.0")


def test_each_fact_has_an_id_of_its_own_and_patches_in_order() -> None:
    assert len({fact.id for fact in FACTS}) == len(FACTS)
