"""A real Airflow with its scheduler, triggerer and API server, connected to the real clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_sandbox.demo.stack import AirflowStack

DAGS = ("onboard_cluster", "migrate_namespaces", "fail_back_namespaces", "verify_clusters", "watch_overrides")


@pytest.fixture(scope="module")
def airflow_with(
    tmp_path_factory: pytest.TempPathFactory, blue: ClusterConnection, green: ClusterConnection
) -> Callable[..., AbstractContextManager[AirflowStack]]:
    """Airflow as `make demo` starts it, with settings of its own and connections to blue and green.

    The URLs of blue's and green's admin API can be given, and the programs of another Airflow.
    """

    @contextmanager
    def start(
        settings: Mapping[str, str] | None = None, *, programs: Path | None = None, **urls: str
    ) -> Iterator[AirflowStack]:
        before = dict(os.environ)
        # A database of its own, not the one of the DAGs that run in this process.
        os.environ.pop("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", None)
        stack = AirflowStack.launch(tmp_path_factory.mktemp("airflow"), settings=settings, programs=programs)
        try:
            stack.wait_ready(*DAGS)
            for cluster in (blue, green):
                stack.put_connection(
                    f"pulsar_{cluster.name}",
                    conn_type="pulsar",
                    host=urls.get(cluster.name, cluster.admin_url),
                    extra=f'{{"service_url": "{cluster.service_url}"}}',
                )
            yield stack
        finally:
            stack.stop()
            os.environ.clear()
            os.environ.update(before)

    return start


@pytest.fixture(scope="module")
def airflow(airflow_with: Callable[..., AbstractContextManager[AirflowStack]]) -> Iterator[AirflowStack]:
    """One Airflow for a file."""
    with airflow_with() as stack:
        yield stack
