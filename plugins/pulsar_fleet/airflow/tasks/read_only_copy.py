"""What the tasks of `serve_read_only` do where another cluster serves the readers: replication in one direction.

Functions, not tasks: the tasks in `read_only` call them. They put two procedures together, which know nothing of each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_fleet.airflow.tasks.replication import with_clusters

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.replication.clusters import Clusters
    from pulsar_fleet.report.document import Report

Result = TypeVar("Result")
STAGES = ("create_topics", "link_topics")


def read_request(params: dict[str, Any]) -> str:
    """Refuse an invalid configuration, and clusters that are one; returns their names."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest

    async def names(clusters: Clusters) -> str:
        return ", ".join(clusters.topology.clusters)

    return with_clusters(CopyRequest.of(params).replication(), names)


def plan_changes(params: dict[str, Any], run: Run) -> JsonObject:
    """Refuse where applications produce on the other cluster, then plan the copy; its text begins with its cost."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest, check_copy
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    request = CopyRequest.of(params)

    async def plan(clusters: Clusters) -> JsonObject:
        lines = await check_copy(clusters.admins[clusters.topology.members[0]], _target(clusters), request)
        planned = await steps.plan(clusters, Request.of(request.replication()), run)
        text = run.artefacts.read(planned.text).decode()
        shown = "\n".join([*(f"* {line}" for line in lines), "", text])
        return replace(planned, text=run.artefacts.write(run.id, "plan-of-copy.md", shown.encode())).to_json()

    return with_clusters(request.replication(), plan)


def create_topics(params: dict[str, Any], planned: JsonObject, run: Run) -> JsonObject:
    """Create what the other cluster lacks, then deny producing there; nothing is replicated yet."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest, deny_producing
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    request, stored = CopyRequest.of(params), StoredReplicationPlan.from_json(planned)

    async def create(clusters: Clusters) -> JsonObject:
        stage = await steps.apply_contents(clusters, stored, Request.of(request.replication()), run)
        denied = await deny_producing(_target(clusters), request, run)
        undo = (f"{run.id}/permissions",) if denied.changes else ()
        return replace(stage, changes=stage.changes + denied.changes, undo=(*undo, *stage.undo)).to_json()

    return with_clusters(request.replication(), create)


def link_topics(params: dict[str, Any], planned: JsonObject, run: Run) -> JsonObject:
    """Store the cluster lists of the topics, each with the name of the cluster that stores it."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    conf, stored = CopyRequest.of(params).replication(), StoredReplicationPlan.from_json(planned)
    return with_clusters(conf, lambda clusters: steps.start_links(clusters, stored, Request.of(conf), run)).to_json()


def confirm_links(
    params: dict[str, Any], planned: JsonObject, run: Run, progress: Callable[[int, int], None]
) -> JsonObject:
    """Fail if a link is not connected, or is connected and sends nothing."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    conf, stored = CopyRequest.of(params).replication(), StoredReplicationPlan.from_json(planned)
    return with_clusters(conf, lambda clusters: steps.confirm(clusters, stored, run, progress=progress)).to_json()


def report(run: Run, results: Mapping[str, Any], approval: JsonObject | None, failed: Mapping[str, str]) -> Report:
    """The report of the copy: findings, changes, links, and how to undo them."""
    from pulsar_fleet.replication.setup.apply import AppliedStage
    from pulsar_fleet.replication.setup.links import ConfirmedLinks
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan
    from pulsar_fleet.replication.stored_plan import read_findings
    from pulsar_fleet.report.replication.setup import replication_report

    stored = StoredReplicationPlan.from_json(results["plan_changes"])
    return replication_report(
        stored,
        run.artefacts.read(stored.text).decode(),
        read_findings(run.artefacts, stored),
        {name: AppliedStage.from_json(results[name]) for name in STAGES if results[name]},
        ConfirmedLinks.from_json(results["confirm_links"]) if results["confirm_links"] else None,
        approval,
        failed,
    )


def _target(clusters: Clusters) -> AdminClient:
    (target,) = clusters.topology.receive_only
    return clusters.admins[target]
