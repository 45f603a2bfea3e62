"""A run in numbers: drift, conflicts and repairs, by pair of clusters, small enough for an XCom (pure)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.apply.outcome import Applied
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import counted
from pulsar_fleet.policy_sync.merge.compare import Compared, Comparison
from pulsar_fleet.policy_sync.merge.scan import Observed
from pulsar_fleet.policy_sync.reconcile.history import Memory

_MOST_SHOWN = 20


def summarise(
    comparison: Comparison,
    observed: Mapping[str, Observed],
    memory: Memory,
    behind: Mapping[str, str],
    plans: Mapping[str, Plan],
) -> JsonObject:
    """What a look at a fleet found.

    :param behind: connection → why its cluster does not answer.
    :returns: `{"headline", "clusters", "resources", "namespaces", "drift", …}` as values, first examples of each kind.
    """
    drift = comparison.drift()
    absent = sorted(set(memory.fleet) - set(observed))
    seen, now = memory.last_seen(), time.time()
    fields = sum(len(one.drifting) for one in drift)
    conflicts = [f"{one.item[1]} {name}" for one in comparison.compared for name in one.conflicts]
    left = [one for plan in plans.values() for one in plan.left_alone]
    found: JsonObject = {
        "fleet": list(memory.fleet),
        "clusters": sorted(observed),
        "behind": {name: _since(seen[name], now) for name in absent},
        "unreachable": dict(behind),
        "resources": len(comparison.compared),
        "namespaces": sum(one.item[0] is Resource.NAMESPACE for one in comparison.compared),
        "calls": {name: one.calls for name, one in observed.items()},
        "fields": fields,
        "drifting": len(drift),
        "missing": sum(bool(one.missing) for one in drift),
        "tombstones": [f"{one.item[0].value} {one.item[1]}" for one in drift if one.gone][:_MOST_SHOWN],
        "conflicts": len(conflicts),
        "first_conflicts": conflicts[:_MOST_SHOWN],
        "lost": sum(one.merged.lost for one in comparison.compared),
        "oldest_drift_seconds": _age(drift, now),
        "pairs": _pairs(drift, sorted(observed)),
        "unread": [f"{kind.value} {name}" for kind, name in comparison.unread][:_MOST_SHOWN],
        "held": sorted(memory.held)[:_MOST_SHOWN],
        "left_alone": len(left),
    }
    return {"headline": _headline(found), **found}


def repaired_summary(applied: Sequence[Applied], unreached: Sequence[str], calls: Mapping[str, int]) -> JsonObject:
    """What became of the plans.

    :returns: `{"complete", "repaired", "counts", "problems", "changed", "unreached", "calls"}`; `changed` are the
        clusters on which something was written.
    """
    counts: Counter[str] = Counter()
    for one in applied:
        counts.update(one.counts())
    problems = [
        f"{one.target}: {result.change.label}: {result.outcome}: {result.detail}"
        for one in applied
        for result in one.not_in_place()
    ]
    return {
        "complete": not problems and not unreached,
        "repaired": counts["applied"],
        "counts": {outcome: number for outcome, number in counts.items() if number},
        "problems": problems[:_MOST_SHOWN],
        "changed": sorted(one.target for one in applied if one.counts()["applied"]),
        "failed": counts["failed"],
        "unreached": list(unreached),
        "calls": dict(calls),
    }


def _since(seen: float | None, now: float) -> JsonObject:
    """When a cluster that is away was last seen, in seconds since 1970, as a text, and how many seconds ago."""
    if seen is None:
        return {"last_seen": None, "since": "never", "seconds": None}
    text = datetime.fromtimestamp(seen, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
    return {"last_seen": seen, "since": text, "seconds": round(now - seen, 1)}


def _headline(found: JsonObject) -> str:
    names = ", ".join(found["clusters"])
    compared = f"{counted(found['resources'], 'resource')} in {counted(sum(found['calls'].values()), 'call')}"
    behind = "".join(
        f" {name} could not be reached, last seen {one['since']}." for name, one in found["behind"].items()
    )
    if not found["drifting"]:
        return f"Equal: {names} hold the same ({compared}).{behind}"
    parts = [f"{counted(found['fields'], 'field')} of {counted(found['drifting'], 'resource')} differ"]
    parts += [f"{found['missing']} to be created"] if found["missing"] else []
    parts += [f"{counted(len(found['tombstones']), 'tombstone')}"] if found["tombstones"] else []
    parts += [counted(found["conflicts"], "conflict")] if found["conflicts"] else []
    return f"DRIFT between {names}: {', '.join(parts)} ({compared}).{behind}"


def _age(drift: Iterable[Compared], now: float) -> float:
    """Seconds since the oldest drift was first seen; 0 without drift."""
    return round(max((now - first for one in drift if (first := _first_seen(one))), default=0.0), 1)


def _first_seen(one: Compared) -> float | None:
    times = [
        side.seen[name].not_after
        for side in one.sides
        for name in (one.drifting or side.values)
        if name in side.seen and (not one.drifting or same(side.values.get(name), one.merged.decisions[name].value))
    ]
    return min(times, default=None)


def _pairs(drift: Sequence[Compared], clusters: Sequence[str]) -> dict[str, int]:
    """`blue/green` → differences between these two."""
    return {
        f"{first}/{second}": sum(_apart(one, first, second) for one in drift)
        for first, second in combinations(clusters, 2)
    }


def _apart(one: Compared, first: str, second: str) -> int:
    values = [next((side.values for side in one.sides if side.cluster == name), None) for name in (first, second)]
    if values[0] is None or values[1] is None:
        return int(values[0] is not values[1] and not one.elsewhere)
    return sum(not same(values[0].get(name), values[1].get(name)) for name in one.merged.decisions)
