"""What is said of a plan that is applied in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.onboarding.results import AppliedChanges, StoredPlan
from pulsar_fleet.onboarding.steps import read_applied


@pytest.mark.parametrize(("applied", "complete"), [((0, 1), True), ((0,), False)])
def test_a_plan_is_complete_when_every_batch_was_applied(
    applied: tuple[int, ...], complete: bool, records: Path
) -> None:
    store = Artefacts.open()
    reference = store.write_json("run", "plan.json", {})
    numbers: dict[str, Any] = dict.fromkeys(("changes", "calls", "seconds", "left_alone", "blockers", "warnings"), 0)
    planned = StoredPlan(
        plan=reference,
        findings=reference,
        text=reference,
        id="1f",
        source="blue",
        target="green",
        headline="",
        hazards={},
        needs_permission=(),
        batches=(0, 1),
        **numbers,
    )
    summary = AppliedChanges(plan="1f", target="green", complete=True, counts={"applied": 2}, problems=(), calls=3)
    for batch in applied:
        store.write_json("run", f"applied-{batch}.json", {"summary": summary.to_json()})
    result = read_applied(store, "run", planned)
    assert result is not None
    assert (result.complete, result.counts["applied"]) == (complete, 2 * len(applied))
