"""The approval text states the age of the last verification and the expected drain, or that they are not known."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.migration_view import NAME, partition, subscription, view, with_facts

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.rows import RecordedVerdict
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import WAVE_TEXT, WAVES
from pulsar_fleet.migration.model import Moves, Strategy, plan_move
from pulsar_fleet.migration.waves.approval_text import (
    drain_seconds,
    drain_sentence,
    verification_sentence,
    wave_members,
)
from pulsar_fleet.migration.waves.planner import Member, plan_waves
from pulsar_fleet.migration.waves.steps import select_wave

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ORDERS, BILLING, AUDIT = (NamespaceName("acme", name) for name in ("orders", "billing", "audit"))
JAVA = "Pulsar-Java-v4.2.4"


def verdict(name: NamespaceName, *, minutes: int, word: str = "equal") -> RecordedVerdict:
    at = NOW - timedelta(minutes=minutes)
    return RecordedVerdict(
        run_id="verify_clusters/1", scope=str(name), verdict=word, messages=7, summary="", artefact=None, at=at
    )


@pytest.mark.parametrize(
    ("names", "verdicts", "sentence"),
    [
        ([ORDERS], [], "Last verification: not verified yet."),
        ([ORDERS], [verdict(ORDERS, minutes=14)], "Last verification: equal 14 min ago."),
        ([ORDERS], [verdict(ORDERS, minutes=3000, word="different")], "Last verification: different 2 days 2 h ago."),
        (
            [AUDIT, BILLING, ORDERS],
            [verdict(ORDERS, minutes=14), verdict(BILLING, minutes=90)],
            "Last verification: 2 equal, oldest 90 min ago (acme/billing); 1 not verified yet, first acme/audit.",
        ),
    ],
)
def test_the_age_of_the_last_verification_is_stated(
    names: list[NamespaceName], verdicts: list[RecordedVerdict], sentence: str
) -> None:
    stored = {NamespaceName.parse(entry.scope): entry for entry in verdicts}
    assert verification_sentence(names, stored, NOW) == sentence


def reading(*, backlog: int, rate: float, per_entry: int = 1) -> dict[str, Any]:
    """Statistics of a subscription whose consumer gets `rate` messages per second."""
    statistics = subscription("billing", JAVA, msgBacklog=backlog)
    statistics["subscriptions"]["billing"]["consumers"][0] |= {"msgRateOut": rate, "avgMessagesPerEntry": per_entry}
    return statistics


@pytest.mark.parametrize(
    ("statistics", "strategy", "seconds"),
    [
        (reading(backlog=600, rate=10.0), Strategy.REDIRECT, 60.0),
        (reading(backlog=600, rate=100.0, per_entry=10), Strategy.REDIRECT, 60.0),
        (reading(backlog=0, rate=0.0), Strategy.REDIRECT, 0.0),
        (reading(backlog=600, rate=0.0), Strategy.REDIRECT, None),
        (subscription("idle", msgBacklog=7), Strategy.REDIRECT, None),
        (subscription("idle", msgBacklog=7), Strategy.REPLICATE, 0.0),
    ],
    ids=["messages", "batches", "no backlog", "a consumer that gets nothing", "no consumer", "transferred"],
)
def test_a_backlog_drains_at_the_rate_of_its_consumers(
    statistics: dict[str, Any], strategy: Strategy, seconds: float | None
) -> None:
    assert drain_seconds([partition(**statistics)], strategy) == seconds


def member(name: NamespaceName, seconds: float | None, backlog: int = 0) -> Member:
    return Member(namespace=name, strategy=Strategy.REDIRECT, reason="", backlog=backlog, drain_seconds=seconds)


def test_the_slowest_namespace_decides_about_the_drain() -> None:
    assert drain_sentence([member(ORDERS, 200.0, 2000), member(AUDIT, 0.5, 5)]) == (
        "Expected drain: about 3 min 20 s at the present read rates; 2,005 unread entries, acme/orders takes longest."
    )
    assert drain_sentence([member(ORDERS, 0.0)]) == "Expected drain: nothing to drain on blue."


def test_a_drain_that_is_not_known_names_the_reason() -> None:
    sentence = drain_sentence([member(ORDERS, 200.0, 2000), member(AUDIT, None, 7)])
    assert sentence.startswith("Expected drain: not known. acme/audit has a subscription with a backlog")
    assert sentence.endswith("; 7 unread entries.")


@pytest.mark.usefixtures("records")
def test_the_approval_text_of_a_wave_takes_both_from_the_run() -> None:
    run = Run.open("migrate_namespaces/1")
    survey = with_facts(view(), partitions=(partition(**reading(backlog=600, rate=10.0)),)).survey
    moves = Moves("blue", "green", tuple(plan_move(facts, None, "green") for facts in survey.namespaces))
    plan = plan_waves(wave_members(survey.namespaces, moves.moves, []))
    run.artefacts.write_json(run.id, WAVES, plan.to_json())

    def text() -> str:
        select_wave(run, moves, [], planned_by=run, number=1)
        reference = run.artefacts.find(run.id, WAVE_TEXT)
        assert reference is not None
        return run.artefacts.read(reference).decode()

    assert "Last verification: not verified yet." in text()
    run.ledger.record_verdict("verify_clusters/1", str(NAME), verdict="equal", messages=7, summary="", artefact=None)
    assert re.search(r"Last verification: equal \d+ s ago\.", text())
    assert "Expected drain: about 60 s at the present read rates; 600 unread entries" in text()
