"""The settings of `verify_replication`; a scheduled run uses the defaults, which an environment variable replaces."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import read_limit, selection

_SETTINGS = {
    "clusters": setting(
        [],
        is_example=True,
        type="array",
        items={"type": "string", "minLength": 1},
        title="Clusters",
        description="Connections of the clusters between which namespaces are replicated. Empty: nothing is verified.",
    ),
    "selection": selection(),
    "max_proof_age_hours": setting(
        24,
        type="number",
        exclusiveMinimum=0,
        title="Age of a proof, hours",
        description="Fail the run if the newest proof of a replicated namespace is older.",
    ),
    "max_bytes_per_second": read_limit(),
    "namespaces_per_job": setting(
        100,
        type="integer",
        minimum=1,
        title="Namespaces per job",
        description="Number of namespaces per Spark job; a job compares one direction between two clusters.",
    ),
}

VERIFY = Scheduled("PULSAR_FLEET_VERIFY_REPLICATION", every="0 */6 * * *", declared=_SETTINGS)
