"""The results of reconciliation in numbers: drift, conflicts and repairs, by pair of clusters (pure)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations, islice

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.guards import unmeasured_brokers
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict, listed
from pulsar_fleet.policy_sync.merge.compare import ComparedResource, Comparison
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.reconcile.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class LastScan(Document):
    """When an unreachable cluster was last read.

    :param last_seen: in seconds since 1970, None if it was never read; `since` is the same as a text.
    :param seconds: how long ago.
    """

    last_seen: float | None
    since: str
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan(Document):
    """The stored plan of the writes for one cluster.

    :param changes: their number; `needs_permission` of them must be allowed by the operator.
    """

    plan: Reference
    changes: int
    needs_permission: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSummary(Document):
    """A scan of the fleet in numbers, with the first examples, small enough for an XCom.

    :param fleet: all its clusters; `clusters` are those that were compared.
    :param behind: clusters that do not answer.
    :param unreachable: connection → why its cluster does not answer.
    :param calls: cluster → admin calls.
    :param fields: number of fields that differ; `drifting` is the number of their resources.
    :param missing: number of resources that have to be created on a cluster.
    :param tombstones: resources that were deleted on a cluster.
    :param listed_conflicts: the first of them.
    :param lost: number of edits that a whole document reverted.
    :param oldest_drift_seconds: since the oldest drift was first observed, 0 without drift.
    :param pairs: `blue/green` → number of differences between these two.
    :param unread: resources that a cluster could not read.
    :param unmeasured: what is not known of brokers' versions, a sentence each.
    :param held: namespaces in a running migration, which are not compared.
    :param left_alone: number of differences for which no write is planned.
    :param divergent: number of resources that a job found divergent, None if everything was compared in the task.
    :param plans: by cluster; a cluster without a change has none.
    :param drift: the compared resources that differ, None without drift.
    :param deletions: cluster → the deletions that wait there for an approval.
    """

    headline: str
    fleet: tuple[str, ...]
    clusters: tuple[str, ...]
    behind: Mapping[str, LastScan]
    unreachable: Mapping[str, str]
    resources: int
    namespaces: int
    calls: Mapping[str, int]
    fields: int
    drifting: int
    missing: int
    tombstones: tuple[str, ...]
    conflicts: int
    lost: int
    oldest_drift_seconds: float
    pairs: Mapping[str, int]
    unread: tuple[str, ...]
    held: tuple[str, ...]
    left_alone: int
    seconds: float = 0.0
    divergent: int | None = None
    plans: Mapping[str, RepairPlan] = field(default_factory=dict)
    drift: Reference | None = None
    listed_conflicts: tuple[ListedConflict, ...] = ()
    deletions: Mapping[str, PendingDeletions] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSummary(Document):
    """What applying the plans did.

    :param repaired: number of applied changes; `counts` has the number for every outcome.
    :param problems: the first changes that are not in place.
    :param changed: clusters with at least one applied change.
    :param failed: number of failed changes.
    :param unreached: clusters with a plan that did not answer.
    :param calls: cluster → admin calls.
    :param after: the fleet as it was read after the writes, without plans; None if it could not be read.
    """

    complete: bool
    repaired: int
    counts: Mapping[str, int]
    problems: tuple[str, ...]
    changed: tuple[str, ...]
    failed: int
    unreached: tuple[str, ...]
    calls: Mapping[str, int]
    after: DriftSummary | None = None


_MOST_SHOWN = 20
MOST_CONFLICTS = 50


def summarise(
    comparison: Comparison,
    observed: Mapping[str, ClusterScan],
    history: History,
    behind: Mapping[str, str],
    plans: Mapping[str, Plan],
) -> DriftSummary:
    """The result of a scan of the fleet, without the documents that `find_drift` stores.

    :param behind: connection → why its cluster does not answer.
    """
    drift = comparison.drift()
    absent = sorted(set(history.fleet) - set(observed))
    last_observed, now = history.last_observed(), time.time()
    conflicts = history.conflicts(comparison.compared)
    summary = DriftSummary(
        headline="",
        fleet=history.fleet,
        clusters=tuple(sorted(observed)),
        behind={name: _since(last_observed[name], now) for name in absent},
        unreachable=dict(behind),
        resources=len(comparison.compared),
        namespaces=sum(resource.item[0] is Resource.NAMESPACE for resource in comparison.compared),
        calls={name: scan.calls for name, scan in observed.items()},
        fields=sum(len(resource.drifting) for resource in drift),
        drifting=len(drift),
        missing=sum(bool(resource.missing) for resource in drift),
        tombstones=_first(f"{resource.item[0].value} {resource.item[1]}" for resource in drift if resource.gone),
        conflicts=len(conflicts),
        lost=sum(resource.merged.lost for resource in comparison.compared),
        oldest_drift_seconds=_age(drift, now),
        pairs=_pairs(drift, sorted(observed)),
        unread=_first(f"{kind.value} {name}" for kind, name in comparison.unread),
        held=_first(sorted(history.in_migration)),
        unmeasured=tuple(text for scan in observed.values() for text in unmeasured_brokers(scan.snapshot)),
        left_alone=sum(len(plan.left_alone) for plan in plans.values()),
        listed_conflicts=tuple(listed(*conflict) for conflict in conflicts[:MOST_CONFLICTS]),
    )
    return replace(summary, headline=_headline(summary))


def repaired_summary(
    applied: Sequence[PlanResult], unreached: Sequence[str], calls: Mapping[str, int], after: DriftSummary | None
) -> RepairSummary:
    """The outcome of the plans, and the state `after` them."""
    counts: Counter[str] = Counter()
    for outcome in applied:
        counts.update(outcome.counts())
    problems = [
        f"{outcome.target}: {result.change.label}: {result.outcome}: {result.detail}"
        for outcome in applied
        for result in outcome.not_in_place()
    ]
    return RepairSummary(
        complete=not problems and not unreached,
        repaired=counts["applied"],
        counts={name: number for name, number in counts.items() if number},
        problems=_first(problems),
        changed=tuple(sorted(outcome.target for outcome in applied if outcome.counts()["applied"])),
        failed=counts["failed"],
        unreached=tuple(unreached),
        calls=calls,
        after=after,
    )


def _first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(names, _MOST_SHOWN))


def _since(last_observed: float | None, now: float) -> LastScan:
    if last_observed is None:
        return LastScan(last_seen=None, since="never", seconds=None)
    text = datetime.fromtimestamp(last_observed, UTC).isoformat(sep=" ", timespec="seconds")
    return LastScan(
        last_seen=last_observed, since=text.replace("+00:00", " UTC"), seconds=round(now - last_observed, 1)
    )


def _headline(summary: DriftSummary) -> str:
    names = ", ".join(summary.clusters)
    compared = f"{counted(summary.resources, 'resource')} in {counted(sum(summary.calls.values()), 'call')}"
    behind = "".join(f" {name} could not be reached, last seen {scan.since}." for name, scan in summary.behind.items())
    if not summary.drifting:
        return f"Equal: {names} hold the same ({compared}).{behind}"
    parts = [f"{counted(summary.fields, 'field')} of {counted(summary.drifting, 'resource')} differ"]
    parts += [f"{summary.missing} to be created"] if summary.missing else []
    parts += [f"{counted(len(summary.tombstones), 'tombstone')}"] if summary.tombstones else []
    parts += [counted(summary.conflicts, "conflict")] if summary.conflicts else []
    return f"DRIFT between {names}: {', '.join(parts)} ({compared}).{behind}"


def _age(drift: Iterable[ComparedResource], now: float) -> float:
    """Seconds since the oldest drift was first observed; 0 without drift."""
    firsts = (_first_observed(resource) for resource in drift)
    return round(max((now - first for first in firsts if first), default=0.0), 1)


def _first_observed(resource: ComparedResource) -> float | None:
    decisions = resource.merged.decisions
    times = [
        side.provenance[name].not_after
        for side in resource.sides
        for name in (resource.drifting or side.values)
        if name in side.provenance and (not resource.drifting or same(side.values.get(name), decisions[name].value))
    ]
    return min(times, default=None)


def _pairs(drift: Sequence[ComparedResource], clusters: Sequence[str]) -> dict[str, int]:
    """`blue/green` → number of differences between these two."""
    return {
        f"{first}/{second}": sum(_differences(resource, first, second) for resource in drift)
        for first, second in combinations(clusters, 2)
    }


def _differences(resource: ComparedResource, first: str, second: str) -> int:
    by_cluster = {side.cluster: side.values for side in resource.sides}
    values = [by_cluster.get(name) for name in (first, second)]
    if values[0] is None or values[1] is None:
        return int(values[0] is not values[1] and not resource.without_topic)
    return sum(not same(values[0].get(name), values[1].get(name)) for name in resource.merged.decisions)
