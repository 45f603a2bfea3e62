"""The report of a reconciliation: the outcome, what to do, differences, conflicts (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_markdown, short
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.deletion_plan import pending_lines
from pulsar_fleet.policy_sync.merge.merge_resource import Rule
from pulsar_fleet.policy_sync.reconcile.agreement import PARTITIONED_ON_SOME
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
from pulsar_fleet.report.document import Outcome, Report, sections, texts


def conflict_line(conflict: ListedConflict) -> str:
    """The conflict with the id by which another value can be chosen."""
    return f"CONFLICT {conflict.id}  {_subject(conflict)}: {outcome(conflict)}"


def _subject(conflict: ListedConflict) -> str:
    return f"{conflict.resource} {conflict.field}".rstrip()


def outcome(conflict: ListedConflict) -> str:
    """The winner with its value, then the others; for a resource that was deleted and edited, what a choice does."""
    if not conflict.field:
        return _deleted_and_edited(conflict)
    if conflict.rule == PARTITIONED_ON_SOME:
        counts = (f"{counted(count, 'partition')} on {cluster}" for cluster, count in sorted(conflict.values.items()))
        return f"{', '.join(counts)}; nothing is changed: delete the one without partitions when it is consumed"
    if conflict.rule == Rule.UNDECIDED:
        values = (f"{cluster} {short(value)}" for cluster, value in sorted(conflict.values.items()))
        return f"{', '.join(values)} ({conflict.rule}). Nothing is done until you choose a cluster"
    winner = conflict.values.get(conflict.winner)
    won = f"{conflict.winner} {short(winner)} wins" if conflict.winner in conflict.values else "the last agreement wins"
    others = (
        f"{cluster} {short(value)}{'' if same(value, winner) else ' loses'}"
        for cluster, value in sorted(conflict.values.items())
        if cluster != conflict.winner
    )
    return f"{won} ({conflict.rule}); {', '.join(others)}"


def _deleted_and_edited(conflict: ListedConflict) -> str:
    deleted = ", ".join(sorted(cluster for cluster, edits in conflict.values.items() if edits is None))
    edits = "; ".join(
        f"edited on {cluster}: {', '.join(f'{name} {short(value)}' for name, value in sorted(fields.items()))}"
        for cluster, fields in sorted(conflict.values.items())
        if fields
    )
    return (
        f"deleted on {deleted}; {edits}. Nothing is done until you choose: {conflict.winner} recreates it where it is "
        f"missing, {deleted} lets propagate_deletes plan its deletion"
    )


def reconciliation_report(
    drift: DriftSummary,
    plans: Mapping[str, Plan],
    repaired: RepairSummary | None,
) -> Report:
    """The drift that a run found and repaired.

    :param repaired: None if nothing was written.
    """
    outcome, to_do = _outcome(drift, repaired)
    return Report(
        outcome=outcome,
        headline=headline(drift, repaired),
        to_do=to_do,
        body=texts(_behind(drift), *_differences(drift, repaired), _compared_elsewhere(drift)),
        details=sections(
            [
                _repaired(repaired),
                ("Deleted on one cluster, and left alone", _listed(drift.tombstones)),
                ("Deletions that wait for an approval", _listed(deletion_lines(drift))),
                ("Conflicts", _conflicts(drift)),
                ("Not compared, because a cluster could not be read", _listed(drift.unread)),
                ("Not compared, because a migration is moving it", _listed(drift.held)),
                ("Versions of brokers that were not measured", _listed(drift.unmeasured)),
                *((f"Plan for {cluster}", plan_markdown(plan)) for cluster, plan in sorted(plans.items())),
            ]
        ),
    )


def _outcome(drift: DriftSummary, repaired: RepairSummary | None) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome, and what a person has to do then."""
    to_do = [f"make {name} reachable; a later run reconciles it." for name in drift.behind]
    if repaired is not None and not repaired.complete:
        to_do.append("read below why changes were not made, and run it again.")
    if repaired is None and drift.drifting:
        to_do.append("run it with the mode `repair`, or accept the differences.")
    if drift.conflicts:
        to_do.append("read the conflicts below: another value may be the right one.")
    if drift.deletions:
        to_do.append("approve the deletions below, or recreate what was deleted.")
    failed = drift.behind or (repaired is not None and (repaired.failed or repaired.unreached))
    waiting = Outcome.ATTENTION if to_do else Outcome.SUCCEEDED
    return Outcome.FAILED if failed else waiting, tuple(to_do)


