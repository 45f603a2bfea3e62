"""Validate and read the configuration of a DAG run. Airflow itself ignores unknown keys without a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
from pulsar_fleet.cluster.json import JsonObject

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.model import Moves
    from pulsar_fleet.migration.preflight.view import DagParsing
    from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
    from pulsar_fleet.migration.procedure import Procedure

Result = TypeVar("Result")


def clusters_of(params: dict[str, Any]) -> list[ClusterConnection]:
    """All clusters of the form."""
    return [cluster_connection(name) for name in params["clusters"]]


def with_cluster(params: dict[str, Any], work: Callable[[AdminClient], Awaitable[Result]]) -> Result:
    """Call a step with the cluster of the form."""
    from pulsar_fleet.cluster.admin.client import AdminClient

    async def run() -> Result:
        async with AdminClient(cluster_connection(params["cluster"])) as admin:
            return await work(admin)

    return asyncio.run(run())


def inputs_of(context: Context) -> tuple[dict[str, Any], Sides, Run, DagParsing]:
    """What a `Migration` or a `Failback` is made of: settings, clusters, records, Airflow's settings."""
    from pulsar_fleet.airflow.run import current_run
    from pulsar_fleet.migration.clusters import Sides

    params = context["params"]
    sides = Sides(cluster_connection(params["blue"]), cluster_connection(params["green"]))
    return dict(params), sides, current_run(context), dag_parsing()


def dag_parsing() -> DagParsing:
    """Airflow's settings for the parsing of DAG files, as this process has them."""
    from airflow.providers.common.compat.sdk import conf

    from pulsar_fleet.migration.preflight.view import DagParsing

    return DagParsing(
        timeout=conf.getint("dag_processor", "dag_file_processor_timeout"),
        interval=conf.getint("dag_processor", "min_file_process_interval"),
        stale_after=conf.getint("dag_processor", "stale_dag_threshold"),
    )


def procedure_of(context: Context) -> Procedure:
    """The migration or the failback of a DAG run."""
    from pulsar_fleet.migration.procedure import PROCEDURES

    return PROCEDURES[context["dag"].dag_id].of(*inputs_of(context))


def moves_of(reference: JsonObject) -> Moves:
    """The namespaces of the migration, read from the artefact."""
    from pulsar_fleet.ledger.artefacts import Artefacts, Reference
    from pulsar_fleet.migration.model import Moves

    return Moves.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


def original_settings_of(reference: JsonObject) -> OriginalSettings:
    """The cluster's settings before the freeze, read from the artefact."""
    from pulsar_fleet.ledger.artefacts import Artefacts, Reference
    from pulsar_fleet.migration.prepare.original_settings import OriginalSettings

    return OriginalSettings.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


async def require_two_clusters(source: str, target: str, namespaces: Sequence[NamespaceName]) -> JsonObject:
    """Read the names of both clusters; refuse two connections to one cluster, and namespaces missing on the source."""
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import refuse_same_cluster
    from pulsar_fleet.snapshot.tenants import require_namespaces

    connections = cluster_connection(source), cluster_connection(target)
    async with AdminClient(connections[0]) as source_admin, AdminClient(connections[1]) as target_admin:
        names = (await source_admin.cluster_name(), await target_admin.cluster_name())
        refuse_same_cluster(source, target, names)
        await require_namespaces(source_admin, namespaces)
    return {"source": names[0], "target": names[1]}
