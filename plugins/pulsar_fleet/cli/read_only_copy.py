"""`pulsar-fleet serve-read-only --other-cluster`: replication in one direction, and nobody produces on the copy."""

from __future__ import annotations

from pulsar_fleet.cli.clusters import named_cluster
from pulsar_fleet.cli.replication_run import ReplicationRun
from pulsar_fleet.cli.runs import recorded_run
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.read_only.other_cluster import CopyRequest, check_copy, deny_producing
from pulsar_fleet.read_only.recorded_calls import PROCEDURE
from pulsar_fleet.replication.clusters import Clusters
from pulsar_fleet.replication.request import Request


def serve_copy(
    terminal: Terminal, request: CopyRequest, conf: JsonObject, *, yes: bool, dry_run: bool
) -> tuple[JsonObject, ExitState]:
    """Run all steps; the result and the exit state. After an interruption the same command does what is left."""
    groups = [
        [named_cluster(request.source, Side.SOURCE)],
        [named_cluster(request.target, Side.TARGET)],
        [],
    ]
    with recorded_run(terminal, "serve-read-only", PROCEDURE, conf) as run:

        async def check(clusters: Clusters) -> list[str]:
            return await check_copy(clusters.admins[clusters.topology.members[0]], _target(clusters), request)

        async def deny(clusters: Clusters) -> tuple[str, ...]:
            denied = await deny_producing(_target(clusters), request, run)
            return (f"{run.id}/permissions",) if denied.changes else ()

        session = ReplicationRun(
            terminal, run, Request.of(request.replication()), yes=yes, before_plan=check, after_contents=deny
        )
        return session.execute(groups, dry_run=dry_run)


def _target(clusters: Clusters) -> AdminClient:
    (target,) = clusters.topology.receive_only
    return clusters.admins[target]