def headline(drift: DriftSummary, repaired: RepairSummary | None) -> str:
    """The outcome in one line."""
    if repaired is None:
        return drift.headline
    after = repaired.after.headline if repaired.after else "The clusters could not be read again: run it once more."
    if not repaired.complete:
        return f"NOT ALL REPAIRED: at least {len(repaired.problems)} changes were not made. Afterwards: {after}"
    if not repaired.repaired:
        return f"{after} Nothing was written: see what was left alone, and why."
    return f"Repaired: {counted(repaired.repaired, 'change')} on {', '.join(repaired.changed)}. Afterwards: {after}"


def failure(drift: DriftSummary, repaired: RepairSummary | None, *, fail_on_drift: bool) -> str:
    """The reason why the run fails, else empty; remaining drift fails it only with `fail_on_drift`."""
    if drift.behind:
        return f"Some clusters are unreachable; the others were compared. {drift.headline}"
    if repaired is not None and (repaired.failed or repaired.unreached):
        return "\n".join([headline(drift, repaired), *repaired.problems])
    remaining_drift = drift.drifting if repaired is None else remaining(drift, repaired)
    return headline(drift, repaired) if fail_on_drift and remaining_drift else ""


def remaining(drift: DriftSummary, repaired: RepairSummary) -> int:
    """The number of resources that still differ after a repair; without a later scan, of what it left alone."""
    if repaired.after:
        return repaired.after.drifting
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


def _differences(drift: DriftSummary, repaired: RepairSummary | None) -> list[str]:
    """The differences that were found; after a repair first those that still exist."""
    if repaired is None:
        return [_pairs(drift)]
    after = ["**After the repair:**", _pairs(repaired.after)] if repaired.after else []
    return [*after, "**Before the repair:**", _pairs(drift)]


def _pairs(drift: DriftSummary) -> str:
    rows = [f"| {pair.replace('/', ' and ')} | {number:,} |" for pair, number in drift.pairs.items()]
    age = drift.oldest_drift_seconds
    oldest = f"\n\nThe oldest drift was detected {age:,.0f} s ago." if age else ""
    return "\n".join(["| between | differences |", "| --- | --- |", *rows]) + oldest


def _compared_elsewhere(drift: DriftSummary) -> str:
    if drift.divergent is None:
        return ""
    return f"Compared in Spark: {counted(drift.divergent, 'resource')} divergent between clusters."


def _repaired(repaired: RepairSummary | None) -> tuple[str, str]:
    if repaired is None:
        return "Written", ""
    done = ", ".join(f"{number:,} {outcome}" for outcome, number in repaired.counts.items()) or "nothing to do"
    return f"Written: {done}", _listed(repaired.problems) or "Every change was made."


def conflict_lines(drift: DriftSummary) -> list[str]:
    """A line for each conflict with its id, the winner and the losing values, then how to choose another one."""
    lines = [conflict_line(conflict) for conflict in drift.listed_conflicts]
    return [*lines, _REMEDY, *_more(drift)] if lines else []


def deletion_lines(drift: DriftSummary) -> list[str]:
    """What was deleted on one cluster and waits on another, and how to delete it."""
    return [line for cluster, waiting in drift.deletions.items() for line in pending_lines(cluster, waiting)]


_REMEDY = (
    "Choose a cluster's value by adding `--choose ID=CLUSTER` to the command, with `--mode repair`; or by the setting "
    "`choose`. A run that only compares records no conflict: before you choose, run the mode report of "
    "reconcile_policies."
)


def _conflicts(drift: DriftSummary) -> str:
    if not drift.listed_conflicts:
        return ""
    rows = [
        f"| `{conflict.id}` | {conflict.resource} | {conflict.field or 'itself'} | {_cell(outcome(conflict))} |"
        for conflict in drift.listed_conflicts
    ]
    head = ["| id | resource | field | values |", "| --- | --- | --- | --- |"]
    return "\n".join([_REMEDY, "", *head, *rows, *_more(drift)])


def _more(drift: DriftSummary) -> list[str]:
    rest = drift.conflicts - len(drift.listed_conflicts)
    return [f"… and {counted(rest, 'more conflict')}: they are listed when these are settled."] if rest else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)
