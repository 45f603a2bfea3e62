"""The report and the metrics of a run of `sync_metadata` (pure)."""

from __future__ import annotations

from datetime import UTC, datetime

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.policy_sync.events.results import SyncSummary, waiting_lines
from pulsar_fleet.policy_sync.merge.deletion_plan import pending_lines
from pulsar_fleet.report.document import Outcome, Report, texts
from pulsar_fleet.report.reconciliation import conflict_line

_NUMBERS = (
    "published",
    "applied",
    "written",
    "dropped",
    "postponed",
    "refused",
    "lost",
    "provenance_written",
    "conflicts",
    "deleted",
    "backlog",
)

_CHOOSE = (
    "Choose the other value with `pulsar-fleet reconcile CLUSTER CLUSTER --mode repair --choose ID=CLUSTER`, with the "
    "connections of all clusters of the event topic."
)


def headline(result: SyncSummary) -> str:
    """The run in one line."""
    sums = _sums(result)
    parts = [f"{counted(sums['published'], 'event')} published", f"{sums['applied']} applied"]
    parts += [f"{sums['dropped']} outdated or duplicate"] if sums["dropped"] else []
    parts += [f"{sums['refused']} NOT APPLIED"] if sums["refused"] else []
    parts += [f"{counted(sums['lost'], 'edit')} LOST to whole documents"] if sums["lost"] else []
    parts += [counted(sums["conflicts"], "conflict")] if sums["conflicts"] else []
    lacking = sorted(name for name, tally in result.clusters.items() if tally.lacks)
    parts += [f"INCOMPLETE: {', '.join(lacking)}"] if lacking else []
    parts += [f"BEHIND: {', '.join(sorted(result.behind))}"] if result.behind else []
    return f"{', '.join(parts)} on {', '.join(sorted(result.clusters))}"


def lines(result: SyncSummary) -> list[str]:
    """What an operator must check."""
    refused = [f"  ! {name}: {reason}" for name, tally in result.clusters.items() for reason in tally.reasons]
    behind = [f"  ! {name}: {why}" for name, why in result.behind.items()]
    since = [f"  ! {name}: unreachable since {at}; a later run synchronises it" for name, at in result.since.items()]
    unsent = [
        f"  {counted(number, 'event')} wait on {name} for {peer}"
        for name, tally in result.clusters.items()
        for peer, number in sorted(tally.unsent.items())
        if number
    ]
    waiting = [f"  {line}" for name, tally in result.clusters.items() for line in waiting_lines(name, tally.waiting)]
    idle = [
        f"  {name}: a follower is active, so this run left its events to the follower"
        for name, tally in result.clusters.items()
        if not tally.active
    ]
    new = [f"  {name}: new topic {topic}" for name, tally in result.clusters.items() for topic in tally.new_topics]
    joining = [
        f"  {name}: joins the fleet; it publishes nothing until it has applied a snapshot of the others"
        for name, tally in result.clusters.items()
        if tally.joins
    ]
    joining += [
        f"  ! {name}: lacks a part of what the fleet had before it joined; it is published once this has ended: {text}"
        for name, tally in result.clusters.items()
        for text in tally.lacks
    ]
    clocks = [f"  {tally.clock}" for tally in result.clusters.values() if tally.clock]
    unmeasured = [f"  {text}" for tally in result.clusters.values() for text in tally.unmeasured]
    decided = [*_deletions(result), *_conflicts(result)]
    return [*refused, *behind, *since, *unsent, *waiting, *idle, *joining, *new, *decided, *unmeasured, *clocks]


def _conflicts(result: SyncSummary) -> list[str]:
    """Edits that had not seen each other, each once, and how to choose the other value."""
    listed = {conflict.id: conflict for tally in result.clusters.values() for conflict in tally.listed_conflicts}
    lines = [f"  {conflict_line(conflict)}" for conflict in listed.values()]
    return [*lines, f"  {_CHOOSE}"] if lines else []


