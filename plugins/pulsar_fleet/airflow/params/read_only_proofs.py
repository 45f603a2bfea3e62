"""The settings of `verify_read_only`."""

from __future__ import annotations

from pulsar_fleet.airflow.params.common import NAMESPACE_PATTERN, connection_param, read_limit_param, setting

PARAMS = {
    "cluster": connection_param("pulsar_blue", "Cluster", "Connection of the cluster that serves the topics."),
    "namespace": setting(
        "",
        type="string",
        pattern=rf"^$|{NAMESPACE_PATTERN}",
        title="Read-only namespace",
        description="A namespace that `serve_read_only` has made; all its topics are compared with their sources.",
    ),
    "max_bytes_per_second": read_limit_param(),
}
