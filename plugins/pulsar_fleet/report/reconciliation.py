"""The report of a reconciliation as Markdown: the outcome, differences, conflicts, what to do (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.reconciliation_store import RecordedConflict
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import counted, plan_markdown, short

_MOST_CONFLICTS = 50


def reconciliation_report(
    drift: JsonObject,
    plans: Mapping[str, Plan],
    repaired: JsonObject | None,
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
        _listed("Deleted on one cluster, and left alone", drift["tombstones"]),
        _conflicts(conflicts),
        _listed("Not compared, because a cluster could not be read", drift["unread"]),
        _listed("Not compared, because a migration is moving it", drift["held"]),
        *(f"## {cluster}\n\n{plan_markdown(plan)}" for cluster, plan in sorted(plans.items())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(drift: JsonObject, repaired: JsonObject | None) -> str:
    """The outcome in one line."""
    if repaired is None:
        return str(drift["headline"])
    if not repaired["complete"]:
        return f"NOT ALL REPAIRED: at least {len(repaired['problems'])} changes were not made. {drift['headline']}"
    if not repaired["repaired"]:
        return f"{drift['headline']} Nothing was written: see what was left alone, and why."
    return f"Repaired: {repaired['repaired']:,} changes on {', '.join(repaired['changed']) or 'no cluster'}"


def failure(drift: JsonObject, repaired: JsonObject | None, *, fail_on_drift: bool) -> str:
    """The reason why the run fails, else empty; remaining drift fails it only with `fail_on_drift`."""
    if drift["behind"]:
        return f"Some clusters are unreachable; the others were compared. {drift['headline']}"
    if repaired is not None and (repaired["failed"] or repaired["unreached"]):
        return "\n".join([headline(drift, repaired), *repaired["problems"]])
    remaining_drift = drift["drifting"] if repaired is None else remaining(drift, repaired)
    return headline(drift, repaired) if fail_on_drift and remaining_drift else ""


def remaining(drift: JsonObject, repaired: JsonObject) -> int:
    """The number of differences that a repair has left to an operator."""
    return len(repaired["problems"]) + len(drift["tombstones"]) + int(drift["left_alone"])


def metrics(drift: JsonObject, repaired: JsonObject | None) -> dict[str, float]:
    """Numbers for a monitoring system, by name."""
    done = repaired or {"repaired": 0, "calls": {}}
    return {
        "drift_fields": drift["fields"],
        "drift_resources": drift["drifting"],
        "conflicts": drift["conflicts"],
        "lost_edits": drift["lost"],
        "tombstones": len(drift["tombstones"]),
        "oldest_drift_seconds": drift["oldest_drift_seconds"],
        "clusters_behind": len(drift["behind"]),
        **_seconds_behind(drift),
        "repaired": done["repaired"],
        "not_repaired": remaining(drift, repaired) if repaired else 0,
        "calls": sum(drift["calls"].values()) + sum(done["calls"].values()),
        "seconds": drift["seconds"],
    }


def _seconds_behind(drift: JsonObject) -> dict[str, float]:
    """`behind_seconds.<cluster>` → seconds since its last scan, 0 if it is reachable; absent before the first scan."""
    behind = {name: outage["seconds"] for name, outage in drift["behind"].items() if outage["seconds"] is not None}
    return {
        f"behind_seconds.{name}": seconds
        for name, seconds in {**dict.fromkeys(drift["clusters"], 0.0), **behind}.items()
    }


def _behind(drift: JsonObject) -> str:
    return "\n".join(
        f"* **{name}** is unreachable; its last scan was {outage['since']}. A later run reconciles it."
        for name, outage in drift["behind"].items()
    )


def _pairs(drift: JsonObject) -> str:
    rows = [f"| {pair.replace('/', ' and ')} | {number:,} |" for pair, number in drift["pairs"].items()]
    age = drift["oldest_drift_seconds"]
    oldest = f"\n\nThe oldest drift was detected {age:,.0f} s ago." if age else ""
    return "\n".join(["| between | differences |", "| --- | --- |", *rows]) + oldest


def _compared_elsewhere(drift: JsonObject) -> str:
    if drift["divergent"] is None:
        return ""
    return f"Compared in Spark: {counted(drift['divergent'], 'resource')} divergent between clusters."


def _repaired(repaired: JsonObject | None) -> str:
    if repaired is None:
        return ""
    done = ", ".join(f"{number:,} {outcome}" for outcome, number in repaired["counts"].items()) or "nothing to do"
    lines = [f"## Written: {done}", *(f"* {problem}" for problem in repaired["problems"])]
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
