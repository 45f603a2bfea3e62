"""What the commands say, for people: first whether something is wrong, then numbers, then what to do (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.diff_entry import Difference, Side
from pulsar_fleet.planning.plan import LeftAlone, Plan
from pulsar_fleet.planning.render import counted, left_alone_lines, short
from pulsar_fleet.preflight.findings import Finding, Severity, count_line

_MOST_LINES = 200
_NOT_COPIED = ("brokers", "notes", "inventory", "clusters", "resource_groups")
_MARKS = {Side.MISSING: "-", Side.EXTRA: "+", Side.DIFFERENT: "~"}


def compared_line(source: JsonObject, target: JsonObject, seconds: float) -> str:
    """`blue (4.2.4, 2 brokers) → green (4.2.4, 1 broker): 214 namespaces, 3,120 topics compared in 9 s`."""
    counts = source["counts"]
    resources = f"{counted(counts['namespaces'], 'namespace')}, {counted(counts['topics'], 'topic')}"
    return f"{_side(source)} → {_side(target)}: {resources} compared in {seconds:.0f} s"


def findings_text(findings: Sequence[Finding]) -> str:
    """How many there are, then each with consequence and remedy, blockers first."""
    ordered = sorted(findings, key=lambda finding: finding.severity is not Severity.BLOCKER)
    lines = [f"{count_line(findings)}. Nothing has been changed."]
    if findings:
        lines += ["", *(finding.text() for finding in ordered[:_MOST_LINES])]
    if len(ordered) > _MOST_LINES:
        lines.append(f"… and {len(ordered) - _MOST_LINES:,} more (see --json)")
    return "\n".join(lines)


def snapshot_text(found: JsonObject, seconds: float) -> str:
    """What was read, how fast, and where it lies."""
    counts = {name: count for name, count in found["counts"].items() if name not in _NOT_COPIED and count}
    read = ", ".join(counted(count, _singular(name)) for name, count in counts.items()) or "nothing"
    lines = [f"{_side(found)}: {read}; {counted(found['calls'], 'call')} in {seconds:.0f} s"]
    if not found["complete"]:
        lines.insert(0, "INCOMPLETE: some resources could not be read, see its table 'notes'. Do: take it again.")
    return "\n".join([*lines, f"stored in {found['reference']['uri']}"])


def differences_text(names: tuple[str, str], found: Sequence[Difference], left: Iterable[LeftAlone]) -> str:
    """`-` is only on the first, `+` only on the second, `~` on both with different values."""
    first, second = names
    if not found:
        lines = [f"Equal: {first} and {second} hold the same."]
    else:
        sides = Counter(one.side for one in found)
        lines = [
            f"{counted(len(found), 'difference')} between {first} and {second}: "
            f"{sides[Side.DIFFERENT]:,} different, {sides[Side.MISSING]:,} only on {first}, "
            f"{sides[Side.EXTRA]:,} only on {second}.",
            "",
            *(_difference(one, names) for one in found[:_MOST_LINES]),
        ]
    if len(found) > _MOST_LINES:
        lines.append(f"  … and {len(found) - _MOST_LINES:,} more (see --json)")
    return "\n".join([*lines, *(f"    not compared: {text}" for text in left_alone_lines(left))])


def applied_text(target: str, counts: Mapping[str, int], problems: Sequence[str], *, complete: bool) -> str:
    """What became of a plan; `counts` are changes by outcome."""
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count) or "nothing was done"
    head = (
        f"Done: all of the plan is in place on {target}" if complete else f"NOT ALL of the plan is in place on {target}"
    )
    return "\n".join([f"{head}: {told}.", *(f"  ! {one}" for one in problems)])


def nothing_text(run: str, plan: Plan) -> str:
    """Why nothing of a run can be taken back."""
    return "\n".join([f"Nothing of {run} can be undone.", *(f"  {one}" for one in left_alone_lines(plan.left_alone))])


def question(plan: Plan, allow: Collection[str]) -> str:
    """What the operator is asked; empty when nothing of the plan may be made."""
    refused = [change for change in plan.needing_permission() if change.id not in allow]
    makes = len(plan.changes) - len(refused)
    if not makes:
        return ""
    rest = f"{counted(len(refused), 'change')} will not be made without --allow. " if refused else ""
    return f"{rest}Make {counted(makes, 'change')} on {plan.target}?"


def _singular(table: str) -> str:
    noun = table.replace("_", " ")
    return noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")


def _side(found: JsonObject) -> str:
    versions = ", ".join(found["versions"]) or "version unknown"
    return f"{found['cluster']} ({versions}, {counted(found['counts']['brokers'], 'broker')})"


def _difference(one: Difference, names: tuple[str, str]) -> str:
    label = " ".join(part for part in (one.resource.value, one.name.removeprefix("persistent://"), one.field) if part)
    if one.side is Side.DIFFERENT:
        return f"  ~ {label}   {short(one.source)}  ≠  {short(one.target)}"
    return f"  {_MARKS[one.side]} {label}   only on {names[one.side is Side.EXTRA]}"
