"""The settings of `verify_read_only`."""

from __future__ import annotations

from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, connection, read_limit

SETTINGS = {
    "cluster": connection("pulsar_blue", "Cluster", "Connection of the cluster that serves the topics."),
    "namespace": setting(
        "",
        type="string",
        pattern=rf"^$|{NAMESPACE_PATTERN}",
        title="Read-only namespace",
        description="A namespace that `serve_read_only` has made; all its topics are compared with their sources.",
    ),
    "max_bytes_per_second": read_limit(),
}
