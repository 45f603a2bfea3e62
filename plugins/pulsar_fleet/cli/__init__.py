"""`pulsar-fleet …`: the steps of the procedures from a terminal."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from pulsar_fleet.cli.commands.abort import abort
from pulsar_fleet.cli.commands.apply import apply, undo
from pulsar_fleet.cli.commands.metadata import sync_metadata
from pulsar_fleet.cli.commands.migration import fail_back, migrate
from pulsar_fleet.cli.commands.onboard import check, diff, plan, snapshot
from pulsar_fleet.cli.commands.reconciliation import export, reconcile
from pulsar_fleet.cli.commands.restore import restore
from pulsar_fleet.cli.commands.verification import verify

COMMANDS = "pulsar_fleet.commands"
"""The group of entry points by which another package adds commands, such as the sandbox."""

app = typer.Typer(
    no_args_is_help=True,
    help="Runbooks for fleets of Apache Pulsar clusters.",
    # A traceback with the values of variables would show tokens.
    pretty_exceptions_show_locals=False,
)


def _add_commands_of_other_packages() -> None:
    """Add each command that can be imported: those of the sandbox need the extra `[sandbox]`."""
    for entry_point in sorted(entry_points(group=COMMANDS), key=lambda entry: entry.name):
        try:
            command = entry_point.load()
        except ModuleNotFoundError:
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=entry_point.name)
        else:
            app.command(entry_point.name)(command)


for command in (snapshot, diff, check, plan, apply, undo, verify, migrate, fail_back, abort, restore):
    app.command()(command)
for fleet_command in (export, reconcile, sync_metadata):
    app.command()(fleet_command)
_add_commands_of_other_packages()
