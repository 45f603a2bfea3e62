"""`pulsar-fleet replicate`: the procedure of the DAG with the same steps, settings and records."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster
from pulsar_fleet.cli.options import AsJson, Waivers, Yes, waiver_documents
from pulsar_fleet.cli.replication_run import ReplicationRun
from pulsar_fleet.cli.runs import new_run_id, recorded_run
from pulsar_fleet.cli.terminal import Terminal, require_consent, usage_errors
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.apply import PROCEDURE

_ID = "admin URL or Airflow connection id; repeat it for more."


def replicate(
    clusters: Annotated[
        list[str], typer.Argument(help="The clusters that replicate to each other: admin URLs or Airflow connections.")
    ],
    namespaces: Annotated[
        list[str] | None, typer.Option(help="acme/orders, acme or re:acme/.*; repeat it for more.")
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option(help="Instead: a topic, by a cluster list of its own; repeat it for more.")
    ] = None,
    receive_only: Annotated[list[str] | None, typer.Option(help=f"It receives and sends nothing: {_ID}")] = None,
    leaving: Annotated[list[str] | None, typer.Option(help=f"It leaves: {_ID}")] = None,
    history: Annotated[bool, typer.Option("--history", help="Also replicate what is stored already.")] = False,
    history_since: Annotated[
        str | None, typer.Option(help="Of that, only what was published since: 2026-11-21T08:00:00+00:00.")
    ] = None,
    deduplication: Annotated[bool, typer.Option("--deduplication", help="Turn deduplication on everywhere.")] = False,
    replicated_subscriptions: Annotated[
        bool, typer.Option("--replicated-subscriptions", help="Set the flag on all durable subscriptions.")
    ] = False,
    messages_per_second: Annotated[int, typer.Option(help="Rate limit of each replicator; 0: as it is.")] = 0,
    bytes_per_second: Annotated[int, typer.Option(help="Rate limit of each replicator; 0: as it is.")] = 0,
    delete_cluster_data: Annotated[
        bool, typer.Option("--delete-cluster-data", help="Delete the data of clusters that leave, where unused.")
    ] = False,
    drain_minutes: Annotated[int, typer.Option(help="How long ending links may take to send what they have.")] = 60,
    waivers: Waivers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the findings and every call; change nothing.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Replicate namespaces between clusters, add a cluster, or take one out. After Ctrl-C repeat the command."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        if not dry_run:
            require_consent("clusters", yes=yes)
        conf: JsonObject = {
            "clusters": list(clusters),
            "receive_only": list(receive_only or ()),
            "leaving": list(leaving or ()),
            "namespaces": list(namespaces or ()),
            "topics": list(topics or ()),
            "history": history,
            "history_since": history_since,
            "deduplication": deduplication,
            "replicated_subscriptions": replicated_subscriptions,
            "messages_per_second": messages_per_second,
            "bytes_per_second": bytes_per_second,
            "delete_cluster_data": delete_cluster_data,
            "drain_minutes": drain_minutes,
            "waivers": waiver_documents(waivers),
            "dry_run": dry_run,
        }
        with usage_errors():
            request = Request.of(conf)
        groups = [
            [named_cluster(name, Side.SOURCE) for name in group]
            for group in (request.members, request.receive_only, request.leaving)
        ]
        with recorded_run(new_run_id("replicate"), PROCEDURE, conf) as run:
            session = ReplicationRun(terminal, run, request, yes=yes, drain_seconds=drain_minutes * 60)
            document, state = session.execute(groups, dry_run=dry_run)
    terminal.finish(document, state)
