"""Find drift between clusters: small clusters are compared in the task, large clusters in Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.operators.spark import CompareSnapshotsOperator
from pulsar_fleet.airflow.run import current_run

if TYPE_CHECKING:
    from pulsar_fleet.policy_sync.merge.view import Item
    from pulsar_fleet.snapshot.model import Snapshot


class FindDriftOperator(CompareSnapshotsOperator):
    """Scan all clusters, merge, and plan the writes for each cluster; no cluster is changed.

    Above `compare_with_spark_above` namespaces a Spark job first finds the divergent resources, and only these are
    merged.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(request="", result="", **kwargs)

    def execute(self, context: Context) -> Any:
        """Scan, compare, plan."""
        from pulsar_fleet.policy_sync.merge import divergence
        from pulsar_fleet.policy_sync.reconcile import steps
        from pulsar_fleet.policy_sync.reconcile.request import Request

        params, run = dict(context["params"]), current_run(context)
        threshold = params["compare_with_spark_above"]

        def find_divergent(snapshots: Mapping[str, Snapshot], fleet: Collection[str]) -> frozenset[Item] | None:
            namespaces = max(len(snapshot.namespaces) for snapshot in snapshots.values())
            if threshold is None or namespaces <= threshold:
                return None
            self.log.info("%s namespaces are compared in Spark", f"{namespaces:,}")
            self.request, self.result = divergence.store_request(run, snapshots, fleet)
            super(FindDriftOperator, self).execute(context)
            return divergence.read_result(run, self.result)

        return asyncio.run(steps.find_drift(clusters_of(params), Request.of(params), run, find_divergent)).to_json()
