"""The form and the schedule of `watch_overrides`."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting

_SETTINGS = {
    "clusters": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Clusters",
        description="Connection ids of the clusters to watch. Without one the run is skipped.",
    ),
    "retired": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Retired clusters",
        description="Connection ids of clusters whose namespaces have all been migrated. A namespace there that is not "
        "migrated, such as one that was created since, fails the run.",
    ),
    "restore": setting(
        True,
        type="boolean",
        title="Restore",
        description="Restore what a dead run left. Replication that it began goes on.",
    ),
}

WATCH = Scheduled("PULSAR_FLEET_WATCH", every="*/10 * * * *", declared=_SETTINGS)
