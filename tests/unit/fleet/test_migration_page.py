"""The page of a migration shows waves, phases, backlog and forecast as they are recorded, also while it runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.fleet.actions import Approval, Visitor
from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.fleet.migration import PAGE_SIZE, MigrationView, migration_page, read_migration
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import DRAIN_STATE, MOVES, WAVES
from pulsar_fleet.migration.drain.state import DrainState, NamespaceState
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.waves.planner import Member, Wave, WavePlan
from pulsar_fleet.report.page import PAGE

RUN = "migrate_namespaces/manual__1"
SECOND = f"{RUN}__wave-2"
LINKS = Links("/pulsar-fleet")
HOSTILE = "acme/<script>alert(1)</script>"


def member(name: str) -> Member:
    return Member(namespace=NamespaceName("acme", name), strategy=Strategy.REDIRECT, reason="", topics=12, producers=3)


@pytest.fixture
def run(records: Path) -> Run:
    """The first of two waves, which runs."""
    run = Run.open(RUN)
    run.ledger.start_run(RUN, "migrate_namespaces", {"wave": 1, "continues": ""})
    plan = WavePlan(
        (
            Wave(number=1, members=(member("orders"),), is_canary=True),
            Wave(number=2, members=(member("audit"), member("clicks"))),
        )
    )
    run.artefacts.write_json(RUN, WAVES, plan.to_json())
    run.artefacts.write_json(RUN, MOVES, Moves("eu-blue", "eu-green", ()).to_json())
    return run


def drain(run: Run, *entries: int, ended: bool = False) -> None:
    """A poll every 10 s; the last one is now."""
    now = datetime.now(UTC).timestamp()
    namespace = NamespaceState.begin(now)
    for number, count in enumerate(entries):
        namespace.add_sample(count, now - 10.0 * (len(entries) - 1 - number))
    namespace.ended = now if ended else None
    namespace.incidents = {
        "a": {"kind": "topic-fenced", "sentence": HOSTILE, "first": now - 60, "outcome": "open"},
        "b": {"kind": "topic-unloaded", "sentence": "It was unloaded.", "first": now - 90, "outcome": "over"},
    }
    run.artefacts.write_json(run.id, DRAIN_STATE, DrainState(namespaces={"acme/orders": namespace}).to_json())


def page(run: Run, number: int = 1) -> str:
    return migration_page(read_migration(run), LINKS, MigrationView(number=number))


def row(text: str, name: str) -> str:
    return text.partition(f'<th scope="row">{name}</th>')[2].partition("</tr>")[0]


def test_before_the_gates_passed_the_page_says_that_nothing_moves(records: Path) -> None:
    run = Run.open(RUN)
    run.ledger.start_run(RUN, "migrate_namespaces", {"wave": 1})
    text = page(run)
    assert "Before the plan of waves: 0 of 0 namespaces done." in text
    assert "The run has not planned its waves yet." in text
    assert "<svg" not in text


def test_the_backlog_has_a_forecast_with_its_margin(run: Run) -> None:
    for phase in ("prepared", "cut_over"):
        run.ledger.enter_phase(RUN, "acme/orders", phase)
    drain(run, 4000, 3000, 2000, 1000)
    text = page(run)
    assert (
        "Wave 1 of 2: 0 of 1 namespace from eu-blue to eu-green done; backlog 1,000 entries, done in about 10 s" in text
    )
    draining = row(text, "acme/orders")
    for words in ("… cut_over", "1,000", "100", "done in about 10 s (± 0 s)", "point of no return passed"):
        assert words in draining
    assert "stroke-dasharray" in text.partition("<svg")[2]


def test_a_backlog_that_does_not_shrink_has_no_end(run: Run) -> None:
    run.ledger.enter_phase(RUN, "acme/orders", "cut_over")
    drain(run, 1000, 1000, 1000)
    assert "backlog 1,000 entries, its end is not known yet." in page(run)


def test_the_newest_phase_of_a_run_that_goes_on_lasts_until_now(run: Run) -> None:
    run.ledger.enter_phase(RUN, "acme/orders", "prepared")
    later = read_migration(run, datetime.now(UTC) + timedelta(minutes=5))
    assert "prepared" in migration_page(later, LINKS, MigrationView()).partition("<svg")[2].partition("</svg>")[0]
    ended = replace(later, run=replace(later.run, state="failed"))
    assert "<svg" not in migration_page(ended, LINKS, MigrationView())


def test_each_wave_leads_to_its_own_run(run: Run) -> None:
    text = page(run)
    assert "○ planned" in row(text, "2")
    run.ledger.finish_run(RUN, "succeeded")
    run.ledger.start_run(SECOND, "migrate_namespaces", {"wave": 2, "continues": RUN})
    text = page(run)
    assert "✓ succeeded" in row(text, "1 (canary)")
    assert LINKS.migration(SECOND) in row(text, "2")
    second = page(replace(run, id=SECOND))
    assert "Wave 2 of 2: 0 of 0 namespaces done." in second
    assert LINKS.migration(RUN) in row(second, "1 (canary)")


def test_incidents_that_are_not_over_come_first_and_stay_text(run: Run) -> None:
    drain(run, 0, ended=True)
    text = page(run)
    assert text.index("topic-fenced") < text.index("topic-unloaded")
    assert "✗ not over" in row(text, "acme/orders")
    assert text.count("<script>") == 1


def test_namespaces_are_paged_and_every_name_stays_text(run: Run) -> None:
    for number in range(PAGE_SIZE + 1):
        run.ledger.enter_phase(RUN, f"{HOSTILE}-{number:03}", "prepared")
    text = page(run, number=2)
    assert f"1 of {PAGE_SIZE + 1} namespaces" in text
    assert "-100" in text
    assert text.count("<script>") == 1


def test_the_report_is_linked_where_one_is_stored(run: Run) -> None:
    assert "/report?" not in page(run)
    run.artefacts.write(RUN, PAGE, b"<!doctype html>")
    assert LINKS.report(RUN) in page(run)


def test_a_run_of_another_procedure_is_not_found(run: Run) -> None:
    run.ledger.start_run("verify_clusters/1", "verify_clusters", {})
    for name in ("verify_clusters/1", "none"):
        with pytest.raises(NotFound):
            read_migration(replace(run, id=name))


def test_what_a_person_may_do_about_the_run_is_one_click_away(run: Run) -> None:
    run.ledger.enter_phase(RUN, "acme/orders", "frozen")
    question = Approval(subject="Wave 1", link="/dags/m/required_actions", waiting=timedelta(), run_id=RUN)
    other = replace(question, subject="Wave 2", run_id=SECOND)
    visitor = Visitor(approvals=(question, other), may_start={"abort_migration"}.__contains__)
    text = migration_page(read_migration(run), LINKS, MigrationView(), visitor)
    assert "/dags/m/required_actions" in text
    assert "Wave 2" not in text
    assert escape(LINKS.prepared("abort", RUN)) in text
    assert "Abort it (not permitted)" in page(run)


def test_an_abort_is_not_offered_past_the_point_of_no_return(run: Run) -> None:
    run.ledger.enter_phase(RUN, "acme/orders", "frozen")
    run.ledger.enter_phase(RUN, "acme/audit", "cut_over")
    assert "Abort it" not in page(run)
