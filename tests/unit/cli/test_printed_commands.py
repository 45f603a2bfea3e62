"""Every `pulsar-fleet …` that a message of the package prints is a command, and its options exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pulsar_fleet
from pulsar_fleet.cli import all_commands, app
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import MOVES
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.prepare.dead_runs import Restored
from pulsar_fleet.replication.failover.report import Addresses
from pulsar_fleet.report.migration import migration_report

ROOT = Path(pulsar_fleet.__file__).parent
COMMANDS = all_commands()
_COMMAND = re.compile(r"pulsar-fleet (?!that )([a-z][a-z-]+)((?:[^`.;,)]|\.(?=\S))*)")


def _texts(tree: ast.AST) -> Iterator[str]:
    """Texts that are not docstrings; the values of f-strings as `X`."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(value.value if isinstance(value, ast.Constant) else "X" for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            yield node.value


def _made(tree: ast.AST) -> Iterator[str]:
    """What `command_line` is called with, as one text; the values of variables as `X`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command_line":
            name, *words = node.args
            texts = [str(word.value) if isinstance(word, ast.Constant) else "X" for word in words]
            for choice in ast.walk(name):
                if isinstance(choice, ast.Constant) and re.fullmatch("[a-z]+(-[a-z]+)?", str(choice.value)):
                    yield " ".join(["pulsar-fleet", str(choice.value), *texts])


def printed() -> dict[tuple[str, str], str]:
    """Each printed command with the rest of its sentence → where it is printed."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    return {
        (matched[1], matched[2].strip()): str(path.relative_to(ROOT))
        for path, tree in trees.items()
        for text in (*_texts(tree), *_made(tree))
        for matched in _COMMAND.finditer(text)
    }


@pytest.mark.parametrize(("command", "rest"), sorted(printed()))
def test_a_printed_command_exists_with_its_options(command: str, rest: str) -> None:
    assert command in COMMANDS, f"{command} {rest}, in {printed()[command, rest]}"
    options = {name for parameter in COMMANDS[command].params for name in parameter.opts}
    assert set(re.findall(r"--[a-z-]+", rest)) <= options


RUN = "migrate_namespaces/manual 1"
EAST = ClusterConnection(name="localhost:8080", admin_url="http://localhost:8080")
NORTH = ClusterConnection(name="pulsar_north", admin_url="http://localhost:8081")
ADDRESSES = Addresses(origin=EAST.argument, target=NORTH.argument, run=RUN)
FORECAST: Any = SimpleNamespace(selection=("x/n", "re:y/.*"))
MADE = (
    *re.findall(
        r": (pulsar-fleet .+)\.$",
        Restored(cluster=EAST.argument, replicating=("x/n",), draining=("x/n",)).text(),
        re.MULTILINE,
    ),
    ADDRESSES.command("forecast-failover", FORECAST),
    ADDRESSES.command("prepare-failover", FORECAST) + " --yes",
    command_line("failover-outcome", RUN),
    command_line("undo", f"{RUN}/contents"),
    command_line("evidence", RUN),
    command_line("onboard", "--resume", RUN),
    command_line("migrate", "--resume", RUN),
    command_line("fail-back", "--resume", RUN),
    command_line("abort", RUN),
    command_line("doctor", EAST.argument, NORTH.argument, "--select", "x/n"),
)


@pytest.mark.parametrize("text", MADE)
def test_a_made_command_is_taken_by_the_parser_of_the_command_line(text: str) -> None:
    values = parsed(text)
    assert {RUN, f"{RUN}/contents", EAST.argument} & values, "it names neither a run nor the cluster as it was given"


def parsed(text: str) -> set[str]:
    """The words of a printed command as its parser takes them; wrong ones raise."""
    program, name, *words = shlex.split(text)
    command = COMMANDS[name]
    command = getattr(command, "commands", {}).get("make", command)
    values = command.make_context(name, words).params.values()
    assert program == "pulsar-fleet"
    return {str(word) for value in values for word in (value if isinstance(value, list | tuple) else [value])}


def test_a_report_names_the_cluster_as_it_was_given(records: Path) -> None:
    conf = {"blue": EAST.admin_url, "green": "pulsar_north"}
    moves = Moves(blue="east", green="north", moves=())
    for procedure, cluster in (("migrate_namespaces", EAST.admin_url), ("fail_back_namespaces", "pulsar_north")):
        run = Run.open(f"cli/{procedure}")
        run.ledger.start_run(run.id, procedure, conf)
        run.artefacts.write_json(run.id, MOVES, moves.to_json())
        run.ledger.enter_phase(run.id, "x/n", Phase.CUT_OVER)
        (command,) = re.findall(r"`(pulsar-fleet [^`]+)`", migration_report(run, {}).markdown())
        assert cluster in parsed(command)


def test_commands_are_printed() -> None:
    assert {command for command, _ in printed()} >= {"abort", "undo", "plan", "export", "restore"}


def test_one_command_imports_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; from pulsar_fleet.cli import app\n"
        "try: app(['snapshot', '--help'])\n"
        "except SystemExit: assert 'pulsar_fleet.migration.steps' not in sys.modules; print('as it should')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "as it should" in capfd.readouterr().out


def test_a_wrong_name_is_refused_with_the_one_that_is_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["migrat"])
    assert ended.value.code == 2
    assert "Did you mean 'migrate'?" in capsys.readouterr().err
