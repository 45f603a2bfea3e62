"""`pulsar-fleet airflow …`: what an Airflow needs to know of this package."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

import typer

import pulsar_fleet
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.errors import NotFound

airflow = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The DAGs of this package, for an Airflow.")
_ONE = "onboard_cluster.py"
_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


@airflow.callback()
def _describe() -> None:
    """Without it typer makes the only command the whole group."""


@airflow.command()
def dags(
    bundle: Annotated[
        bool, typer.Option("--bundle", help="As a value of AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Print the folder with the DAG files; the Spark jobs that they submit are beside it."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        folder = dags_folder()
    bundles = [{"name": "pulsar-fleet", "classpath": _BUNDLE, "kwargs": {"path": str(folder)}}]
    terminal.say(json.dumps(bundles) if bundle else str(folder))
    terminal.finish({"folder": str(folder), "bundles": bundles}, ExitState.DONE)


def dags_folder() -> Path:
    """The folder with the DAG files: of the installed package, or of the repository that it is imported from."""
    for file in (*_installed(), Path(pulsar_fleet.__file__).parents[2] / "dags" / _ONE):
        if file.exists():
            return file.resolve().parent
    raise NotFound("The DAG files are neither installed nor beside the package: install it with pip.")


def _installed() -> list[Path]:
    try:
        files = distribution("pulsar-fleet").files or []
    except PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.parts[-2:] == ("dags", _ONE)]
