"""Scalable topics are named by every text about two clusters, and nothing takes their segments for topics."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace

import pytest
from tests.support.snapshots import ORDERS, full_pair

from pulsar_fleet.cli.text import differences_text, snapshot_text
from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.admin.partial_reads import SCALABLE_TOPICS_OF, Note, Problem
from pulsar_fleet.cluster.admin.scalable_topics import deleted_namespace
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.migration.cleanup import Leftovers
from pulsar_fleet.migration.facts import read_loaded
from pulsar_fleet.onboarding.results import TakenSnapshot
from pulsar_fleet.planning.build import align, plan_changes
from pulsar_fleet.planning.comparison import compare, comparison_text
from pulsar_fleet.planning.render import plan_markdown, plan_text
from pulsar_fleet.report.onboard import onboarding_report
from pulsar_fleet.snapshot.inventory import topics_in
from pulsar_fleet.snapshot.model import SCALABLE_TOPIC, TABLES, InventoryState, Snapshot
from pulsar_fleet.snapshot.store.reader import store_snapshot
from pulsar_fleet.verification.snapshots.compare import (
    CompareRequest,
    EqualityResult,
    compare_in_process,
    compare_snapshots,
)

EVENTS, AUDIT = f"topic://{ORDERS}/events", f"topic://{ORDERS}/audit"


def holding(snapshot: Snapshot, *names: str) -> Snapshot:
    rows = tuple(InventoryState(SCALABLE_TOPIC, ORDERS, name) for name in names)
    return replace(snapshot, inventory=(*snapshot.inventory, *rows))


PAIR = full_pair()
BLUE, GREEN = holding(PAIR.source, EVENTS, AUDIT), holding(PAIR.target, EVENTS)


def taken(not_copied: str) -> TakenSnapshot:
    reference = Reference("file:///a/manifest.json", "ab", 1)
    counts = dict.fromkeys(TABLES, 1)
    return TakenSnapshot(
        reference=reference,
        measured=reference,
        cluster="blue",
        counts=counts,
        complete=True,
        calls=9,
        versions=("5.0.0-M1",),
        rights="",
        not_copied=not_copied,
    )


def stored_comparison(source: Snapshot, target: Snapshot) -> str:
    with tempfile.TemporaryDirectory() as folder:
        artefacts = Artefacts.open(folder)
        source_at, target_at = (store_snapshot(artefacts, "run", side, name=side.cluster) for side in (source, target))
        request = CompareRequest(source=source_at, target=target_at)
        return EqualityResult.of(request, compare_snapshots(request, compare_in_process)).text


@pytest.mark.parametrize(
    "text",
    [
        plan_text(plan_changes(BLUE, GREEN)),
        plan_markdown(plan_changes(BLUE, GREEN)),
        comparison_text(compare(BLUE, GREEN)),
        differences_text(("blue", "green"), (), align(BLUE, GREEN).left_alone),
    ],
    ids=["plan", "plan of a form", "verification of snapshots", "diff"],
)
def test_each_text_about_two_clusters_counts_and_names_them(text: str) -> None:
    assert f"2 scalable topics ({EVENTS}, {AUDIT}): on blue; scalable topics are neither copied nor compared" in text
    assert f"1 scalable topic ({EVENTS}): on green; scalable topics are neither copied nor compared" in text


def test_they_make_no_change_and_no_difference() -> None:
    assert plan_changes(BLUE, PAIR.target).empty
    assert compare(BLUE, PAIR.target).equal
    assert "scalable topic" not in comparison_text(compare(PAIR.source, PAIR.target)).partition("not compared:")[0]


def test_a_comparison_of_stored_snapshots_names_them_too() -> None:
    text = stored_comparison(BLUE, GREEN)
    assert text == comparison_text(compare(BLUE, GREEN))
    assert "left alone: 3 × scalable topic" in text


def test_other_differences_do_not_crowd_them_out() -> None:
    assert EVENTS in comparison_text(compare(BLUE, replace(GREEN, topics=(), loaded_topics=False), examples=1))


def test_a_list_that_was_not_read_is_unknown_and_hides_nothing_else() -> None:
    note = Note(f"{SCALABLE_TOPICS_OF}{ORDERS}", Problem.UNREADABLE.value, "blue answered 500.")
    unread = replace(PAIR.source, notes=(note,))
    plan = plan_changes(unread, replace(PAIR.target, topics=()))
    assert f"scalable topics of {ORDERS}): it could not be read on blue" in plan_text(plan)
    assert {change.name for change in plan.changes} >= {topic.name for topic in PAIR.source.topics}


def test_the_texts_of_a_snapshot_and_of_an_onboarding_name_them() -> None:
    blue = taken(f"2 scalable topics: {EVENTS}, {AUDIT}")
    assert f"copied by no plan: 2 scalable topics: {EVENTS}, {AUDIT}" in snapshot_text(blue, 1)
    assert "copied by no plan" not in snapshot_text(taken(""), 1)
    report = onboarding_report(blue, taken(""), plan_changes(BLUE, GREEN), (), None, None)
    assert f"Not copied from blue: 2 scalable topics: {EVENTS}, {AUDIT}." in report.markdown()


def test_a_snapshot_that_an_earlier_release_took_has_none() -> None:
    document = taken("2 scalable topics").to_json()
    assert TakenSnapshot.from_json({key: document[key] for key in document if key != "not_copied"}) == taken("")


def test_loaded_segments_are_no_topics() -> None:
    """Brokers of 5.0.0-M1 list them among the persistent topics."""
    name = NamespaceName.parse(ORDERS)
    topic, stats = TopicName(name, "events"), {"publishers": [], "subscriptions": {}}
    loaded = {"0x0_0x8": {"persistent": {f"segment://{ORDERS}/events/0000-7fff-0": stats, str(topic): stats}}}
    assert [listed for _, listed, _ in topics_in(loaded)] == [topic]
    assert set(read_loaded("b:8080", json.dumps({ORDERS: loaded}), {name: frozenset({topic})}, 0.0)) == {topic}


def test_a_namespace_on_blue_with_scalable_topics_is_in_use() -> None:
    left = Leftovers(scalable=(EVENTS, AUDIT))
    assert not left.is_unused
    assert left.to_json()["first"] == [EVENTS, AUDIT]
    assert left.text("blue") == (
        "blue is still in use: 0 subscriptions and 0 clients, and 2 scalable topics that no run moves, are left "
        f"there, first {EVENTS}."
    )


def test_only_the_deletion_of_a_namespace_is_looked_at() -> None:
    name = NamespaceName.parse(ORDERS)
    assert deleted_namespace(bare("DELETE", f"/namespaces/{name.path}", force="true")) == name
    for call in (
        bare("PUT", f"/namespaces/{name.path}"),
        bare("DELETE", f"/namespaces/{name.path}/retention"),
        bare("DELETE", f"/persistent/{name.path}/events"),
        bare("DELETE", f"/tenants/{name.tenant}"),
    ):
        assert deleted_namespace(call) is None
