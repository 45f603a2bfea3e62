"""The exit states of the commands are those of the documentation."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

import pulsar_fleet
from pulsar_fleet.cli import all_commands
from pulsar_fleet.cli.commands.failover import _state
from pulsar_fleet.cli.terminal import (
    MEANINGS,
    PAGES,
    ExitState,
    Terminal,
    UsageError,
    error_document,
    usage_errors,
)
from pulsar_fleet.cluster.errors import (
    Conflict,
    FleetError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unavailable,
)
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
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


@pytest.mark.parametrize(
    ("error", "document"),
    [
        (
            UsageError("Name a topic."),
            {
                "code": "usage-error",
                "message": "Name a topic.",
                "acts": "you: correct the command",
                "page": "docs/onboard_cluster.md#from-a-terminal",
            },
        ),
        (
            Unavailable("blue did not answer.", cluster="blue", status=503),
            {
                "code": "unavailable",
                "message": "blue did not answer.",
                "acts": "nobody: it was retried, a later call may succeed",
                "page": "docs/onboard_cluster.md#from-a-terminal",
                "cluster": "blue",
                "status": 503,
            },
        ),
        (
            OSError(28, "No space left on device", "a.json"),
            {"code": "file-error", "message": "'a.json' cannot be used: No space left on device."},
        ),
        (KeyboardInterrupt(), {"code": "interrupted", "message": "Interrupted."}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_json_has_the_error_with_its_code(
    error: BaseException, document: JsonObject, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught, Terminal(as_json=True).plain_errors():
        raise error
    out, err = capfd.readouterr()
    printed = json.loads(out)
    assert printed == {"state": ExitState(caught.value.exit_code).name.lower(), "error": document, "next": []}
    assert document["message"] in err


@pytest.mark.parametrize("command", [False, True])
def test_an_error_names_the_page_of_the_package_that_raised_it(*, command: bool) -> None:
    with pytest.raises(InvalidRequest) as caught, usage_errors() if command else nullcontext():
        NamespaceName.parse("acme")
    assert error_document(caught.value)["page"] == "docs/provider.md"


def test_every_page_exists_and_every_package_has_one() -> None:
    package = Path(pulsar_fleet.__file__).parent
    assert {module.name for module in package.iterdir() if (module / "__init__.py").exists()} == PAGES.keys()
    assert all((DOCS / page.partition("#")[0]).exists() for _, page in PAGES.values())


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
