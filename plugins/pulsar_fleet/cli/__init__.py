"""`pulsar-fleet …`: the steps of the procedures from a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Look": {
        "snapshot": "plans",
        "diff": "plans",
        "check": "plans",
        "verify": "verification:VERIFICATION",
        "doctor": "doctor",
    },
    "Onboard a cluster": {"onboard": "onboarding:ONBOARDING", "plan": "plans", "apply": "apply", "undo": "apply"},
    "Migrate namespaces": {
        "migrate": "migration:MIGRATION",
        "fail-back": "failback:FAILBACK",
        "abort": "abort:ABORT",
        "restore": "restore",
    },
    "Replicate": {
        "replicate": "replication:REPLICATION",
        "verify-replication": "proofs:REPLICATION_PROOFS",
        "forecast-failover": "failover",
        "prepare-failover": "failover",
        "failover-outcome": "failover",
    },
    "Serve read-only": {
        "serve-read-only": "read_only:READ_ONLY",
        "verify-read-only": "proofs:READ_ONLY_PROOFS",
        "forward-acknowledgments": "acknowledgments",
    },
    "Keep clusters equal": {
        "export": "plans",
        "reconcile": "reconciliation:RECONCILIATION",
        "sync-metadata": "metadata",
    },
    "Move applications": {
        "clients": "clients",
        "move-clients": "client_moves:MOVE",
        "return-clients": "client_moves:RETURN",
        "fail-over": "failover:FAILOVER",
        "late-messages": "failover",
    },
    "Records": {"runs": "records", "evidence": "records"},
    "Install": {"airflow": "airflow"},
}
"""Panel of the help → command → its module in `cli/commands/`, or its procedure in `procedures/`."""
MODULES = {name: module for commands in GROUPS.values() for name, module in commands.items()}
_PANELS = {name: panel for panel, commands in GROUPS.items() for name in commands}
_OF_OTHER_PACKAGES = "On this machine"
SECTIONS = ("What", "When", "Safety", "How", "Clients", "At the end", "More", "Output")
"""The groups of options in the help of a command, in their order."""
ENTRY_POINTS = "pulsar_fleet.commands"
"""The group of entry points by which another package adds commands, such as the sandbox."""


class Commands(TyperGroup):
    """The commands by name; the modules of one are imported when it is called, since those of all take a second."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 typer gives it
        """Every name, in the order of the help; of another package's commands those that can be imported."""
        return list(all_commands())

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """As typer does it, which looks for a name like the wrong one among the commands that are imported already."""
        if self.get_command(ctx, args[0]) is None:
            self.commands = all_commands()
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:  # noqa: ARG002 typer gives it
        """The command of this name, None if there is none or its package lacks a library.

        The sandbox's commands need the extra `[sandbox]`.
        """
        return _find(cmd_name)


def all_commands() -> dict[str, Command]:
    """Every command by its name, in the order of the help; imports them all."""
    names = [*MODULES, *sorted(_of_other_packages())]
    return {name: command for name in names if (command := _find(name))}


@cache
def _find(name: str) -> Command | None:
    if name in MODULES:
        module, _, procedure = MODULES[name].partition(":")
        if procedure:
            from pulsar_fleet.cli.procedure import command_of

            own = import_module(f"pulsar_fleet.procedures.{module}")
            return _command(name, command_of(getattr(own, procedure)))
        return _command(name, getattr(import_module(f"{__name__}.commands.{module}"), name.replace("-", "_")))
    if entry_point := _of_other_packages().get(name):
        try:
            return _command(name, entry_point.load())
        except ModuleNotFoundError:
            return None
    return None


def _of_other_packages() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=ENTRY_POINTS)}


def _command(name: str, loaded: object) -> Command:
    """The click command of a function or a group, in the panel of the help that it belongs to."""
    from pulsar_fleet.cli.options import add_output_option

    command = _click(name, loaded)
    add_output_option(command)
    # The attribute by which typer's help puts a command into a panel.
    command.rich_help_panel = _PANELS.get(name, _OF_OTHER_PACKAGES)  # type: ignore[attr-defined]
    return command


def _click(name: str, loaded: object) -> Command:
    """What typer makes of a function or an application."""
    if isinstance(loaded, typer.Typer):
        group = typer.main.get_group(loaded)
        group.name = name
        return group
    # In a table of 80 columns the names of options would be cut.
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=GroupedCommand)(loaded)  # type: ignore[type-var]
    return typer.main.get_command(alone)


_OF_EVERY_COMMAND = {
    **dict.fromkeys(("dry_run", "waivers", "allow_changes", "resume", "yes"), "Safety"),
    **dict.fromkeys(("as_json", "help"), "Output"),
}


class GroupedCommand(TyperCommand):
    """A command whose help has its options in groups, where its settings have them, the first ones first."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write a section for each group."""
        params = self.get_params(ctx)
        grouped = any(_group_of(param) for param in params)
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in params:
            group = (_group_of(param) or _OF_EVERY_COMMAND.get(param.name or "", "More")) if grouped else "Options"
            if record := param.get_help_record(ctx):
                where = "Arguments" if param.param_type_name == "argument" else group
                sections.setdefault(where, []).append(record)
        first = ["Arguments", *SECTIONS]
        for name in sorted(sections, key=lambda name: first.index(name) if name in first else len(first)):
            with formatter.section(name):
                formatter.write_dl(sections[name])


def _group_of(param: Parameter) -> str:
    return getattr(param, "rich_help_panel", None) or ""


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"pulsar-fleet {version('pulsar-fleet')}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    # A traceback with the values of variables would show tokens.
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _describe(
    shows_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Runbooks for fleets of Apache Pulsar clusters."""
