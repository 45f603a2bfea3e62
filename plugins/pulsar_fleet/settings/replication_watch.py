"""The form and the schedule of `watch_replication`."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import selection

_SETTINGS = {
    "clusters": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Clusters",
        description="Connection ids of at least two clusters. Without one the run is skipped.",
    ),
    "selection": selection(),
    "receive_only": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Receive-only clusters",
        description="Clusters, by their own names, that are meant only to receive: a list on the other side only is "
        "then no warning.",
    ),
    "remedies": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Remedies",
        option="remedy",
        description="Ids of diagnoses whose calls the run sends. Only calls that can lose nothing are allowed. Empty: "
        "nothing is changed.",
    ),
    "behind_seconds": setting(
        60,
        type="number",
        minimum=1,
        title="Behind, seconds",
        description="A replicator that needs longer for its backlog is behind.",
    ),
    "connect_seconds": setting(
        75,
        type="number",
        minimum=0,
        maximum=600,
        title="Time to connect, seconds",
        description="For how long a replicator that does not work without a known cause is read again: brokers try to "
        "connect at most once a minute.",
    ),
    "fail_on_fault": setting(
        True,
        type="boolean",
        title="Fail on a fault",
        only_in_form=True,
        description="Fail the run if a replicator does not work, or a cluster does not answer.",
    ),
}

WATCH_REPLICATION = Scheduled("PULSAR_FLEET_WATCH_REPLICATION", every="*/10 * * * *", declared=_SETTINGS)
