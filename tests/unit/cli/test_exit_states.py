"""The exit states of the commands are those of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from pulsar_fleet.cli import all_commands
from pulsar_fleet.cli.commands.failover import _state
from pulsar_fleet.cli.terminal import MEANINGS, ExitState, Terminal, UsageError
from pulsar_fleet.cluster.errors import (
    Conflict,
    FleetError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unavailable,
)
from pulsar_fleet.procedures.verification import ENDED
from pulsar_fleet.replication.failover.forecast import Forecast, Lost, SubscriptionForecast, TopicForecast
from pulsar_fleet.verification.messages.verdict import Verdict

DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_in_the_documentation_has_every_state_with_its_meaning() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \|$", (DOCS / "onboard_cluster.md").read_text(), re.MULTILINE)
    assert [(int(number), name, meaning) for number, name, meaning in rows] == [
        (state.value, state.name.lower(), MEANINGS[state]) for state in ExitState
    ]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_a_state_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"[Ee]xits? (?:with|state is|code is) (\d+)", page.read_text())
    assert {int(number) for number in named} <= set(ExitState)


def test_a_state_that_the_help_of_a_command_names_exists() -> None:
    helps = [command.help or "" for command in all_commands().values()]
    named = {int(number) for text in helps for number in re.findall(r"(?:Exits with|, with) (\d+)", text)}
    assert named
    assert named <= set(ExitState)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (UsageError("x"), ExitState.USAGE),
        (InvalidRequest("x"), ExitState.ERROR),
        (NotFound("x"), ExitState.ERROR),
        (PermissionDenied("x"), ExitState.ERROR),
        (Unavailable("x"), ExitState.ERROR),
        (OSError(28, "No space left on device"), ExitState.ERROR),
        (PreconditionFailed("x"), ExitState.REFUSED),
        (Conflict("x"), ExitState.PARTLY),
        (KeyboardInterrupt(), ExitState.INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.name,
)
def test_an_error_ends_with_its_state(
    error: FleetError | OSError | KeyboardInterrupt, state: ExitState, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught, Terminal(as_json=False).plain_errors():
        raise error
    assert caught.value.exit_code == state


def test_a_verdict_ends_with_its_state() -> None:
    assert {verdict: ExitState[ended.name].value for verdict, ended in ENDED.items()} == {
        Verdict.EQUAL: 0,
        Verdict.DIFFERENT: 3,
        Verdict.INCONCLUSIVE: 6,
    }


@pytest.mark.parametrize(
    ("lost", "unknown", "state"),
    [
        (0, "", ExitState.DONE),
        (0, "?", ExitState.INCONCLUSIVE),
        (1, "", ExitState.DIFFERENT),
        (1, "?", ExitState.DIFFERENT),
    ],
)
def test_a_forecast_of_a_loss_ends_with_its_state_though_incomplete(lost: int, unknown: str, state: ExitState) -> None:
    subscription = SubscriptionForecast(subscription="billing", lost=Lost(absent=lost))
    topics = (
        TopicForecast(topic="persistent://acme/orders/a", subscriptions=(subscription,)),
        TopicForecast(topic="persistent://acme/orders/b", unknown=unknown),
    )
    assert _state(Forecast(origin="blue", target="green", at="", selection=(), topics=topics)) is state
