"""The state of the fleet as metrics, in the text format of Prometheus: counts and times, no name of a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pulsar_fleet.fleet.records import FleetState, OldestRecords
from pulsar_fleet.ledger.rows import utc

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "pulsar_fleet_"


def metrics_text(state: FleetState, oldest: OldestRecords, moved: Mapping[str, int]) -> bytes:
    """Every metric. Times are seconds since 1970, so that `time() - metric` is an age at any moment.

    :param moved: state → number of groups of applications that were moved and can return.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fleet(state, oldest, moved))
    return generate_latest(registry)


class _Fleet(Collector):
    def __init__(self, state: FleetState, oldest: OldestRecords, moved: Mapping[str, int]) -> None:
        self._state = state
        self._oldest = oldest
        self._moved = moved

    def collect(self) -> Iterator[Metric]:
        yield from self._runs()
        yield from self._namespaces()
        yield from self._clusters()
        conflicts = GaugeMetricFamily(f"{_PREFIX}open_conflicts", "Conflicts on record that nobody has settled.")
        conflicts.add_metric((), self._state.open_conflicts)
        yield conflicts
        groups = GaugeMetricFamily(
            f"{_PREFIX}moved_groups",
            "Groups of applications that were moved and can return, by the state of the replication back.",
            labels=("state",),
        )
        for state, count in sorted(self._moved.items()):
            groups.add_metric((state,), count)
        yield groups

    def _runs(self) -> Iterator[Metric]:
        failed = GaugeMetricFamily(
            f"{_PREFIX}last_run_failed", "1 if the last run of a procedure failed.", labels=("procedure",)
        )
        began = GaugeMetricFamily(
            f"{_PREFIX}last_run_timestamp_seconds", "When the last run of a procedure began.", labels=("procedure",)
        )
        for procedure, run in sorted(self._state.last_runs.items()):
            failed.add_metric((procedure,), float(run.state == "failed"))
            began.add_metric((procedure,), utc(run.started_at).timestamp())
        yield failed
        yield began

    def _namespaces(self) -> Iterator[Metric]:
        phases = GaugeMetricFamily(
            f"{_PREFIX}namespaces", "Namespaces by the newest phase of their migration.", labels=("phase",)
        )
        since = GaugeMetricFamily(
            f"{_PREFIX}oldest_phase_timestamp_seconds",
            "When the namespace that is in a phase for longest entered it.",
            labels=("phase",),
        )
        for phase, count in sorted(Counter(row.phase for row in self._state.namespaces if row.phase).items()):
            phases.add_metric((phase,), count)
        for phase, at in sorted(self._oldest.phases.items()):
            since.add_metric((phase,), at.timestamp())
        proofs = GaugeMetricFamily(f"{_PREFIX}proofs", "Namespaces by their newest verdict.", labels=("verdict",))
        for verdict, count in sorted(Counter(row.verdict for row in self._state.namespaces if row.verdict).items()):
            proofs.add_metric((verdict,), count)
        oldest = GaugeMetricFamily(
            f"{_PREFIX}oldest_proof_timestamp_seconds",
            "The oldest newest verdict of the namespaces that verify_replication proves.",
        )
        if self._oldest.proof:
            oldest.add_metric((), self._oldest.proof.timestamp())
        yield from (phases, since, proofs, oldest)

    def _clusters(self) -> Iterator[Metric]:
        scanned = GaugeMetricFamily(
            f"{_PREFIX}cluster_scan_timestamp_seconds",
            "When a reconciliation or a run of metadata events last read a cluster.",
            labels=("cluster",),
        )
        outage = GaugeMetricFamily(
            f"{_PREFIX}cluster_unreachable", "1 while a cluster does not answer metadata events.", labels=("cluster",)
        )
        for cluster in self._state.clusters:
            if cluster.scanned_at:
                scanned.add_metric((cluster.name,), cluster.scanned_at.timestamp())
            outage.add_metric((cluster.name,), float(cluster.outage_since is not None))
        yield from (scanned, outage)
