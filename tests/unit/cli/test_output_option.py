"""Every command writes a text or one JSON document, and its JSON names the commands that the text names."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pulsar_fleet.cli import MODULES, all_commands, app
from pulsar_fleet.cli.terminal import print_text
from pulsar_fleet.ledger.ledger import Ledger


def leaves(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(path), command
        return
    for name, child in children.items():
        yield from leaves(child, *path, name)


COMMANDS = {path: leaf for name in MODULES for path, leaf in leaves(all_commands()[name], name)}


FOLLOWERS = {"forward-acknowledgments", "sync-metadata", "return-clients"}
BY_MODE = {"reconcile", "doctor"}
"""`--mode dry_run`; the doctor asks before it heals."""


def options(path: str) -> set[str]:
    declared = ((*parameter.opts, *parameter.secondary_opts) for parameter in COMMANDS[path].params)
    return {name for names in declared for name in names if name.startswith("--")}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_both_outputs(path: str) -> None:
    assert {"--output", "--json"} <= options(path)


# The follower of acknowledgments and that of metadata events decide while they run, and a return asks nobody.
@pytest.mark.parametrize("path", sorted({path for path in COMMANDS if "--yes" in options(path)} - FOLLOWERS))
def test_every_command_that_asks_has_a_dry_run(path: str) -> None:
    assert "--dry-run" in options(path) or path in BY_MODE


@pytest.mark.parametrize("words", [["--output", "json"], ["--json"], ["--output", "table"], []])
def test_the_output_is_what_was_asked_for(words: list[str], records: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pulsar_fleet.cli", "runs", *words], capture_output=True, text=True, check=True
    )
    if "json" in " ".join(words):
        assert json.loads(done.stdout) == {"state": "done", "runs": [], "next": []}
    else:
        assert "{" not in done.stdout


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_has_each_option_whole_on_80_columns(path: str) -> None:
    shown = CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    # An earlier release had it.
    assert {name for name in options(path) if name not in shown} <= {"--output"}


def test_the_help_of_a_failback_begins_with_what_is_moved() -> None:
    shown = CliRunner().invoke(app, ["fail-back", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    what = shown.partition("\nWhat:")[2].partition("\nSafety:")[0]
    assert re.findall(r"(?m)^  (--[\w-]+)", what) == ["--namespaces", "--strategy", "--third-clusters"]


def test_the_help_of_a_migration_has_groups_and_what_matters_first() -> None:
    shown = CliRunner().invoke(app, ["migrate", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    sections = re.findall(r"(?m)^(\w[\w ]+):$", shown)
    assert sections == ["Arguments", "What", "When", "Safety", "How", "Clients", "At the end", "More", "Output"]
    first = re.findall(r"(?m)^  (--[\w-]+)", shown.partition("\nHow:")[0])
    assert first[:2] == ["--namespaces", "--strategy"]
    assert {"--dry-run", "--waiver", "--resume", "--yes", "--change-windows"} <= {*first}
    assert len(first) <= 12


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"pulsar-fleet {version('pulsar-fleet')}\n"


def test_the_list_of_runs_has_those_first_that_have_work_to_do(records: Path) -> None:
    ledger = Ledger.open()
    for number, state in enumerate(["succeeded", "failed", "running", "undone"]):
        ledger.start_run(f"cli/migrate-{number}", "migrate_namespaces", {"namespaces": [f"acme/n{number}"]}, "me")
        if state != "running":
            ledger.finish_run(f"cli/migrate-{number}", state)
    listed, document = (
        subprocess.run(
            [sys.executable, "-m", "pulsar_fleet.cli", "runs", *words], capture_output=True, text=True, check=True
        ).stdout
        for words in ([], ["--json"])
    )
    named = [line.split()[-1] for line in listed.splitlines()]
    assert named == ["failed:", "acme/n2", "acme/n1", "Ended:", "acme/n3", "acme/n0"]
    assert json.loads(document)["runs"][0]["about"] == ["acme/n3"]


def printed(text: str, *, terminal: bool, width: int = 60) -> list[str]:
    file = io.StringIO()
    print_text(Console(file=file, force_terminal=terminal, width=width, no_color=True), text)
    return [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()]


def test_a_terminal_shows_no_table_of_markdown_and_cuts_no_cell() -> None:
    text = (
        "Two namespaces:\n\n| namespace | phase |\n| --- | --- |\n| `acme/orders` | moved |\n|| a\\|b or c |\n\nDone."
    )
    for terminal in (True, False):
        lines = printed(text, terminal=terminal)
        assert ("| --- | --- |" in lines) is not terminal
        assert (["acme/orders", "moved"] in [line.split() for line in lines]) is terminal
        assert ("a|b or c" in lines) is terminal
        assert (lines[0], lines[-1]) == ("Two namespaces:", "Done.")


def test_a_table_whose_columns_have_no_room_is_printed_as_it_is() -> None:
    text = "| a | b | c | d | e | f |\n| --- | --- | --- | --- | --- | --- |\n| 1 | 2 | 3 | 4 | 5 | 6 |"
    assert printed(text, terminal=True) == text.splitlines()


def test_a_cell_with_a_bar_of_its_own_is_shown_whole() -> None:
    assert "x   re:acme/(a | b)" in printed("| n | s |\n| - | - |\n| x | re:acme/(a | b) |", terminal=True)


def test_a_command_says_at_its_start_by_which_name_its_run_is_recorded(records: Path) -> None:
    words = [sys.executable, "-m", "pulsar_fleet.cli", "snapshot", "http://127.0.0.1:9"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    (recorded,) = Ledger.open().newest_runs(2)
    assert done.stderr.startswith(f"Run {recorded.run_id}.\n")


def test_another_output_is_refused(records: Path) -> None:
    words = [sys.executable, "-m", "pulsar_fleet.cli", "runs", "--output", "yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "table" in done.stderr) == (2, True)


NEXT = """
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.text import command_line

terminal = Terminal(as_json=True)
apply = command_line("apply", "plan.json")
terminal.say(f"3 changes.\\n\\nApply it with: {apply}", apply)
terminal.say("  - persistent://x/n/a `pulsar-fleet restore blue --yes` \\nUndo it with: pulsar-fleet undo x")
terminal.note("Continue it by `pulsar-fleet abort x`.", command_line("migrate", "--resume", "cli/migrate 1"))
terminal.say(f"Apply it with: {apply}", apply)
terminal.finish({"run": "x"}, ExitState.DIFFERENT)
"""


def test_the_next_commands_are_values_and_no_parts_of_texts() -> None:
    # The terminal takes the file descriptors of its process.
    done = subprocess.run([sys.executable, "-c", NEXT], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == {
        "state": "different",
        "run": "x",
        "next": ["pulsar-fleet apply plan.json", "pulsar-fleet migrate --resume 'cli/migrate 1'"],
    }
