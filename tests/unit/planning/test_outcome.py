"""What is done about a change whose live value is not the one that was planned from, and what a killed run leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent, RecordedChange
from pulsar_fleet.planning.apply.apply import EarlierAttempt, Journal
from pulsar_fleet.planning.apply.outcome import Outcome, partly_written, result_before_write
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard


def setting(before: Any, after: Any) -> Change:
    return Change(
        resource=Resource.POLICY,
        name="acme/orders",
        field="auth_policies",
        action=Action.SET,
        calls=(),
        before=before,
        after=after,
        hazard=Hazard.REVERSIBLE,
        reason="",
    )


def outcome(change: Change, live: Any, *, begun: bool) -> Outcome | None:
    result = result_before_write(change, live, own="green", allow=(), begun=begun)
    return result.outcome if result else None


@pytest.mark.parametrize(
    ("live", "fresh", "begun"),
    [
        ({"a": 1}, None, None),
        ({"a": 1, "b": 2}, Outcome.ALREADY, Outcome.APPLIED),
        ({"a": 1, "b": 9}, Outcome.CONFLICT, Outcome.CONFLICT),
        (None, Outcome.CONFLICT, Outcome.CONFLICT),
    ],
)
def test_a_live_value_decides_what_is_done(live: Any, fresh: Outcome | None, begun: Outcome | None) -> None:
    change = setting({"a": 1}, {"a": 1, "b": 2})
    assert (outcome(change, live, begun=False), outcome(change, live, begun=True)) == (fresh, begun)


def test_half_a_change_is_a_conflict_unless_this_run_began_it() -> None:
    change = setting(None, {"x": {"a": 1, "b": 2}})
    half = {"x": {"a": 1}}
    assert (outcome(change, half, begun=False), outcome(change, half, begun=True)) == (Outcome.CONFLICT, None)


def test_what_this_run_created_may_have_been_changed_by_it_since() -> None:
    change = replace(
        setting(None, {"max_producers_per_topic": 1}), resource=Resource.NAMESPACE, action=Action.CREATE, field=""
    )
    results = [
        result_before_write(change, {"max_producers_per_topic": 2}, own="green", allow=(), begun=False, done=created)
        for created in (False, True)
    ]
    assert [result and result.outcome for result in results] == [Outcome.CONFLICT, Outcome.ALREADY]


@pytest.mark.parametrize(
    ("before", "live", "after", "expected"),
    [
        (["v1"], ["v1", "v2"], ["v1", "v2", "v3"], True),
        (["v1", "v2"], ["v1"], ["v1", "v2", "v3"], False),
        (None, ["v2"], ["v1", "v2"], False),
        (1, 2, 3, False),
        ({"a": 1}, {}, None, True),
    ],
)
def test_a_value_on_the_way_has_only_parts_of_before_and_after(
    before: Any, live: Any, after: Any, expected: bool
) -> None:
    assert partly_written(before, live, after) is expected


def intent(change: str, before: Any = None) -> Intent:
    return Intent(change_id=change, cluster="green", kind="policy", name="n", field="f", before=before, after=1)


def recorded(change: str, outcome: Outcome) -> RecordedChange:
    return RecordedChange(
        change_id=change,
        cluster="green",
        resource="",
        action="",
        hazard="",
        before=None,
        after=1,
        outcome=outcome.value,
        detail=None,
        at=datetime.now(UTC),
    )


def test_a_change_is_open_until_it_was_applied_as_often_as_it_was_begun() -> None:
    rows = [intent("done"), intent("cut"), intent("failed"), intent("again"), intent("again", 5)]
    changes = [recorded(name, Outcome.APPLIED) for name in ("done", "again")] + [recorded("failed", Outcome.FAILED)]
    earlier = EarlierAttempt.of(rows, changes)
    assert {name: change.before for name, change in earlier.begun.items()} == {"cut": None, "failed": None, "again": 5}
    assert earlier.applied == {"done", "again"}


async def test_what_is_written_at_the_same_time_is_one_transaction(records: Path) -> None:
    ledger, commits = Ledger.open(), 0

    def count(_connection: Any) -> None:
        nonlocal commits
        commits += 1

    sa.event.listen(sa.Engine, "commit", count)
    try:
        journal = Journal(ledger, "run")
        await asyncio.gather(*(journal.begin([intent(f"change-{number}")]) for number in range(100)))
    finally:
        sa.event.remove(sa.Engine, "commit", count)
    assert len(ledger.intents("run")) == 100
    assert commits <= 2
