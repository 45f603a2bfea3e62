"""`pulsar-fleet demo`: run it, keep it, stop it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_sandbox import Sandbox
from pulsar_sandbox.demo.judgement import judge
from pulsar_sandbox.demo.screen import Screen
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
