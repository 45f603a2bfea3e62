"""Verify that a target holds what a source's snapshot holds: small snapshots in the task, large ones in Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from pulsar_fleet.airflow.assets import COPIED, emit_copied
from pulsar_fleet.airflow.operators.spark import CompareSnapshotsOperator
from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.cluster.errors import Conflict

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.planning.comparison import Comparison
    from pulsar_fleet.verification.snapshots.compare import CompareRequest

SPARK_FROM_ROWS = 2_000_000
"""Rows of the source. Fewer rows are compared in the task before Spark has started, unless many rows differ."""


class VerifySnapshotOperator(CompareSnapshotsOperator):
    """Read the target again, compare it with the source's stored snapshot, and fail if changes remain to plan.

    :param source: result of the task that took the source's snapshot (templated).
    :param target: connection id of the cluster that holds the copy (templated).
    :param selection: names of tenants and namespaces (templated).
    """

    template_fields: Sequence[str] = (*CompareSnapshotsOperator.template_fields, "source", "target", "selection")

    def __init__(self, *, source: Any, target: str, selection: Any, **kwargs: Any) -> None:
        super().__init__(request="", result="", outlets=[COPIED], **kwargs)
        self.source: JsonObject = source
        self.target = target
        self.selection: Sequence[str] = selection

    def execute(self, context: Context) -> Any:
        """Read, compare, fail on a difference; otherwise an asset event tells of each namespace."""
        from pulsar_fleet.snapshot.store.reader import StoredSnapshot
        from pulsar_fleet.verification.snapshots.compare import EqualityResult

        request = self._read_back(context)
        comparison = self._compare(context, request)
        result = EqualityResult.of(request, comparison)
        if not comparison.equal:
            raise Conflict(
                f"The target still differs. Trigger the DAG again to see and apply the changes.\n{result.text}"
            )
        run = current_run(context)
        source = StoredSnapshot.open(run.artefacts, request.source)
        emit_copied(run, source, StoredSnapshot.open(run.artefacts, request.target).head.cluster, result)
        return result.to_json()

    def _read_back(self, context: Context) -> CompareRequest:
        from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
        from pulsar_fleet.cluster.selection import Selection
        from pulsar_fleet.ledger.artefacts import Reference
        from pulsar_fleet.verification.snapshots.compare import read_back

        run = current_run(context)
        return asyncio.run(
            read_back(
                Reference.from_json(self.source["reference"]),
                cluster_connection(self.target),
                Selection.parse(self.selection),
                run.artefacts,
                run.id,
                subscriptions=context["params"]["subscriptions"],
            )
        )

    def _compare(self, context: Context, request: CompareRequest) -> Comparison:
        from pulsar_fleet.verification.snapshots.compare import (
            compare_in_process,
            compare_snapshots,
            read_result,
            store_request,
        )

        mode, rows = context["params"]["compare_in_spark"], sum(self.source["counts"].values())
        self.request, self.result = store_request(current_run(context), request)
        if mode == "never" or (mode == "auto" and rows < SPARK_FROM_ROWS):
            self.log.info("%s rows are compared in this task, without Spark", f"{rows:,}")
            return compare_snapshots(request, compare_in_process)
        super().execute(context)
        return read_result(self.result)
