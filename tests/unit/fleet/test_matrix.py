"""The matrix says on which clusters a namespace is the same, differs, is disputed or is missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.fleet.matrix import (
    PAGE_SIZE,
    Cell,
    CellState,
    MatrixView,
    matrix_page,
    read_cells,
    read_differing_names,
    read_namespace_names,
)
from pulsar_fleet.fleet.records import read_clusters
from pulsar_fleet.ledger.event_store import EventStore, StoredDocument
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import (
    MergeBase,
    ReconciliationStore,
    RecordedConflict,
    StoredObservation,
)
from pulsar_fleet.ledger.tables import observations, resource_versions

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
FLEET = ("eu-1", "eu-2", "us-1")
HOSTILE = "acme/<script>alert(1)</script>"
SAME = Cell(CellState.SAME)


@pytest.fixture
def ledger(new_database: Callable[[], str]) -> Ledger:
    return Ledger.open(new_database())


def observe(ledger: Ledger, cluster: str, name: str, **fields: str) -> None:
    document: Any = {"fields": {field: [text, 0.0, 1.0, []] for field, text in fields.items()}, "expected": {}}
    row = StoredObservation((NOW - timedelta(minutes=5)).timestamp(), document)
    ReconciliationStore(ledger, FLEET).save_observations(cluster, {("namespace", name): row})


def cells(ledger: Ledger, name: str = "acme/orders") -> dict[str, Cell]:
    return read_cells(ledger, [name])[name]


def page(ledger: Ledger, name: str = "", number: int = 1, *, differences: bool = False) -> str:
    view = MatrixView(name=name, number=number, differences=differences)
    names = read_differing_names(ledger) if differences else read_namespace_names(ledger)
    found = read_cells(ledger, view.select(names).rows)
    return matrix_page(read_clusters(ledger), names, found, NOW, Links("/pulsar-fleet"), view)


def test_the_cluster_with_another_value_than_most_differs(ledger: Ledger) -> None:
    observe(ledger, "eu-1", "acme/orders", ttl="a", retention="b")
    observe(ledger, "eu-2", "acme/orders", ttl="a", retention="b")
    observe(ledger, "us-1", "acme/orders", ttl="c")
    assert cells(ledger) == {"eu-1": SAME, "eu-2": SAME, "us-1": Cell(CellState.DIFFERS, 2)}


def test_of_two_clusters_both_differ(ledger: Ledger) -> None:
    observe(ledger, "eu-1", "acme/orders", ttl="a")
    observe(ledger, "eu-2", "acme/orders", ttl="b")
    differs = Cell(CellState.DIFFERS, 1)
    assert cells(ledger) == {"eu-1": differs, "eu-2": differs, "us-1": Cell(CellState.MISSING)}


def test_a_namespace_that_was_deleted_on_a_cluster_is_missing_there(ledger: Ledger) -> None:
    for cluster in FLEET:
        observe(ledger, cluster, "acme/orders", ttl="a")
    base = MergeBase(document={}, clusters=("eu-1", "us-1"), gone=("eu-2",))
    ReconciliationStore(ledger, FLEET).save_merge_bases({("namespace", "acme/orders"): base})
    assert cells(ledger) == {"eu-1": SAME, "eu-2": Cell(CellState.MISSING), "us-1": SAME}


def test_a_conflict_on_record_is_shown_on_its_clusters(ledger: Ledger) -> None:
    for cluster, value in zip(FLEET, "aab", strict=True):
        observe(ledger, cluster, "acme/orders", ttl=value)
    sides: Any = {name: {"value": name, "not_before": 0, "not_after": 1} for name in ("eu-1", "us-1")}
    conflict = RecordedConflict(kind="namespace", name="acme/orders", field="ttl", rule="time", winner="x", sides=sides)
    ReconciliationStore(ledger, FLEET).record_conflicts("reconcile_policies/1", [conflict])
    assert cells(ledger) == {
        "eu-1": Cell(CellState.CONFLICT),
        "eu-2": SAME,
        "us-1": Cell(CellState.CONFLICT, 1),
    }


def test_metadata_events_count_where_they_are_newer(ledger: Ledger) -> None:
    observe(ledger, "eu-1", "acme/orders", ttl="a")
    row = {"topic": "events", "kind": "namespace", "name": "acme/orders", "version": 1, "at": NOW}
    document = {"fields": {"": ["1", 5], "ttl": ["a", 5]}}
    rows = [
        {**row, "cluster": "eu-1", "document": document},
        {**row, "cluster": "eu-2", "document": {"fields": {"": ["", 6], "ttl": ["a", 5]}}},
    ]
    with ledger.engine.begin() as connection:
        connection.execute(resource_versions.insert(), rows)
    assert cells(ledger) == {"eu-1": SAME, "eu-2": Cell(CellState.MISSING)}


def test_a_cell_is_a_symbol_and_a_word_and_a_column_has_its_age(ledger: Ledger) -> None:
    observe(ledger, "eu-1", "acme/orders", ttl="a")
    observe(ledger, "eu-2", "acme/orders", ttl="a")
    text = page(ledger)
    row = text.partition('<th scope="row">acme/orders</th>')[2].partition("</tr>")[0]
    assert row.count("✓ same") == 2
    assert "○ missing" in row
    assert text.count("read 5 min 0 s ago") == 2
    assert "? never read" in text
    assert "3 clusters, 1 namespace." in text


def test_an_empty_ledger_has_no_matrix(ledger: Ledger) -> None:
    assert "No reconciliation and no run of metadata events has read a namespace yet." in page(ledger)


def test_namespaces_are_filtered_and_paged_and_stay_text(ledger: Ledger) -> None:
    row = {"fleet": "a+b", "kind": "namespace", "document": {"fields": {}}, "observed_at": 1.0}
    names = [f"{HOSTILE}-{number:03}" for number in range(PAGE_SIZE + 1)]
    with ledger.engine.begin() as connection:
        connection.execute(observations.insert(), [{**row, "cluster": c, "name": n} for n in names for c in "ab"])
    text = page(ledger, number=2)
    assert f"1 of {PAGE_SIZE + 1} namespaces" in text
    assert text.count("<script>") == 1
    assert "1 of 1 namespace" in page(ledger, name="-007")
    assert "that fits the filter" in page(ledger, name="none")


def test_only_differences_are_shown_on_request(ledger: Ledger) -> None:
    for cluster, value in zip(FLEET, "aab", strict=True):
        observe(ledger, cluster, "acme/same", ttl="a")
        observe(ledger, cluster, "acme/differs", ttl=value)
        observe(ledger, cluster, "acme/gone", ttl="a")
        observe(ledger, cluster, "acme/disputed", ttl="a")
    observe(ledger, "eu-1", "acme/missing", ttl="a")
    base = MergeBase(document={}, clusters=("eu-1", "us-1"), gone=("eu-2",))
    ReconciliationStore(ledger, FLEET).save_merge_bases({("namespace", "acme/gone"): base})
    sides = {"eu-1": {"value": 1}, "us-1": {"value": 2}}
    conflict = RecordedConflict(
        kind="namespace", name="acme/disputed", field="ttl", rule="time", winner="eu-1", sides=sides
    )
    ReconciliationStore(ledger, FLEET).record_conflicts("reconcile_policies/1", [conflict])
    differing = read_differing_names(ledger)
    assert differing == ["acme/differs", "acme/disputed", "acme/gone", "acme/missing"]
    shown = {name: {cell.state for cell in row.values()} for name, row in read_cells(ledger, differing).items()}
    assert all(states != {CellState.SAME} for states in shown.values())
    text = page(ledger, differences=True)
    assert "4 of 4 namespaces" in text
    assert "acme/same" not in text
    assert "differences=1" in text
    assert "acme/same" in page(ledger)
    assert "No namespace that fits the filter differs." in page(ledger, name="same", differences=True)


def test_what_the_newer_of_two_records_has_the_same_is_no_difference(ledger: Ledger) -> None:
    store = EventStore(ledger, "events", "eu-1")
    document = {"fields": {"ttl": ["a"]}}
    store.save({("namespace", "acme/orders"): StoredDocument(0, document)})
    observe(ledger, "eu-1", "acme/orders", ttl="a")
    assert read_differing_names(ledger) == []
    assert {cell.state for cell in cells(ledger).values()} == {CellState.SAME}
