"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
Subscriptions = Annotated[
    bool, typer.Option("--subscriptions/--no-subscriptions", help="Create the source's subscriptions too.")
]
Topics = Annotated[bool, typer.Option("--topics/--no-topics", help="Include the policies of topics.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(help="Id of an irreversible or destructive change to allow; repeat it for more."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. Required without a terminal.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