def _deletions(result: SyncSummary) -> list[str]:
    """The edits that won against deletions, the deletions that were refused, and those that wait."""
    texts: list[str] = []
    for name, tally in result.clusters.items():
        texts += [f"  CONFLICT {name}: {edit}" for edit in tally.kept_edits]
        texts += [f"  ! {name}: not deleted: {reason}" for reason in tally.not_deleted]
        waiting = tally.pending_deletions
        texts += [f"  {line}" for line in (pending_lines(name, waiting) if waiting else ())]
    return texts


def metadata_report(result: SyncSummary) -> Report:
    """What was published and applied on each cluster, and what an operator must check."""
    rows = [
        f"| {name} | {' | '.join(str(getattr(tally, key)) for key in _NUMBERS)} |"
        for name, tally in sorted(result.clusters.items())
    ]
    table = [f"| cluster | {' | '.join(_NUMBERS)} |", f"| --- |{' --- |' * len(_NUMBERS)}", *rows]
    details = [f"* {line.strip().removeprefix('! ')}" for line in lines(result)]
    reason, conflicts = failure(result), _sums(result)["conflicts"]
    to_do = texts(f"remove the reason: {reason}" if reason else "", "settle the conflicts below." if conflicts else "")
    lacking = any(tally.lacks for tally in result.clusters.values())
    outcome = Outcome.ATTENTION if conflicts or lacking else Outcome.SUCCEEDED
    return Report(
        outcome=Outcome.FAILED if reason else outcome,
        headline=headline(result),
        to_do=to_do,
        body=texts(
            "\n".join(table),
            "\n".join(details),
            "\n".join(_tenants(result)),
            f"It took {duration(result.seconds)}.",
        ),
    )


def _tenants(result: SyncSummary) -> list[str]:
    """Where and when tenants were last written, since a tenant has no properties that could say it."""
    rows = [
        f"| {name} | {update.by} | {datetime.fromtimestamp(update.time / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC |"
        for name, update in result.tenants.items()
    ]
    return ["| tenant | lastUpdatedBy | lastUpdatedTime |", "| --- | --- | --- |", *rows] if rows else []


def metrics(result: SyncSummary) -> dict[str, float]:
    """Gauges of a run; for each cluster the duration of its outage, and how many events other clusters hold for it."""
    sums = {name: float(number) for name, number in _sums(result).items()}
    outages = {f"behind_seconds.{name}": result.behind_seconds.get(name, 0.0) for name in _names(result)}
    waiting = {
        f"unsent.{name}": float(sum(tally.unsent.get(name, 0) for tally in result.clusters.values()))
        for name in result.fleet
    }
    clocks = {f"clock_skew.{name}": tally.clock_skew for name, tally in result.clusters.items()} | {
        f"clock_uncertainty.{name}": tally.clock_uncertainty
        for name, tally in result.clusters.items()
        if tally.clock_uncertainty is not None
    }
    deletions = (tally.pending_deletions for tally in result.clusters.values())
    pending = {"pending_deletions": float(sum(len(batch.resources) for batch in deletions if batch))}
    behind = {"clusters_behind": float(len(result.behind)), "seconds": result.seconds}
    return {**sums, **pending, **behind, **outages, **waiting, **clocks}


def failure(result: SyncSummary) -> str:
    """The reason why the run fails; empty if it does not."""
    clusters = result.clusters.values()
    refused = sum(tally.refused for tally in clusters)
    first = next((reason for tally in clusters for reason in tally.reasons), "")
    parts = [f"{counted(refused, 'event')} dead-lettered, first: {first}"] if refused else []
    parts += [f"not deleted: {reason}" for tally in clusters for reason in tally.not_deleted[:1]]
    parts += [f"{name} is behind: {why}" for name, why in result.behind.items()]
    parts += [f"{name} is unreachable since {at}" for name, at in result.since.items()]
    return "; ".join(parts)


def _sums(result: SyncSummary) -> dict[str, int]:
    return {name: sum(getattr(tally, name) for tally in result.clusters.values()) for name in _NUMBERS}


def _names(result: SyncSummary) -> list[str]:
    return sorted({*result.fleet, *result.behind_seconds})
