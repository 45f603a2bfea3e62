"""The Fleet page says first what to do, shows what the ledger has, escapes it, and stays small for a large fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.moved_groups import published_on_green

from pulsar_fleet.clients.store import Followed, Reader
from pulsar_fleet.fleet.actions import Approval, Situation, Visitor
from pulsar_fleet.fleet.layout import Links, frame_script
from pulsar_fleet.fleet.page import PAGE_SIZE, View, fleet_page, linked_runs
from pulsar_fleet.fleet.prepared_run import refused_runs
from pulsar_fleet.fleet.records import read_fleet, read_namespaces
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.cluster_notes import NoteKind, read_notes, write_note
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import conflicts, observations, phases, resource_versions, verdicts
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.replication.doctor.model import LinkState, ReturnState
from pulsar_fleet.report.page import PAGE

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LINKS = Links("/pulsar-fleet")
RUN = "migrate_namespaces/manual__1"
BLOCKER = Finding(
    id="transactions-in-use",
    severity=Severity.BLOCKER,
    resource="persistent://acme/orders/events",
    evidence="open transactions",
    consequence="They are aborted.",
    remedy="wait for them.",
)
HOSTILE = "acme/<script>alert(1)</script>"


@pytest.fixture
def ledger(new_database: Callable[[], str], records: Path) -> Ledger:
    return Ledger.open(new_database())


def insert(ledger: Ledger, table: sa.Table, *rows: dict[str, Any]) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(table.insert(), list(rows))


def page(
    ledger: Ledger,
    *approvals: Approval,
    may_start: Collection[str] = (),
    groups: Any = (),
    returns: Any = (),
    **view: Any,
) -> str:
    state, selected, artefacts = read_fleet(ledger, NOW), View(**view), Artefacts.open()
    visitor = Visitor(approvals=approvals, may_start=may_start.__contains__)
    now = Situation(
        state=state,
        notes=read_notes(artefacts),
        visitor=visitor,
        refused=refused_runs(list(state.last_runs.values()), ledger, artefacts),
        groups=groups,
        returns=dict(returns),
    )
    records = read_namespaces(ledger, [row.namespace for row in selected.select(state.namespaces).rows])
    reports = artefacts.runs_with(PAGE, linked_runs(now, LINKS, selected))
    return fleet_page(replace(now, reports=reports), records, LINKS, selected)


def test_an_empty_ledger_has_nothing_to_do(ledger: Ledger) -> None:
    text = page(ledger)
    assert "Now: nothing to do" in text
    assert "The ledger has no runs." in text


def test_what_a_person_must_do_is_said_first(ledger: Ledger) -> None:
    ledger.start_run(RUN, "migrate_namespaces", {})
    ledger.finish_run(RUN, "failed")
    at = {"run_id": RUN, "messages": 7, "summary": "", "at": NOW - timedelta(minutes=5)}
    insert(ledger, verdicts, {"scope": "acme/orders", "verdict": "different", **at})
    outage = {"since": (NOW - timedelta(minutes=22)).isoformat()}
    row = {"topic": "events", "cluster": "*", "kind": "outage", "version": 1, "at": NOW}
    insert(ledger, resource_versions, {"name": "us-1", "document": outage, **row})
    text = page(ledger, Approval(subject="Wave 3 of 6", link="/dags/x", waiting=timedelta(minutes=4)))
    assert "Now: 4 things to do" in text
    order = [
        "Wave 3 of 6 (waiting 4 min",
        "acme/orders ended with",
        "migrate_namespaces failed",
        "us-1 is unreach",
    ]
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    assert text.index("unreachable since 22 min") < text.index('<h2 id="clusters"')


@pytest.mark.parametrize(("verdict", "named"), [("different", True), ("inconclusive", True), ("equal", False)])
def test_what_is_not_proven_equal_is_something_to_do(ledger: Ledger, verdict: str, named: bool) -> None:
    ledger.record_verdict("verify/1", "acme/orders", verdict=verdict, messages=7, summary="", artefact=None)
    assert (f"acme/orders ended with {verdict}" in page(ledger)) is named


def test_the_newest_phase_and_verdict_of_a_namespace_count(ledger: Ledger) -> None:
    for phase in ("prepared", "finished"):
        ledger.enter_phase(RUN, "acme/orders", phase)
    for run, verdict in (("verify/1", "different"), ("verify/2", "equal")):
        ledger.record_verdict(run, "acme/orders", verdict=verdict, messages=4118202, summary="", artefact=None)
    ledger.record_verdict("m/1", "copy of acme/orders", verdict="different", messages=1, summary="", artefact=None)
    text = page(ledger)
    assert "copy of" not in text
    assert "✓ finished" in text
    assert "✓ equal" in text
    assert "4,118,202" in text
    assert "Now: nothing to do" in text
    assert "prepared" not in text


def test_a_report_is_linked_where_one_is_stored(ledger: Ledger) -> None:
    for run in (RUN, "verify_clusters/1"):
        ledger.start_run(run, run.partition("/")[0], {})
        ledger.finish_run(run, "failed")
    ledger.enter_phase(RUN, "acme/orders", "finished")
    ledger.record_verdict(
        "verify_clusters/1", "acme/orders", verdict="different", messages=1, summary="", artefact=None
    )
    text = page(ledger)
    assert "/report?" not in text
    assert text.count("/evidence?") == 2
    Artefacts.open().write("verify_clusters/1", PAGE, b"<!doctype html>")
    text = page(ledger)
    # What to do names the run twice, the row of the namespace and that of the run once.
    assert text.count(LINKS.report("verify_clusters/1")) == 4
    assert text.count("/report?") == 4


def test_everything_that_others_named_stays_text(ledger: Ledger) -> None:
    ledger.start_run(f"x/{HOSTILE}", HOSTILE, {})
    ledger.finish_run(f"x/{HOSTILE}", "failed")
    ledger.enter_phase(RUN, HOSTILE, HOSTILE)
    row = {"fleet": "f", "kind": "namespace", "run_id": "r", "rule": "time", "at": NOW}
    sides = {"blue": HOSTILE, "green": 1}
    insert(ledger, conflicts, {"id": "1f", "name": HOSTILE, "field": HOSTILE, "winner": "blue", "sides": sides, **row})
    text = page(ledger, Approval(subject=HOSTILE, link="/dags/x", waiting=timedelta()), name="<script>")
    assert text.count("<script") == 1
    assert f"<script>{frame_script()}</script>" in text
    assert text.count("&lt;script&gt;") >= 6


def test_a_cluster_has_figures_of_whatever_read_it_with_their_age(ledger: Ledger) -> None:
    store, run = Artefacts.open(), "reconcile_policies/1"
    read = {"versions": ["4.2.4", "4.2.5"], "brokers": 3, "complete": True}
    write_note(store, "eu-green", NoteKind.SNAPSHOT, "onboard_cluster/1", read)
    write_note(store, "eu-green", NoteKind.DRIFT, run, {"changes": 3, "fields": 5})
    proof = {"equal": 8, "namespaces": 8, "messages": 7, "with": "eu-blue"}
    write_note(store, "eu-green", NoteKind.PROOF, "verify_clusters/1", proof)
    write_note(store, "us/1", NoteKind.DRIFT, run, {"unreachable": "last seen 13:40"})
    text = page(ledger, may_start=["reconcile_policies"])
    row = text.partition('<th scope="row">eu-green</th>')[2].partition("</tr>")[0]
    for words in ("4.2.4, 4.2.5, 3 brokers", "≠ 3 changes to write", "✓ 8 of 8 namespaces equal with eu-blue", " ago"):
        assert words in row
    assert escape(LINKS.prepared("repair", run)) in row
    row = text.partition('<th scope="row">us/1</th>')[2].partition("</tr>")[0]
    assert "✗ did not answer the last reconciliation, last seen 13:40" in row
    write_note(store, "eu-green", NoteKind.DRIFT, run, {"changes": 0, "fields": 0})
    assert "✓ none" in page(ledger)


def test_another_value_of_a_conflict_is_one_click_away_for_those_who_may(ledger: Ledger) -> None:
    row = {"fleet": "f", "kind": "namespace", "name": "acme/orders", "run_id": "r", "rule": "time", "at": NOW}
    insert(ledger, conflicts, {"id": "1f", "field": "ttl", "winner": "blue", "sides": {"blue": 5, "green": 9}, **row})
    link = f'href="{escape(LINKS.prepared("settle", "1f=green"))}"'
    allowed = page(ledger, may_start=["reconcile_policies"])
    assert link in allowed
    assert "value of blue" not in allowed
    forbidden = page(ledger)
    assert link not in forbidden
    assert "value of green (not permitted)" in forbidden


def test_a_question_is_named_to_those_who_may_not_answer_it(ledger: Ledger) -> None:
    text = page(ledger, Approval(subject="Wave 3", link="/dags/x", waiting=timedelta(), allowed=False))
    assert "Review and answer (not permitted)" in text
    assert "/dags/x" not in text


def test_a_refused_run_is_started_again_with_waivers_in_one_click(ledger: Ledger) -> None:
    ledger.start_run(RUN, "migrate_namespaces", {"waivers": []})
    Artefacts.open().write_json(RUN, "findings.json", [BLOCKER.to_json()])
    link = escape(LINKS.prepared("waive", RUN))
    assert link not in page(ledger, may_start=["migrate_namespaces"])
    ledger.finish_run(RUN, "failed")
    assert link in page(ledger, may_start=["migrate_namespaces"])
    assert "Waive its blockers and start again (not permitted)" in page(ledger, may_start=["reconcile_policies"])


def test_a_group_shows_where_it_is_led_who_reads_it_and_the_return(ledger: Ledger) -> None:
    published = published_on_green(
        at=(NOW - timedelta(hours=2)).isoformat(), run="move_clients/manual__1", by="ann <ops>"
    )
    readers = [Reader(host="10.0.0.1", at=NOW.timestamp() - 1), Reader(host="10.0.0.2", at=NOW.timestamp() - 90)]
    group = Followed(published=published, readers=readers, origin="blue", is_away=True)
    text = page(ledger, groups=[group], may_start=["return_clients"])
    assert "Applications that follow a document" not in page(ledger)
    for words in ("pulsar://green:6650", "2.0 h", "ann &lt;ops&gt;", "version 2", "1 host: 10.0.0.1<", "acme/orders"):
        assert words in text
    link = escape(LINKS.prepared("return", "move_clients/manual__1"))
    assert (link in text, link in page(ledger, groups=[group])) == (True, False)
    completes = escape(LINKS.prepared("complete", "move_clients/manual__1"))
    assert completes in page(ledger, groups=[group], may_start=["migrate_namespaces"])
    returned = Followed(published=replace(published, run="return_clients/1"))
    back = page(ledger, groups=[returned], may_start=["migrate_namespaces"])
    assert "Complete the move" not in back
    # Airflow has no connection for what a command line named by its address.
    by_hand = Followed(published=replace(published, run="cli/move-clients-1"))
    assert "Move the clients back" not in page(ledger, groups=[by_hand], may_start=["return_clients"])


def test_whether_moved_applications_can_return_is_said_with_its_age(ledger: Ledger) -> None:
    run = "move_clients/manual__1"
    published = published_on_green(at=(NOW - timedelta(hours=2)).isoformat(), run=run)
    moved = Followed(published=published, origin="blue", is_away=True)
    assert "? not known: let watch_replication read green and blue" in page(ledger, groups=[moved])
    link = LinkState(source="green", target="blue", counts={"stalled": 1, "healthy": 2}, backlog=1234)
    state = ReturnState(group="orders", run=run, replicators=link)
    returns = {run: (state, NOW - timedelta(minutes=3))}
    text = page(ledger, groups=[moved], returns=returns)
    assert "■ stalled; blue lacks 1,234 entries" in text
    assert "3 min 0 s ago" in text
    may_start = ["return_clients", "migrate_namespaces"]
    for is_complete in (False, True):
        ended = replace(moved, is_final=True, is_complete=is_complete)
        final = page(ledger, groups=[ended], returns=returns, may_start=may_start)
        assert "no: a migration has completed the move" in final
        assert ("stalled" in final, "Move the clients back" in final) == (False, False)
        # Another namespace of the group is still to be completed.
        assert ("Complete the move" in final) is not is_complete


def test_the_page_moves_by_itself_only_when_somebody_asks(ledger: Ledger) -> None:
    assert 'http-equiv="refresh"' not in page(ledger)
    assert "live=1" in page(ledger)
    text = page(ledger, live=True, name="orders")
    assert 'http-equiv="refresh" content="15"' in text
    assert "name=orders&amp;phase=&amp;page=1&amp;live=0" in text


def test_namespaces_are_filtered_and_paged(ledger: Ledger) -> None:
    rows = [
        {"run_id": RUN, "namespace": f"acme/n{number:03}", "phase": "drained" if number % 2 else "finished", "at": NOW}
        for number in range(250)
    ]
    insert(ledger, phases, *rows)
    first = page(ledger)
    assert f"{PAGE_SIZE} of 250 namespaces" in first
    assert "acme/n000" in first
    assert "acme/n100" not in first
    assert "acme/n249" in page(ledger, number=3)
    assert "acme/n249" in page(ledger, number=99)
    assert "100 of 125 namespaces" in page(ledger, phase="drained")
    assert "1 of 1 namespace" in page(ledger, name="n007")
    assert "No namespace was migrated or verified that fits the filter" in page(ledger, name="none")


def test_a_large_fleet_has_a_small_page(ledger: Ledger) -> None:
    names = [f"tenant-{number % 100}/namespace-{number:05}" for number in range(10_000)]
    at = {"run_id": RUN, "at": NOW}
    insert(ledger, phases, *({"namespace": name, "phase": phase, **at} for name in names for phase in ("a", "b")))
    insert(ledger, verdicts, *({"scope": n, "verdict": "equal", "messages": 1, "summary": "", **at} for n in names))
    row = {"fleet": "f", "kind": "namespace", "name": "n", "document": {}, "observed_at": 1.0}
    insert(ledger, observations, *({"cluster": f"cluster-{number}", **row} for number in range(20)))
    text = page(ledger)
    assert "20 clusters, 10,000 namespaces" in text
    assert len(text.encode()) < 300_000
