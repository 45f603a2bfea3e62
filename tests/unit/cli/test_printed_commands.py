"""Every `pulsar-fleet …` that a message of the package prints is a command, and its options exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulsar_fleet
from pulsar_fleet.cli import all_commands, app

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
