"""How the demo prints: to a terminal of any width, and to a file."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from pulsar_sandbox.demo.cli import Screen
from pulsar_sandbox.demo.judgement import Line

PATH = "/a/path/that/is/much/longer/than/the/terminal/is/wide/and/must/be/copied/in/one/piece/ledger.db"
LINES = (
    Line("migrate_namespaces", "success in 49 s", True),
    Line("clients", "3 of 3 producers got an answer to all they sent, 8 of 8 subscriptions received all", False),
    Line("ledger", PATH),
)


def printed(*, width: int | None) -> list[str]:
    """The summary on a terminal of that width, or in a file."""
    output = StringIO()
    Screen(Console(file=output, force_terminal=width is not None, no_color=True, width=width or 80)).summary(LINES, 180)
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_summary_fits_the_terminal_and_breaks_no_path(width: int) -> None:
    lines = printed(width=width)
    assert max(len(line) for line in lines if PATH not in line) <= width
    assert any(PATH in line for line in lines)


def test_in_a_file_each_point_has_one_line() -> None:
    assert [line.split()[-1] for line in printed(width=None)[1:]] == ["s", "all", PATH]


def test_a_message_is_not_taken_for_markup() -> None:
    output = StringIO()
    Screen(Console(file=output)).progress(1.0, "[/red] failed")
    assert output.getvalue() == "   1.0 s  [/red] failed\n"
