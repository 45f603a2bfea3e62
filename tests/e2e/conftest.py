"""A real Airflow with its scheduler, triggerer and API server, connected to the real clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_sandbox.demo.stack import AirflowStack

DAGS = ("onboard_cluster", "migrate_namespaces", "verify_clusters")


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, blue: ClusterConnection, green: ClusterConnection
) -> Iterator[AirflowStack]:
    """Airflow as `make demo` starts it, with connections to blue and green; it ends with the file that uses it."""
    before = dict(os.environ)
    # A database of its own, not the one of the DAGs that run in this process.
    del os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    stack = AirflowStack.launch(tmp_path_factory.mktemp("airflow"))
    try:
        stack.wait_ready(*DAGS)
        for cluster in (blue, green):
            stack.put_connection(
                f"pulsar_{cluster.name}",
                conn_type="pulsar",
                host=cluster.admin_url,
                extra=f'{{"service_url": "{cluster.service_url}"}}',
            )
        yield stack
    finally:
        stack.stop()
        os.environ.clear()
        os.environ.update(before)
