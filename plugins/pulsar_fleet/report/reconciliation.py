"""The report of a reconciliation as Markdown: whether something is wrong, what differs, who lost, what to do (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.reconciliation_store import RecordedConflict
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import counted, plan_markdown, short

_MOST_CONFLICTS = 50


def reconciliation_report(
    found: JsonObject,
    plans: Mapping[str, Plan],
    repaired: JsonObject | None,
    conflicts: Sequence[tuple[str, RecordedConflict]],
) -> str:
    """What a run found and did, for a person.

    :param repaired: None where nothing was written.
    :param conflicts: those of this run, with the ids by which another value can be chosen.
    """
    parts = [
        f"# {headline(found, repaired)}",
        _behind(found),
        _pairs(found),
        _compared_elsewhere(found),
        _repaired(repaired),
        _listed("Gone on one side, and left alone", found["tombstones"]),
        _conflicts(conflicts),
        _listed("Not compared, because a cluster could not tell", found["unread"]),
        _listed("Not compared, because a migration holds it", found["held"]),
        *(f"## {cluster}\n\n{plan_markdown(plan)}" for cluster, plan in sorted(plans.items())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(found: JsonObject, repaired: JsonObject | None) -> str:
    """One line: first whether something is wrong."""
    if repaired is None:
        return str(found["headline"])
    if not repaired["complete"]:
        return f"NOT ALL REPAIRED: {len(repaired['problems'])} or more changes were not made. {found['headline']}"
    if not repaired["repaired"]:
        return f"{found['headline']} Nothing of it is written: see what is left alone, and why."
    return f"Repaired: {repaired['repaired']:,} changes on {', '.join(repaired['changed']) or 'no cluster'}"


def failure(found: JsonObject, repaired: JsonObject | None, *, fail_on_drift: bool) -> str:
    """Why the run has to fail, else empty: what waits for a person fails it only where that is wished for."""
    if found["behind"]:
        return f"Not all clusters could be reached; the others were compared. {found['headline']}"
    if repaired is not None and (repaired["failed"] or repaired["unreached"]):
        return "\n".join([headline(found, repaired), *repaired["problems"]])
    left = found["drifting"] if repaired is None else remaining(found, repaired)
    return headline(found, repaired) if fail_on_drift and left else ""


def remaining(found: JsonObject, repaired: JsonObject) -> int:
    """How much drift a repair has left for a person."""
    return len(repaired["problems"]) + len(found["tombstones"]) + int(found["left_alone"])


def metrics(found: JsonObject, repaired: JsonObject | None) -> dict[str, float]:
    """Numbers for a monitoring system, by name."""
    done = repaired or {"repaired": 0, "calls": {}}
    return {
        "drift_fields": found["fields"],
        "drift_resources": found["drifting"],
        "conflicts": found["conflicts"],
        "lost_edits": found["lost"],
        "tombstones": len(found["tombstones"]),
        "oldest_drift_seconds": found["oldest_drift_seconds"],
        "clusters_behind": len(found["behind"]),
        **_seconds_behind(found),
        "repaired": done["repaired"],
        "not_repaired": remaining(found, repaired) if repaired else 0,
        "calls": sum(found["calls"].values()) + sum(done["calls"].values()),
        "seconds": found["seconds"],
    }


def _seconds_behind(found: JsonObject) -> dict[str, float]:
    """`behind_seconds.<cluster>` → since it was last seen, 0 for one that answers; not of one that was never seen."""
    behind = {name: one["seconds"] for name, one in found["behind"].items() if one["seconds"] is not None}
    return {
        f"behind_seconds.{name}": each for name, each in {**dict.fromkeys(found["clusters"], 0.0), **behind}.items()
    }


def _behind(found: JsonObject) -> str:
    return "\n".join(
        f"* **{name}** cannot be reached; it was last seen {one['since']}. It is caught up when it returns."
        for name, one in found["behind"].items()
    )


def _pairs(found: JsonObject) -> str:
    rows = [f"| {pair.replace('/', ' and ')} | {number:,} |" for pair, number in found["pairs"].items()]
    age = found["oldest_drift_seconds"]
    oldest = f"\n\nThe oldest drift was first seen {age:,.0f} s ago." if age else ""
    return "\n".join(["| between | differences |", "| --- | --- |", *rows]) + oldest


def _compared_elsewhere(found: JsonObject) -> str:
    if found["apart"] is None:
        return ""
    return f"Compared in Spark: {counted(found['apart'], 'resource')} not alike on all clusters."


def _repaired(repaired: JsonObject | None) -> str:
    if repaired is None:
        return ""
    done = ", ".join(f"{number:,} {outcome}" for outcome, number in repaired["counts"].items()) or "nothing was to do"
    lines = [f"## Written: {done}", *(f"* {problem}" for problem in repaired["problems"])]
    return "\n".join(lines)


def _conflicts(conflicts: Sequence[tuple[str, RecordedConflict]]) -> str:
    if not conflicts:
        return ""
    rows = [
        f"| `{conflict_id}` | {one.kind} {one.name} | {one.field} | {one.winner or 'the agreement'} ({one.rule}) "
        f"| {_sides(one)} |"
        for conflict_id, one in conflicts[:_MOST_CONFLICTS]
    ]
    head = ["| id | resource | field | won | values |", "| --- | --- | --- | --- | --- |"]
    how = "Take another value after all: `pulsar-fleet reconcile … --choose ID=CLUSTER`, or the setting `choose`."
    return "\n".join(["## Conflicts", "", how, "", *head, *rows])


def _sides(one: RecordedConflict) -> str:
    return "; ".join(f"{cluster}: {short(side['value'])}" for cluster, side in sorted(one.sides.items())).replace(
        "|", "\\|"
    )


def _listed(title: str, lines: Iterable[str]) -> str:
    given = list(lines)
    return "\n".join([f"## {title}", "", *(f"* {line}" for line in given)]) if given else ""
