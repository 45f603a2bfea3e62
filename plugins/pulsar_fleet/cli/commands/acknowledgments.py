"""`pulsar-fleet forward-acknowledgments`: carry acknowledgments on shadow topics to their owners, until stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import CLUSTER_HELP, Yes
from pulsar_fleet.cli.runs import recorded_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import ExitState, Terminal, require_consent, usage_errors
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.read_only.forwarding.forwarder import PROCEDURE, forward_once, forward_until_stopped
from pulsar_fleet.read_only.forwarding.request import POLL_SECONDS, Request
from pulsar_fleet.read_only.forwarding.results import ForwardingResult
from pulsar_fleet.settings.read_only import FORWARD_ACKNOWLEDGMENTS

_PATIENCE_SECONDS = 2.0
"""The loop tries again by itself, and reports an unreachable cluster sooner than a run."""


@with_settings(
    FORWARD_ACKNOWLEDGMENTS.declared,
    arguments={"cluster": CLUSTER_HELP},
    without=("namespaces",),
    defaults={"poll_seconds": POLL_SECONDS},
)
def forward_acknowledgments(
    terminal: Terminal,
    conf: JsonObject,
    namespace: Annotated[str, typer.Option(help="Where the shadow topics are, tenant/readers.")],
    once: Annotated[bool, typer.Option("--once", help="Make one pass and end.")] = False,
    yes: Yes = False,
) -> None:
    """Carry acknowledgments on shadow topics to the owner's subscriptions of the same names. Ctrl-C ends it safely."""
    conf["namespace"], cluster = namespace, conf["cluster"]
    with usage_errors():
        request = Request.of(conf)
    require_consent("cluster", yes=yes)
    if not yes:
        terminal.require_answer(f"Acknowledge on the sources of {namespace} on {cluster}?", "forwarding")
    connection = run_interruptibly(reach(named_cluster(cluster, Side.SOURCE))).connection
    with recorded_run(terminal, "forward-acknowledgments", PROCEDURE, conf) as run:
        result = run_interruptibly((_once if once else _follow)(terminal, connection, request))
    if result is None:
        terminal.finish({"run": run.id}, ExitState.PARTLY)
    lines = [*(f"  ! {line}" for line in result.faults()), *(f"  {line}" for line in result.rest())]
    terminal.say("\n".join([result.headline(), *lines]))
    terminal.finish({"run": run.id, **result.to_json()}, ExitState.DONE if result.complete else ExitState.PARTLY)


async def _once(terminal: Terminal, connection: ClusterConnection, request: Request) -> ForwardingResult | None:
    with terminal.status(f"Forwarding acknowledgments of {request.namespace}"):
        async with AdminClient(connection) as admin:
            return await forward_once(admin, request)


async def _follow(terminal: Terminal, connection: ClusterConnection, request: Request) -> ForwardingResult | None:
    # A service logs line by line.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pulsar_fleet").setLevel(logging.INFO)
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with AdminClient(connection, retry_seconds=_PATIENCE_SECONDS) as admin:
        terminal.note(f"Forwarding acknowledgments of {request.namespace} on {connection.name}; Ctrl-C ends it")
        return await forward_until_stopped(admin, request, stopped=stopped, say=terminal.note)
