"""A plan that must not be applied is refused before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.preflight.context import blocker


@pytest.mark.parametrize("auto_approve", [True, False])
def test_a_plan_with_blockers_is_refused_also_with_auto_approve(records: Path, auto_approve: bool) -> None:
    findings = [blocker("clock-skew", "cluster green", "9 s", "Times are wrong.", "set its clock.").to_json()]
    stored = Artefacts.open().write_json("run", "findings.json", findings).to_json()
    planned = {"headline": "1 change.", "blockers": 1, "changes": 1, "findings": stored, "id": "1f"}
    context: Any = {
        "params": {"dry_run": False, "auto_approve": auto_approve, "approval_hours": 1},
        "dag_run": SimpleNamespace(dag_id="onboard_cluster", run_id="manual__1"),
    }
    with pytest.raises(AirflowFailException, match="clock-skew"):
        PlanApprovalOperator(task_id="approve_plan", planned=planned).execute(context)
