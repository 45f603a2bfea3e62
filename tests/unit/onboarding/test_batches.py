"""What is said of a plan that is applied in batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.onboarding import steps
from pulsar_fleet.onboarding.results import AppliedChanges
from pulsar_fleet.planning.plan import Plan


@pytest.mark.parametrize(("applied", "complete"), [((0, 1), True), ((0,), False)])
def test_a_plan_is_complete_when_every_batch_was_applied(
    applied: tuple[int, ...], complete: bool, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "batches_of", lambda _: range(2))
    store, plan = Artefacts.open(), Plan(source="blue", target="green", changes=())
    summary = AppliedChanges(plan=plan.id, target="green", complete=True, counts={"applied": 2}, problems=(), calls=3)
    for batch in applied:
        store.write_json("run", f"applied-{batch}.json", {"summary": summary.to_json()})
    result = steps.read_applied(store, "run", plan)
    assert result is not None
    assert (result.complete, result.counts["applied"]) == (complete, 2 * len(applied))
    steps.forget_applied(store, "run", plan)
    assert steps.read_applied(store, "run", plan) is None
