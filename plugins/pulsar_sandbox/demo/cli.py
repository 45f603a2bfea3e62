"""`pulsar-fleet demo`: run it, keep it, stop it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

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
    console = Console(highlight=False)
    if stop:
        _stop(folder, console)
        return
    _stop(folder, console)
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    try:
        held = _play(folder.absolute(), console, began, keep=keep)
    except FleetError as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(1) from error
    raise typer.Exit(0 if held else 1)


def _play(folder: Path, console: Console, began: float, *, keep: bool) -> bool:
    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/]  {line}", soft_wrap=True)

    play = Demo(folder=folder, say=say)
    with play.running() as (sandbox, stack):
        lines = judge(play.play(sandbox, stack))
        _show(console, lines, time.monotonic() - began)
        if keep:
            sandbox.release()
            stack.release()
            console.print(f"Airflow: {stack.url}   stop everything with: make down")
    return all(line.held is not False for line in lines)


def _show(console: Console, lines: tuple[Line, ...], seconds: float) -> None:
    table = Table.grid(padding=(0, 2))
    marks = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: ""}
    for line in lines:
        table.add_row(marks[line.held], line.word, line.sentence)
    failed = sum(line.held is False for line in lines)
    console.rule(f"[red]{failed} points failed[/]" if failed else f"everything held, {seconds:.0f} s")
    console.print(table)


def _stop(folder: Path, console: Console) -> None:
    try:
        AirflowStack.attach(folder / "airflow").stop()
        Sandbox.down(folder / "sandbox")
    except NotFound:
        return
    console.print(f"stopped what ran in {folder}")
