"""The form and the schedule of `watch_read_only`."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, connection

_SETTINGS = {
    "cluster": connection("pulsar_blue", "Cluster", "Connection of the cluster that serves the topics."),
    "namespaces": setting(
        [],
        type="array",
        items={"type": "string", "pattern": NAMESPACE_PATTERN},
        title="Read-only namespaces",
        description="The namespaces that `serve_read_only` has made. Without one the run is skipped.",
    ),
    "lag_minutes": setting(
        60,
        type="integer",
        minimum=1,
        title="Allowed lag, minutes",
        description="A reader that is further behind fails the run.",
    ),
    "follow": setting(
        True,
        type="boolean",
        title="Follow the sources",
        description="Add partitions, schemas, permissions and links that are missing, and restore a lost retention. "
        "Without it the run changes nothing.",
    ),
}

WATCH_READ_ONLY = Scheduled("PULSAR_FLEET_WATCH_READ_ONLY", every="* * * * *", declared=_SETTINGS)
