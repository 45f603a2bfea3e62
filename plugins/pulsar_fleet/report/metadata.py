"""What a run of metadata events did, for people and for metrics (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.render import counted

_NUMBERS = ("published", "applied", "written", "dropped", "postponed", "refused", "lost", "stamped", "backlog")


def headline(found: JsonObject) -> str:
    """The run in one line."""
    sums = {name: sum(one[name] for one in found["clusters"].values()) for name in _NUMBERS}
    parts = [f"{counted(sums['published'], 'event')} published", f"{sums['applied']} applied"]
    parts += [f"{sums['dropped']} stale or known"] if sums["dropped"] else []
    parts += [f"{sums['refused']} NOT APPLIED"] if sums["refused"] else []
    parts += [f"{counted(sums['lost'], 'edit')} LOST to whole documents"] if sums["lost"] else []
    parts += [f"BEHIND: {', '.join(sorted(found['behind']))}"] if found["behind"] else []
    return f"{', '.join(parts)} on {', '.join(sorted(found['clusters']))}"


def lines(found: JsonObject) -> list[str]:
    """What a person has to look at."""
    refused = [f"  ! {name}: {reason}" for name, one in found["clusters"].items() for reason in one["reasons"]]
    behind = [f"  ! {name}: {why}" for name, why in found["behind"].items()]
    since = [f"  ! {name}: silent since {at}; it is caught up when it returns" for name, at in found["since"].items()]
    unsent = [
        f"  {counted(number, 'event')} wait on {name} for {peer}"
        for name, one in found["clusters"].items()
        for peer, number in sorted(one["unsent"].items())
        if number
    ]
    idle = [
        f"  {name}: a follower is at work there, so this run left its events to it"
        for name, one in found["clusters"].items()
        if not one["active"]
    ]
    return [*refused, *behind, *since, *unsent, *idle]


def metadata_report(found: JsonObject) -> str:
    """The page of a run."""
    rows = [
        f"| {name} | {' | '.join(str(one[key]) for key in _NUMBERS)} |"
        for name, one in sorted(found["clusters"].items())
    ]
    table = [f"| cluster | {' | '.join(_NUMBERS)} |", f"| --- |{' --- |' * len(_NUMBERS)}", *rows]
    left = [f"* {line.strip().removeprefix('! ')}" for line in lines(found)]
    return "\n".join([f"# {headline(found)}", "", *table, "", *left, f"It took {found['seconds']} s.", ""])


def metrics(found: JsonObject) -> dict[str, float]:
    """Gauges of a run; of each cluster for how long it has been silent, and how many events wait for it elsewhere."""
    sums = {name: float(sum(one[name] for one in found["clusters"].values())) for name in _NUMBERS}
    silent = {f"behind_seconds.{name}": float(found["behind_seconds"].get(name, 0.0)) for name in _names(found)}
    waiting = {
        f"unsent.{name}": float(sum(one["unsent"].get(name, 0) for one in found["clusters"].values()))
        for name in found["fleet"]
    }
    behind = {"clusters_behind": float(len(found["behind"])), "seconds": found["seconds"]}
    return {**sums, **behind, **silent, **waiting}


def failure(found: JsonObject) -> str:
    """Why the run counts as failed; empty when it does not."""
    refused = sum(one["refused"] for one in found["clusters"].values())
    parts = [f"{counted(refused, 'event')} put away, first: {_first_reason(found)}"] if refused else []
    parts += [f"{name} is behind: {why}" for name, why in found["behind"].items()]
    parts += [f"{name} is silent since {at}" for name, at in found["since"].items()]
    return "; ".join(parts)


def _names(found: JsonObject) -> list[str]:
    return sorted({*found["fleet"], *found["behind_seconds"]})


def _first_reason(found: JsonObject) -> str:
    return next((reason for one in found["clusters"].values() for reason in one["reasons"]), "")
