"""`pulsar-fleet …`: the runbooks' steps and the sandbox from a terminal."""

from __future__ import annotations

import typer

from pulsar_fleet.cli.applying import apply, undo
from pulsar_fleet.cli.metadata import sync_metadata
from pulsar_fleet.cli.onboarding import check, diff, plan, snapshot
from pulsar_fleet.cli.reconciliation import export, reconcile
from pulsar_fleet.cli.stopping import stop
from pulsar_fleet.cli.verification import verify
from pulsar_fleet.demo.cli import demo
from pulsar_fleet.sandbox.cli import app as sandbox

app = typer.Typer(
    no_args_is_help=True,
    help="Runbooks for fleets of Apache Pulsar clusters.",
    # A traceback with the values of variables would show tokens.
    pretty_exceptions_show_locals=False,
)
for command in (snapshot, diff, check, plan, apply, undo, verify, export, reconcile, sync_metadata, stop, demo):
    app.command()(command)
app.add_typer(sandbox, name="sandbox", help="Real Pulsar clusters on this machine.")
