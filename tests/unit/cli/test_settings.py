"""The options of a command are the settings of its procedure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from pulsar_fleet.cli import settings
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import Terminal
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import clusters, waivers

SETTINGS = {
    "clusters": clusters(1, "The clusters."),
    "minutes": setting(60, type="integer", minimum=1, maximum=90, title="Minutes", description="For so long."),
    "rate": setting(None, type=["null", "number"], title="Rate", description="So fast."),
    "mode": setting("report", type="string", enum=["report", "repair"], title="Mode", description="What to do."),
    "topics": setting(True, type="boolean", title="Topics", description="Topics too."),
    "dry_run": setting(False, type="boolean", title="Dry run", description="Change nothing."),
    "allow_changes": setting(
        [], type="array", items={"type": "string"}, title="Allowed", option="allow", description="Ids."
    ),
    "waivers": waivers(),
    "hours": setting(24, type="integer", title="Hours", description="To answer.", only_in_form=True),
}
DEFAULTS = {
    "clusters": ["a"],
    "minutes": 60,
    "rate": None,
    "mode": "report",
    "topics": True,
    "dry_run": False,
    "allow_changes": [],
    "waivers": [],
}


@pytest.fixture(autouse=True)
def closed_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command leaves its output open, because its process ends."""
    terminal = Terminal(as_json=False)
    monkeypatch.setattr(settings, "Terminal", lambda as_json: terminal)
    yield
    terminal._stdout.close()


@pytest.fixture
def called() -> list[tuple[JsonObject, bool]]:
    return []


@pytest.fixture
def command(called: list[tuple[JsonObject, bool]]) -> Any:
    @with_settings(SETTINGS, arguments={"clusters": "The clusters."})
    def run(
        terminal: Terminal,
        conf: JsonObject,
        yes: Annotated[bool, typer.Option("--yes")] = False,
    ) -> None:
        called.append((conf, yes))

    app = typer.Typer(add_completion=False)
    app.command()(run)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_without_options_each_setting_has_its_default(command: Any, called: list[Any]) -> None:
    assert command("a").exit_code == 0
    assert called == [(DEFAULTS, False)]


def test_options_are_the_values_of_the_settings(command: Any, called: list[Any]) -> None:
    arguments = ["a", "b", "--minutes", "5", "--rate", "0.5", "--mode", "repair", "--no-topics", "--dry-run", "--yes"]
    command(*arguments, "--allow", "1", "--allow", "2", "--waiver", '{"id": "x"}')
    assert called == [
        (
            {
                "clusters": ["a", "b"],
                "minutes": 5,
                "rate": 0.5,
                "mode": "repair",
                "topics": False,
                "dry_run": True,
                "allow_changes": ["1", "2"],
                "waivers": [{"id": "x"}],
            },
            True,
        )
    ]


@pytest.mark.parametrize(
    "arguments",
    [(), ("a", "--mode", "both"), ("a", "--hours", "1"), ("a", "--minutes", "91"), ("a", "--waiver", "nothing")],
)
def test_what_is_not_a_value_of_a_setting_is_refused(command: Any, called: list[Any], arguments: tuple[str]) -> None:
    assert command(*arguments).exit_code == 2
    assert called == []
