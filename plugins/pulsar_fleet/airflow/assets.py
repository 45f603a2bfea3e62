"""Airflow assets for changed policies and replicators, so that other DAGs can be scheduled on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk import Asset, AssetAlias, get_current_context

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.replication.doctor.changes import StateChange

MOST_CHANGES = 100
"""An event has so many of them as texts, and the number of all."""

POLICIES_CHANGED = AssetAlias("pulsar-policies-changed")
"""All clusters whose policies a run wrote. A DAG can be scheduled on this alias, or on the asset of one cluster."""
REPLICATION_CHANGED = AssetAlias("pulsar-replication-changed")
"""All clusters whose replicators changed their state. A DAG can be scheduled on it, or on the asset of one cluster."""


def policies_of(cluster: str) -> Asset:
    """The asset for the policies of a cluster, by the cluster's own name."""
    return Asset(name=f"pulsar-policies/{cluster}", uri=f"x-pulsar-policies://{cluster}", group="pulsar-policies")


def emit_policies_changed(clusters: Iterable[str], run_id: str) -> None:
    """Emit an asset event for each cluster. The running task must have `POLICIES_CHANGED` among its outlets."""
    for cluster in clusters:
        get_current_context()["outlet_events"][POLICIES_CHANGED].add(policies_of(cluster), extra={"run": run_id})


def replication_of(cluster: str) -> Asset:
    """The asset for the replicators that send from a cluster, by the cluster's own name."""
    return Asset(
        name=f"pulsar-replication/{cluster}", uri=f"x-pulsar-replication://{cluster}", group="pulsar-replication"
    )


def emit_replication_changed(changes: Iterable[StateChange], run_id: str) -> None:
    """Emit an asset event for each source, with the changes as texts.

    The running task must have `REPLICATION_CHANGED` among its outlets.
    """
    texts: dict[str, list[str]] = {}
    for change in changes:
        texts.setdefault(change.source, []).append(change.text())
    for cluster, lines in texts.items():
        extra: JsonObject = {"run": run_id, "changes": lines[:MOST_CHANGES], "number": len(lines)}
        get_current_context()["outlet_events"][REPLICATION_CHANGED].add(replication_of(cluster), extra=extra)
