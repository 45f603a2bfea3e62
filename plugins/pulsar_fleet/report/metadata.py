"""The report and the metrics of a run of `sync_metadata` (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.policy_sync.events.results import SyncSummary

_NUMBERS = (
    "published",
    "applied",
    "written",
    "dropped",
    "postponed",
    "refused",
    "lost",
    "provenance_written",
    "backlog",
)


def headline(result: SyncSummary) -> str:
    """The run in one line."""
    sums = _sums(result)
    parts = [f"{counted(sums['published'], 'event')} published", f"{sums['applied']} applied"]
    parts += [f"{sums['dropped']} outdated or duplicate"] if sums["dropped"] else []
    parts += [f"{sums['refused']} NOT APPLIED"] if sums["refused"] else []
    parts += [f"{counted(sums['lost'], 'edit')} LOST to whole documents"] if sums["lost"] else []
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
    idle = [
        f"  {name}: a follower is active, so this run left its events to the follower"
        for name, tally in result.clusters.items()
        if not tally.active
    ]
    return [*refused, *behind, *since, *unsent, *idle]


def metadata_report(result: SyncSummary) -> str:
    """The page of a run."""
    rows = [
        f"| {name} | {' | '.join(str(getattr(tally, key)) for key in _NUMBERS)} |"
        for name, tally in sorted(result.clusters.items())
    ]
    table = [f"| cluster | {' | '.join(_NUMBERS)} |", f"| --- |{' --- |' * len(_NUMBERS)}", *rows]
    details = [f"* {line.strip().removeprefix('! ')}" for line in lines(result)]
    return "\n".join([f"# {headline(result)}", "", *table, "", *details, f"It took {duration(result.seconds)}.", ""])


def metrics(result: SyncSummary) -> dict[str, float]:
    """Gauges of a run; for each cluster the duration of its outage, and how many events other clusters hold for it."""
    sums = {name: float(number) for name, number in _sums(result).items()}
    outages = {f"behind_seconds.{name}": result.behind_seconds.get(name, 0.0) for name in _names(result)}
    waiting = {
        f"unsent.{name}": float(sum(tally.unsent.get(name, 0) for tally in result.clusters.values()))
        for name in result.fleet
    }
    behind = {"clusters_behind": float(len(result.behind)), "seconds": result.seconds}
    return {**sums, **behind, **outages, **waiting}


def failure(result: SyncSummary) -> str:
    """The reason why the run fails; empty if it does not."""
    clusters = result.clusters.values()
    refused = sum(tally.refused for tally in clusters)
    first = next((reason for tally in clusters for reason in tally.reasons), "")
    parts = [f"{counted(refused, 'event')} dead-lettered, first: {first}"] if refused else []
    parts += [f"{name} is behind: {why}" for name, why in result.behind.items()]
    parts += [f"{name} is unreachable since {at}" for name, at in result.since.items()]
    return "; ".join(parts)


def _sums(result: SyncSummary) -> dict[str, int]:
    return {name: sum(getattr(tally, name) for tally in result.clusters.values()) for name in _NUMBERS}


def _names(result: SyncSummary) -> list[str]:
    return sorted({*result.fleet, *result.behind_seconds})
