"""The report of a reconciliation: conflicts with ids and losing values, and the state after a repair."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
from pulsar_fleet.report.reconciliation import conflict_lines, headline, metrics, reconciliation_report, remaining

LIMIT = ListedConflict(
    id="3f2a91c0b7de",
    resource="namespace acme/orders",
    field="max_producers_per_topic",
    rule="name of the cluster",
    winner="blue",
    values={"blue": 5, "green": 9, "red": 5},
)
DELETED = ListedConflict(
    id="77aa",
    resource="namespace acme/old",
    field="",
    rule="an edit wins against a deletion",
    winner="green",
    values={"blue": None, "green": {"max_producers_per_topic": 5, "x": None}},
)
DRIFT = DriftSummary(
    headline="DRIFT between blue, green: 2 fields of 1 resource differ, 2 conflicts (4 resources in 16 calls).",
    fleet=("blue", "green"),
    clusters=("blue", "green"),
    behind={},
    unreachable={},
    resources=4,
    namespaces=3,
    calls={"green": 7, "blue": 9},
    fields=2,
    drifting=1,
    missing=0,
    tombstones=(),
    conflicts=2,
    lost=0,
    oldest_drift_seconds=5.0,
    pairs={"blue/green": 2},
    unread=(),
    held=(),
    left_alone=0,
    listed_conflicts=(LIMIT, DELETED),
)
EQUAL = replace(
    DRIFT,
    headline="Equal: blue, green hold the same (4 resources in 12 calls).",
    drifting=0,
    conflicts=0,
    listed_conflicts=(),
)
REPAIRED = RepairSummary(
    complete=True,
    repaired=2,
    counts={"applied": 2},
    problems=(),
    changed=("green",),
    failed=0,
    unreached=(),
    calls={"blue": 3, "green": 4},
    after=EQUAL,
)


def test_each_conflict_names_its_id_the_winner_and_the_losing_values() -> None:
    first, second, remedy = conflict_lines(DRIFT)
    assert first == (
        "CONFLICT 3f2a91c0b7de  namespace acme/orders max_producers_per_topic: blue 5 wins (name of the cluster); "
        "green 9 loses, red 5"
    )
    assert second == (
        "CONFLICT 77aa  namespace acme/old: deleted on blue; edited on green: max_producers_per_topic 5, x not set. "
        "Nothing is done until you choose: green recreates it where it is missing, blue lets propagate_deletes plan "
        "its deletion"
    )
    assert "--choose ID=CLUSTER" in remedy
    assert conflict_lines(EQUAL) == []


def test_conflicts_that_are_not_listed_are_counted() -> None:
    assert conflict_lines(replace(DRIFT, conflicts=5))[-1].startswith("… and 3 more conflicts")


def test_the_report_has_a_row_for_each_conflict() -> None:
    text = reconciliation_report(DRIFT, {}, None).markdown()
    assert "| `3f2a91c0b7de` | namespace acme/orders | max_producers_per_topic | blue 5 wins" in text
    assert "| `77aa` | namespace acme/old | itself | deleted on blue" in text


def test_an_agreement_that_won_is_named_without_a_cluster() -> None:
    (line, _) = conflict_lines(replace(DRIFT, conflicts=1, listed_conflicts=(replace(LIMIT, winner=""),)))
    assert "the last agreement wins" in line


def test_a_report_of_a_repair_has_the_state_after_it_and_not_the_drift() -> None:
    text = headline(DRIFT, REPAIRED)
    assert text == (
        "Repaired: 2 changes on green. Afterwards: Equal: blue, green hold the same (4 resources in 12 calls)."
    )
    assert "DRIFT" not in text
    assert remaining(DRIFT, REPAIRED) == 0
    assert metrics(DRIFT, REPAIRED)["not_repaired"] == 0


def test_the_page_of_a_repair_shows_the_differences_after_it_first() -> None:
    text = reconciliation_report(DRIFT, {}, replace(REPAIRED, after=replace(EQUAL, pairs={"blue/green": 0}))).markdown()
    after, before = (text.index(title) for title in ("After the repair", "Before the repair"))
    assert text.index("| blue and green | 0 |") in range(after, before)
    assert text.index("| blue and green | 2 |") > before


def test_what_a_repair_left_is_told_as_it_was_read_afterwards() -> None:
    drift_after = replace(DRIFT, headline="DRIFT between blue, green: 1 field of 1 resource differs.", fields=1)
    partly = replace(REPAIRED, complete=False, problems=("green: why",), after=drift_after)
    assert headline(DRIFT, partly) == (
        "NOT ALL REPAIRED: at least 1 changes were not made. "
        "Afterwards: DRIFT between blue, green: 1 field of 1 resource differs."
    )
    assert remaining(DRIFT, partly) == 1


def test_a_state_that_could_not_be_read_after_a_repair_is_not_called_equal() -> None:
    text = headline(DRIFT, replace(REPAIRED, after=None))
    assert text.endswith("Afterwards: The clusters could not be read again: run it once more.")
