"""Validate and read the configuration of a DAG run. Airflow itself ignores unknown keys without a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
from pulsar_fleet.airflow.run import run_until_limit

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.migration.preflight.view import DagParsing

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

    return run_until_limit(get_current_context()["task"], run())


def dag_parsing() -> DagParsing:
    """Airflow's settings for the parsing of DAG files, as this process has them."""
    from airflow.providers.common.compat.sdk import conf

    from pulsar_fleet.migration.preflight.view import DagParsing

    return DagParsing(
        timeout=conf.getint("dag_processor", "dag_file_processor_timeout"),
        interval=conf.getint("dag_processor", "min_file_process_interval"),
        stale_after=conf.getint("dag_processor", "stale_dag_threshold"),
    )
