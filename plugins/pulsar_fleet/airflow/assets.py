"""The assets that say that policies of a cluster were changed, for DAGs that are scheduled on them."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Asset, AssetAlias, get_current_context

CHANGED = AssetAlias("pulsar-policies-changed")
"""Every cluster on which a run wrote policies; a DAG can be scheduled on all of them, or on one cluster's asset."""


def policies_of(cluster: str) -> Asset:
    """The policies of one cluster, by its own name."""
    return Asset(name=f"pulsar-policies/{cluster}", uri=f"x-pulsar-policies://{cluster}", group="pulsar-policies")


def announce(clusters: Iterable[str], run_id: str) -> None:
    """Emit an event for each of these clusters; the task that runs must have `CHANGED` among its outlets."""
    for cluster in clusters:
        get_current_context()["outlet_events"][CHANGED].add(policies_of(cluster), extra={"run": run_id})
