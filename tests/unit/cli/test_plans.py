"""Which plans are applied, and what counts as undone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from pulsar_fleet.cli.commands import apply
from pulsar_fleet.cli.commands import apply as commands
from pulsar_fleet.cli.commands.apply import PlanExecution
from pulsar_fleet.cli.commands.plans import PlanFile
from pulsar_fleet.cli.terminal import ExitState
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.context import blocker

GREEN = ClusterConnection(name="green", admin_url="http://127.0.0.1:9")
PLAN = Plan(source="blue", target="green", changes=())


class Ended:
    """A terminal that prints nothing."""

    def __init__(self, *, as_json: bool) -> None:
        self.plain_errors = nullcontext

    def say(self, _: str) -> None: ...

    def finish(self, _: Any, state: ExitState) -> None:
        raise typer.Exit(state)


def test_a_stored_plan_with_a_blocker_is_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = blocker("clock-skew", "cluster green", "9 s", "Times are wrong.", "set its clock.")
    file = PlanFile(
        run="cli/plan-1",
        source="blue",
        target="green",
        selection=(),
        subscriptions=True,
        plan=PLAN,
        findings=(finding,),
    )
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(file.to_json()))
    monkeypatch.setattr(commands, "execute_plan", lambda *_, **__: pytest.fail("it was applied"))
    monkeypatch.setattr(commands, "_work", lambda *_: None)
    monkeypatch.setattr(commands, "Terminal", Ended)
    with pytest.raises(typer.Exit) as caught:
        commands.apply(str(path), None, None, subscriptions=True, waivers=None, allow=None, yes=True, as_json=False)
    assert caught.value.exit_code == ExitState.REFUSED


@pytest.mark.parametrize(("outcome", "state"), [(Outcome.APPLIED, "undone"), (Outcome.FAILED, "succeeded")])
def test_a_run_is_undone_when_all_its_changes_are(
    outcome: Outcome, state: str, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open()
    ledger.start_run("cli/apply-1", "apply", {})
    ledger.finish_run("cli/apply-1", "succeeded")

    async def step(*_: Any) -> Any:
        return SimpleNamespace(counts={outcome.value: 1}, problems=())

    monkeypatch.setattr(apply, "_step", step)
    terminal: Any = SimpleNamespace(progress=lambda *_: nullcontext(), note=lambda _: None)
    work = PlanExecution(
        run_id="cli/undo-1", command="undo", plan=PLAN, source=GREEN, target=GREEN, conf={}, undoes="cli/apply-1"
    )
    apply._apply_changes(terminal, work)
    undone = ledger.run("cli/apply-1")
    assert undone is not None
    assert undone.state == state
