"""Who may approve is a rule of the installation, which no form and no option changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.airflow.operators import approval as operators
from pulsar_fleet.cli.runs import begin_run, require_approval
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.ledger.approval import ApprovalRules, read_approval
from pulsar_fleet.ledger.run import Run, this_user

WAIVER = {"id": "transactions-in-use", "who": "bela", "why": "none are open"}


@pytest.fixture
def run(records: Path) -> Run:
    run = Run.open("migrate_namespaces/1")
    run.ledger.start_run(run.id, "migrate_namespaces", {}, "anna")
    return run


@pytest.mark.parametrize(
    ("name", "value", "conf", "sentence"),
    [
        ("AUTO_APPROVE", "false", {"auto_approve": True}, "'auto_approve' is forbidden here"),
        ("WAIVERS", "bela, carla", {"waivers": [WAIVER]}, "let bela or carla start the run"),
        ("WAIVERS", "nobody", {"waivers": [WAIVER]}, "let nobody start the run"),
        ("WAIVERS", "", {"waivers": [WAIVER]}, "let nobody start the run"),
    ],
)
def test_a_request_that_is_forbidden_here_is_refused(
    name: str, value: str, conf: dict[str, Any], sentence: str
) -> None:
    rules = ApprovalRules.of({f"PULSAR_FLEET_{name}": value})
    for asked_by in ("anna", "anna on host"):
        with pytest.raises(PreconditionFailed, match=sentence):
            rules.require_request(conf, asked_by)
        rules.require_request({"auto_approve": False, "waivers": []}, asked_by)
        ApprovalRules.of({}).require_request(conf, asked_by)
    if "bela" in value:
        rules.require_request(conf, "bela on host")


@pytest.mark.parametrize(
    ("name", "value", "person", "sentence"),
    [
        ("APPROVERS", "bela,carla", ["1", "anna"], "1, anna may not approve here"),
        ("APPROVERS", "bela,carla", ["2", "bela"], None),
        ("APPROVERS", "1,2", ["1", "anna"], None),
        ("OTHER_APPROVER", "true", ["1", "anna"], "has asked for this run"),
        ("OTHER_APPROVER", "true", ["2", "bela"], None),
        ("OTHER_APPROVER", "false", ["1", "anna"], None),
    ],
)
def test_an_approval_counts_only_of_who_may_give_it(
    name: str, value: str, person: list[str], sentence: str | None
) -> None:
    rules = ApprovalRules.of({f"PULSAR_FLEET_{name}": value})
    for asked_by in ("anna", "anna on host"):
        if sentence is None:
            rules.require_approver(person, asked_by)
            continue
        with pytest.raises(PreconditionFailed, match=sentence):
            rules.require_approver(person, asked_by)


def test_a_rule_that_is_written_wrong_opens_nothing() -> None:
    with pytest.raises(InvalidRequest, match="PULSAR_FLEET_AUTO_APPROVE is 'never': set it to true or false"):
        ApprovalRules.of({"PULSAR_FLEET_AUTO_APPROVE": "never"})


def test_an_approval_by_the_requester_fails_and_a_rejection_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_FLEET_OTHER_APPROVER", "true")
    monkeypatch.setattr(operators, "current_run", lambda _: run)
    context: Any = {}
    anna, bela = ({"id": "1", "name": "anna"}, {"id": "2", "name": "bela"})
    with pytest.raises(PreconditionFailed, match="let another person answer"):
        operators.store_answer(context, "wave 1", {"chosen_options": ["Approve"], "responded_by_user": anna})
    assert read_approval(run) is None
    for user, answer in ((anna, "Reject"), (bela, "Approve")):
        operators.store_answer(context, "wave 1", {"chosen_options": [answer], "responded_by_user": user})
        assert (read_approval(run) or {})["by"] == user["name"]


def test_a_terminal_approves_nothing_where_another_person_must(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = SimpleNamespace(confirm=lambda _: True, note=lambda _: None)
    run = Run.open("cli/plan-1")
    begin_run(terminal, run, "onboard_cluster", {})
    recorded = run.ledger.run(run.id)
    assert recorded is not None
    assert str(recorded.requested_by).startswith(f"{this_user()} on ")
    monkeypatch.setenv("PULSAR_FLEET_AUTO_APPROVE", "false")
    with pytest.raises(PreconditionFailed, match="--yes is forbidden here"):
        require_approval(terminal, run, "plan", "Make these 2 changes?", yes=True)
    require_approval(terminal, run, "plan", None, yes=True)
    monkeypatch.setenv("PULSAR_FLEET_OTHER_APPROVER", "true")
    with pytest.raises(PreconditionFailed, match="has asked for this run and may not approve it"):
        require_approval(terminal, run, "plan", "Make these 2 changes?", yes=False)
    assert (read_approval(run) or {})["answer"] == "Approve", "of the plan without changes"
