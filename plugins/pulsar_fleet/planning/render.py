"""A plan as text for a terminal and as Markdown for the UI: first the changes, then what is left alone (pure)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import with_parent
from pulsar_fleet.cluster.policies.documents import revoked_rights
from pulsar_fleet.cluster.text import counted, duration, listed
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, LeftAlone, Plan
from pulsar_fleet.snapshot.coverage import not_copied

_LONGEST_VALUE = 70
_SYMBOLS = {Action.CREATE: "+", Action.SET: "~", Action.UNSET: "~", Action.GROW: "+", Action.DELETE: "-"}


def headline(plan: Plan) -> str:
    """`Plan 7f3a for green: 41 changes, 0 destructive, 1 irreversible. 61 calls, about 4 s.`"""
    if plan.empty:
        equal = f"{plan.target} has all that a plan copies from {plan.source}"
        return f"Nothing to change: {equal}. Not copied: {not_copied()}."
    hazards = plan.hazards()
    return (
        f"Plan {plan.id} for {plan.target}: {counted(len(plan.changes), 'change')}, "
        f"{hazards[Hazard.DESTRUCTIVE]} destructive, {hazards[Hazard.IRREVERSIBLE]} irreversible. "
        f"{counted(plan.calls, 'call')}, about {duration(max(1, plan.seconds))}."
    )


def question(plan: Plan, allow: Collection[str]) -> str:
    """The question to the operator; empty if no change of the plan is allowed."""
    refused = [change for change in plan.needing_permission() if change.id not in allow]
    makes = len(plan.changes) - len(refused)
    if not makes:
        return ""
    rest = f"{counted(len(refused), 'change')} without --allow: skipped. " if refused else ""
    return f"{rest}Make {counted(makes, 'change')} on {plan.target}?"


def plan_text(plan: Plan, *, most: int = 200) -> str:
    """The plan as aligned lines; only a count replaces the lines after the first `most`."""
    rows = [_line(change, plan) for change in _shown(plan)]
    names, fields = (_width([row[column] for row in rows]) for column in (1, 2))
    lines = [
        f"  {symbol} {name:{names}}  {field:{fields}}  {what}".rstrip() for symbol, name, field, what in rows[:most]
    ]
    if len(rows) > most:
        lines.append(f"  … and {len(rows) - most:,} more (see the JSON)")
    lines += [f"    left alone: {text}" for text in left_alone_lines(plan.left_alone)]
    return "\n".join([headline(plan), "", *lines]).rstrip()


def plan_markdown(plan: Plan, *, most: int = 200) -> str:
    """The plan as a table; only a count replaces the rows after the first `most`."""
    rows = [_line(change, plan) for change in _shown(plan)]
    table = [
        f"| {symbol} | {' '.join(name.split())} | {field} | {_escaped(what)} |"
        for symbol, name, field, what in rows[:most]
    ]
    if len(rows) > most:
        table.append(f"| … | {len(rows) - most:,} more, see the JSON | | |")
    head = ["| | resource | field | change |", "| --- | --- | --- | --- |"] if rows else []
    reasons = left_alone_lines(plan.left_alone)
    tail = ["", "**Left alone**", "", *(f"* {_escaped(text)}" for text in reasons)] if reasons else []
    return "\n".join([headline(plan), "", *head, *table, *tail]).rstrip()


def left_alone_lines(differences: Iterable[LeftAlone], *, most: int = 20) -> list[str]:
    """One line per reason and kind of resource, with the first few names."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for difference in differences:
        label = " ".join(part for part in (difference.name, difference.field) if part)
        grouped.setdefault((difference.resource.value, difference.reason), []).append(label)
    lines = [
        f"{counted(len(names), resource)} ({listed(names)}): {reason}" for (resource, reason), names in grouped.items()
    ]
    return lines if len(lines) <= most else [*lines[:most], f"{len(lines) - most:,} more reasons, see the JSON"]


def _width(texts: list[str]) -> int:
    """The width that nine of ten texts need: a few long ones do not widen the lines of the others."""
    lengths = sorted(map(len, texts))
    return lengths[(len(lengths) - 1) * 9 // 10] if lengths else 0


def _shown(plan: Plan) -> list[Change]:
    """Changes with their own line: what is created inside a new topic is counted in the topic's line."""
    topics = [change for change in plan.changes if change.resource is Resource.TOPIC]
    new = {change.name for change in topics if change.action is Action.CREATE}
    return [
        change for change in plan.changes if not with_parent(change.name) & new or change.resource is Resource.TOPIC
    ]


def _line(change: Change, plan: Plan) -> tuple[str, str, str, str]:
    resource = Resource.NAMESPACE if change.resource is Resource.POLICY else change.resource
    symbol = "!" if change.hazard.needs_permission else _SYMBOLS[change.action]
    name = change.name.removeprefix("persistent://")
    what = _what(change, plan)
    if change.hazard.needs_permission:
        what += f"   {change.hazard.value.upper()}, id {change.id}: {change.reason}"
    return symbol, f"{resource.value:12} {name}", change.field, what


def _what(change: Change, plan: Plan) -> str:
    if change.action is Action.DELETE:
        return "is deleted"
    revoked = _revoked(change)
    return f"{_value(change, plan)}; revokes {listed(revoked)}" if revoked else _value(change, plan)


def _revoked(change: Change) -> tuple[str, ...]:
    rights = change.resource is Resource.TENANT or (change.resource, change.field) == (Resource.POLICY, "auth_policies")
    return revoked_rights(change.before, change.after) if rights else ()


def _value(change: Change, plan: Plan) -> str:
    if change.resource is Resource.TENANT:
        return ", ".join(f"{key} [{', '.join(names)}]" for key, names in change.after.items())
    if change.resource is Resource.NAMESPACE:
        roles = len((change.after.get("auth_policies") or {}).get("namespace_auth", {}))
        return f"with {counted(len(change.after), 'policy')} and {counted(roles, 'role')}"
    if change.resource is Resource.TOPIC and not change.field:
        return _topic(change, plan)
    if change.resource is Resource.SCHEMA:
        return change.reason
    if change.resource is Resource.SUBSCRIPTION and change.action is Action.CREATE:
        properties = change.after["properties"]
        return f"at {change.after['position']}" + (f", with {short(properties)}" if properties else "")
    return f"{short(change.before)}  →  {short(change.after)}"


def _topic(change: Change, plan: Plan) -> str:
    own = [row for row in plan.changes if row.name.startswith(change.name) and change.name in with_parent(row.name)]
    # A subscription may have a change for each partition.
    inside = Counter(resource for resource, _ in {(row.resource, row.field) for row in own})
    versions = sum(len(row.calls) for row in own if row.resource is Resource.SCHEMA)
    partitions = change.after["partitions"]
    parts = [
        counted(partitions, "partition") if partitions else "not partitioned",
        counted(versions, "schema version") if versions else "",
        counted(inside[Resource.SUBSCRIPTION], "subscription") if inside[Resource.SUBSCRIPTION] else "",
        counted(inside[Resource.TOPIC_POLICY], "topic policy") if inside[Resource.TOPIC_POLICY] else "",
    ]
    return ", ".join(part for part in parts if part)


def short(value: Json, longest: int = _LONGEST_VALUE) -> str:
    """A value as compact JSON of at most `longest` characters; `not set` for None."""
    if value is None:
        return "not set"
    text = json.dumps(value, sort_keys=True, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
