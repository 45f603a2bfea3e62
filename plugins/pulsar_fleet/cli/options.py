"""Options and arguments that several commands share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from pulsar_fleet.cli.terminal import UsageError
from pulsar_fleet.cluster.json import Json

SOURCE_HELP = "The cluster to copy: admin URL or Airflow connection id."
TARGET_HELP = "The cluster that receives the copy: admin URL or Airflow connection id."
CLUSTER_HELP = "Admin URL or Airflow connection id; it uses the credentials of the source."

Source = Annotated[str, typer.Argument(help=SOURCE_HELP)]
Target = Annotated[str, typer.Argument(help=TARGET_HELP)]
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
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def waiver_documents(texts: Sequence[str] | None) -> list[Json]:
    """The waivers of a command line, not validated yet; `UsageError` for what is not JSON."""
    return [json_document(text) for text in texts or ()]


def json_document(text: str) -> Json:
    """What an option has as JSON; `UsageError` for what is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not valid JSON: {error}.") from error
