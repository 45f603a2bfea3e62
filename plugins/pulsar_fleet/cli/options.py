"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pulsar_fleet.cli.terminal import usage_errors
from pulsar_fleet.cluster.document import parse_json
from pulsar_fleet.cluster.json import Json

if TYPE_CHECKING:
    from typer._click import Command, Context, Parameter

CLUSTER_HELP = "Admin URL or Airflow connection id; it uses the credentials of the source."

Source = Annotated[str, typer.Argument(help="The cluster to copy: admin URL or Airflow connection id.")]
Target = Annotated[str, typer.Argument(help="The cluster that receives the copy: admin URL or Airflow connection id.")]
Cluster = Annotated[str, typer.Argument(help=CLUSTER_HELP)]
Select = Annotated[
    list[str] | None,
    typer.Option(help="A tenant (acme) or namespace (acme/orders); repeat it for more. Default: all."),
]
Waivers = Annotated[
    list[str] | None,
    typer.Option("--waiver", help='A blocker to accept: {"id": …, "resource": …, "who": …, "why": …}; repeatable.'),
]
Subscriptions = Annotated[
    bool, typer.Option("--subscriptions/--no-subscriptions", help="Create the source's subscriptions too.")
]
Topics = Annotated[bool, typer.Option("--topics/--no-topics", help="Include the policies of topics.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(help="Id of an irreversible or destructive change, or of a batch of deletions; repeat it for more."),
]
Resume = Annotated[str | None, typer.Option(metavar="RUN", help="Continue this run, with its recorded settings.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Required without a terminal.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Write one JSON document to stdout, with the next commands under `next`.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed; change nothing.")]
_OUTPUT = "pulsar_fleet.output"
"""Where the context of a command keeps the value of --output."""


def waiver_documents(texts: Sequence[str] | None) -> list[Json]:
    """The waivers of a command line, not validated yet; `UsageError` for what is not JSON."""
    return [json_document(text) for text in texts or ()]


def json_document(text: str) -> Json:
    """What an option has as JSON; `UsageError` for what is not JSON."""
    with usage_errors():
        return parse_json(text, repr(text))


def add_output_option(command: Command) -> None:
    """Give each command below, that has --json, the option --output too, its name in an earlier release."""
    for child in getattr(command, "commands", {}).values():
        add_output_option(child)
    for parameter in command.params:
        if parameter.name == "as_json":
            parameter.callback = _with_output
            command.params.append(_output_option())
            return


class Output(StrEnum):
    """How a command writes its result."""

    TABLE = "table"
    JSON = "json"


def _output_option() -> Parameter:
    """As typer makes it of a function."""
    alone = typer.Typer(add_completion=False)
    alone.command()(_declare_output)
    return next(parameter for parameter in typer.main.get_command(alone).params if parameter.name == "output")


def _keep_output(context: typer.Context, value: Output) -> Output:
    context.meta[_OUTPUT] = value
    return value


def _declare_output(
    output: Annotated[
        Output,
        typer.Option(
            # Before --json, whose value it replaces.
            is_eager=True,
            expose_value=False,
            callback=_keep_output,
            hidden=True,
        ),
    ] = Output.TABLE,
) -> None:
    """Never called."""


def _with_output(context: Context, _: Parameter, value: bool) -> bool:
    return value or context.meta.get(_OUTPUT) is Output.JSON
