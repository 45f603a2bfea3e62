"""Airflow assets for changed policies, so that other DAGs can be scheduled on them."""

from __future__ import annotations

from collections.abc import Iterable

from airflow.sdk import Asset, AssetAlias, get_current_context

POLICIES_CHANGED = AssetAlias("pulsar-policies-changed")
"""All clusters whose policies a run wrote. A DAG can be scheduled on this alias, or on the asset of one cluster."""


def policies_of(cluster: str) -> Asset:
    """The asset for the policies of a cluster, by the cluster's own name."""
    return Asset(name=f"pulsar-policies/{cluster}", uri=f"x-pulsar-policies://{cluster}", group="pulsar-policies")


def emit_policies_changed(clusters: Iterable[str], run_id: str) -> None:
    """Emit an asset event for each cluster. The running task must have `POLICIES_CHANGED` among its outlets."""
    for cluster in clusters:
        get_current_context()["outlet_events"][POLICIES_CHANGED].add(policies_of(cluster), extra={"run": run_id})
