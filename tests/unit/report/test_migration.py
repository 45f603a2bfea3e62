"""The report of a migration claims what was shown: copied messages are compared, a redirect is drained."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.drain_states import ORDERS, move_of, stats

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import WAVE_MOVES
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.report.document import Outcome
from pulsar_fleet.report.migration import migration_report


@pytest.fixture
def run(records: Any) -> Run:
    return Run.open("migrate/1")


def report(run: Run, strategy: Strategy, *, verdict: str, messages: int) -> str:
    move = move_of(strategy, first=stats("p", billing=(0, ["c"])))
    run.artefacts.write_json(run.id, WAVE_MOVES, Moves("blue", "green", (move,)).to_json())
    run.ledger.record_verdict(run.id, str(ORDERS), verdict=verdict, messages=messages, summary="", artefact=None)
    run.ledger.enter_phase(run.id, str(ORDERS), Phase.FINISHED.value)
    return migration_report(run, {}).markdown()


def test_a_redirect_says_that_it_drained_and_that_no_message_was_compared(run: Run) -> None:
    text = report(run, Strategy.REDIRECT, verdict="drained", messages=0)
    assert "1 producer and 1 consumer arrived. Every backlog drained on blue: no unread entry is left there." in text
    assert "A redirect copies no message, so none was compared." in text
    assert "equal" not in text
    assert "0 messages" not in text


def test_a_completed_move_counts_no_client_that_came(run: Run) -> None:
    text = report(run, Strategy.COMPLETE, verdict="drained", messages=0)
    assert "whose applications were there before" in text
    assert "arrived" not in text


def test_a_namespace_with_leftovers_needs_attention(run: Run) -> None:
    run.ledger.enter_phase(run.id, str(ORDERS), Phase.CLEANED.value)
    assert migration_report(run, {}).outcome is Outcome.ATTENTION
    run.ledger.enter_phase(run.id, str(ORDERS), Phase.FINISHED.value)
    assert migration_report(run, {}).outcome is Outcome.SUCCEEDED


def test_after_the_cut_over_the_banner_says_what_to_do(run: Run) -> None:
    report(run, Strategy.REDIRECT, verdict="drained", messages=0)
    assert migration_report(run, {}).to_do == ()
    run.ledger.enter_phase(run.id, str(ORDERS), Phase.CUT_OVER.value)
    first, *_, last = migration_report(run, {}).to_do
    assert first.startswith("configure the applications with green")
    assert "pulsar-fleet restore blue" in last


def test_a_copy_says_how_many_messages_were_compared(run: Run) -> None:
    text = report(run, Strategy.REPLICATE, verdict="equal", messages=1)
    assert text.startswith("# Migrated 1 namespace, 1 topic, from blue to green\n")
    assert "1 message compared, equal on both sides." in text
    assert "drained" not in text.splitlines()[2]
