"""Find what drifted apart: compared here where clusters are small, in Spark where they are not."""

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
    """Look at all clusters, merge, and plan what each would have to write; no cluster is changed.

    Above `compare_with_spark_above` namespaces a Spark job says first which resources are not alike everywhere, and
    only these are merged.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(request="", result="", **kwargs)

    def execute(self, context: Context) -> Any:
        """Look, compare, plan."""
        from pulsar_fleet.policy_sync.merge import divergence
        from pulsar_fleet.policy_sync.reconcile import steps
        from pulsar_fleet.policy_sync.reconcile.request import Request

        params, run = dict(context["params"]), current_run(context)
        most = params["compare_with_spark_above"]

        def find_apart(looks: Mapping[str, Snapshot], fleet: Collection[str]) -> frozenset[Item] | None:
            namespaces = max(len(one.namespaces) for one in looks.values())
            if most is None or namespaces <= most:
                return None
            self.log.info("%s namespaces are compared in Spark", f"{namespaces:,}")
            self.request, self.result = divergence.hand_over(run, looks, fleet)
            super(FindDriftOperator, self).execute(context)
            return divergence.take_over(run, self.result)

        return asyncio.run(steps.find_drift(clusters_of(params), Request.of(params), run, find_apart))
