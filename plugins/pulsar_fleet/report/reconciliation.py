"""The report of a reconciliation as Markdown: the outcome, differences, conflicts, what to do (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.reconciliation_store import RecordedConflict
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_markdown, short
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary

_MOST_CONFLICTS = 50


def reconciliation_report(
    drift: DriftSummary,
    plans: Mapping[str, Plan],
    repaired: RepairSummary | None,
    conflicts: Sequence[tuple[str, RecordedConflict]],
) -> str:
    """Markdown with the drift that a run found and repaired.

    :param repaired: None if nothing was written.
    :param conflicts: the conflicts of this run, with the ids by which another value can be chosen.
    """
    parts = [
        f"# {headline(drift, repaired)}",
        _behind(drift),
        _pairs(drift),
        _compared_elsewhere(drift),
        _repaired(repaired),
        _listed("Deleted on one cluster, and left alone", drift.tombstones),
        _conflicts(conflicts),
        _listed("Not compared, because a cluster could not be read", drift.unread),
        _listed("Not compared, because a migration is moving it", drift.held),
        *(f"## {cluster}\n\n{plan_markdown(plan)}" for cluster, plan in sorted(plans.items())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(drift: DriftSummary, repaired: RepairSummary | None) -> str:
    """The outcome in one line."""
    if repaired is None:
        return drift.headline
    if not repaired.complete:
        return f"NOT ALL REPAIRED: at least {len(repaired.problems)} changes were not made. {drift.headline}"
    if not repaired.repaired:
        return f"{drift.headline} Nothing was written: see what was left alone, and why."
    return f"Repaired: {repaired.repaired:,} changes on {', '.join(repaired.changed) or 'no cluster'}"


def failure(drift: DriftSummary, repaired: RepairSummary | None, *, fail_on_drift: bool) -> str:
    """The reason why the run fails, else empty; remaining drift fails it only with `fail_on_drift`."""
    if drift.behind:
        return f"Some clusters are unreachable; the others were compared. {drift.headline}"
    if repaired is not None and (repaired.failed or repaired.unreached):
        return "\n".join([headline(drift, repaired), *repaired.problems])
    remaining_drift = drift.drifting if repaired is None else remaining(drift, repaired)
    return headline(drift, repaired) if fail_on_drift and remaining_drift else ""


def remaining(drift: DriftSummary, repaired: RepairSummary) -> int:
    """The number of differences that a repair has left to an operator."""
    return len(repaired.problems) + len(drift.tombstones) + drift.left_alone


def metrics(drift: DriftSummary, repaired: RepairSummary | None) -> dict[str, float]:
    """Numbers for a monitoring system, by name."""
    repair_calls = sum(repaired.calls.values()) if repaired else 0
    return {
        "drift_fields": drift.fields,
        "drift_resources": drift.drifting,
        "conflicts": drift.conflicts,
        "lost_edits": drift.lost,
        "tombstones": len(drift.tombstones),
        "oldest_drift_seconds": drift.oldest_drift_seconds,
        "clusters_behind": len(drift.behind),
        **_seconds_behind(drift),
        "repaired": repaired.repaired if repaired else 0,
        "not_repaired": remaining(drift, repaired) if repaired else 0,
        "calls": sum(drift.calls.values()) + repair_calls,
        "seconds": drift.seconds,
    }


def _seconds_behind(drift: DriftSummary) -> dict[str, float]:
    """`behind_seconds.<cluster>` → seconds since its last scan, 0 if it is reachable; absent before the first scan."""
    behind = {name: scan.seconds for name, scan in drift.behind.items() if scan.seconds is not None}
    return {
        f"behind_seconds.{name}": seconds for name, seconds in {**dict.fromkeys(drift.clusters, 0.0), **behind}.items()
    }


def _behind(drift: DriftSummary) -> str:
    return "\n".join(
        f"* **{name}** is unreachable; its last scan was {scan.since}. A later run reconciles it."
        for name, scan in drift.behind.items()
    )


def _pairs(drift: DriftSummary) -> str:
    rows = [f"| {pair.replace('/', ' and ')} | {number:,} |" for pair, number in drift.pairs.items()]
    age = drift.oldest_drift_seconds
    oldest = f"\n\nThe oldest drift was detected {age:,.0f} s ago." if age else ""
    return "\n".join(["| between | differences |", "| --- | --- |", *rows]) + oldest


def _compared_elsewhere(drift: DriftSummary) -> str:
    if drift.divergent is None:
        return ""
    return f"Compared in Spark: {counted(drift.divergent, 'resource')} divergent between clusters."


def _repaired(repaired: RepairSummary | None) -> str:
    if repaired is None:
        return ""
    done = ", ".join(f"{number:,} {outcome}" for outcome, number in repaired.counts.items()) or "nothing to do"
    lines = [f"## Written: {done}", *(f"* {problem}" for problem in repaired.problems)]
    return "\n".join(lines)


def _conflicts(conflicts: Sequence[tuple[str, RecordedConflict]]) -> str:
    if not conflicts:
        return ""
    rows = [
        f"| `{conflict_id}` | {conflict.kind} {conflict.name} | {conflict.field} "
        f"| {conflict.winner or 'the agreement'} ({conflict.rule}) | {_values(conflict)} |"
        for conflict_id, conflict in conflicts[:_MOST_CONFLICTS]
    ]
    head = ["| id | resource | field | won | values |", "| --- | --- | --- | --- | --- |"]
    remedy = "Choose another value: `pulsar-fleet reconcile … --choose ID=CLUSTER`, or the setting `choose`."
    return "\n".join(["## Conflicts", "", remedy, "", *head, *rows])


def _values(conflict: RecordedConflict) -> str:
    values = (f"{cluster}: {short(side['value'])}" for cluster, side in sorted(conflict.sides.items()))
    return "; ".join(values).replace("|", "\\|")


def _listed(title: str, lines: Iterable[str]) -> str:
    items = list(lines)
    return "\n".join([f"## {title}", "", *(f"* {line}" for line in items)]) if items else ""
