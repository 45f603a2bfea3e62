"""`pulsar-fleet …`: the runbooks' steps and the sandbox from a terminal."""

from __future__ import annotations

import typer

from pulsar_fleet.demo.cli import demo
from pulsar_fleet.sandbox.cli import app as sandbox

app = typer.Typer(no_args_is_help=True, help="Runbooks for fleets of Apache Pulsar clusters.")
app.add_typer(sandbox, name="sandbox", help="Real Pulsar clusters on this machine.")
app.command()(demo)
