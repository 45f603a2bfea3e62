"""`pulsar-fleet demo`: run it, keep it, stop it; what it prints."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_sandbox import Sandbox
from pulsar_sandbox.demo.judgement import Line, judge
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.demo.story import Demo

FOLDER = Path(".state/demo")


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave clusters and Airflow running to explore.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop what --keep left running.")] = False,
    folder: Annotated[Path, typer.Option(help="Where the demo keeps everything; emptied at the start.")] = FOLDER,
) -> None:
    """Onboard, migrate and verify on two real clusters, with live traffic."""
    screen = Screen(Console(highlight=False))
    _stop(folder, screen)
    if stop:
        return
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    try:
        succeeded = _play(folder.absolute(), screen, began, keep=keep)
    except FleetError as error:
        screen.error(str(error))
        raise typer.Exit(1) from error
    raise typer.Exit(0 if succeeded else 1)


def _play(folder: Path, screen: Screen, began: float, *, keep: bool) -> bool:
    play = Demo(folder=folder, say=lambda line: screen.progress(time.monotonic() - began, line))
    with play.running() as (sandbox, stack):
        lines = judge(play.play(sandbox, stack))
        screen.summary(lines, time.monotonic() - began)
        if keep:
            sandbox.release()
            stack.release()
            screen.line(f"Airflow: {stack.url}   stop everything with: make down")
    return all(line.passed is not False for line in lines)


def _stop(folder: Path, screen: Screen) -> None:
    try:
        AirflowStack.attach(folder / "airflow").stop()
        Sandbox.down(folder / "sandbox")
    except NotFound:
        return
    screen.line(f"stopped what ran in {folder}")


_NARROWEST = 20
_MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("", "")}


class Screen:
    """Lines with a hanging indent. A word is never broken, so that paths and URLs can be copied."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str) -> None:
        """A line without a prefix."""
        self._print(Text(), text)

    def error(self, text: str) -> None:
        """What ended the demo."""
        self._print(Text(), text, style="red")

    def progress(self, seconds: float, text: str) -> None:
        """What has just happened, `seconds` after the start."""
        self._print(Text(f"{seconds:6.1f} s  ", style="dim"), text)

    def summary(self, lines: Sequence[Line], seconds: float) -> None:
        """The checks of the demo, and whether all of them passed."""
        failed = sum(line.passed is False for line in lines)
        title = Text(f"{failed} points failed", "red") if failed else f"all checks passed, {seconds:.0f} s"
        self._console.rule(title)
        marks, words = max(len(_MARKS[line.passed][0]) for line in lines), max(len(line.word) for line in lines)
        for line in lines:
            mark, style = _MARKS[line.passed]
            self._print(Text.assemble((f"{mark:{marks}}", style), f"  {line.word:{words}}  "), line.sentence)

    def _print(self, prefix: Text, text: str, *, style: str = "") -> None:
        for paragraph in text.splitlines():
            for part in self._parts(paragraph, len(prefix)):
                self._console.print(Text.assemble(prefix, (part, style)), soft_wrap=True)
                prefix = Text(" " * len(prefix))

    def _parts(self, paragraph: str, indent: int) -> list[str]:
        if not self._console.is_terminal:
            return [paragraph]
        # A line that fills the last column would make some terminals add an empty one.
        room = max(_NARROWEST, self._console.width - indent - 1)
        own = paragraph[: len(paragraph) - len(paragraph.lstrip())]
        return wrap(paragraph, room, subsequent_indent=own, break_long_words=False, break_on_hyphens=False)
