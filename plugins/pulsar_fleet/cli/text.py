"""The texts of the commands: the outcome, then numbers, then what to do (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.onboarding.results import TakenSnapshot
from pulsar_fleet.planning.diff_entry import Difference, Side
from pulsar_fleet.planning.plan import LeftAlone, Plan
from pulsar_fleet.planning.render import left_alone_lines, short
from pulsar_fleet.preflight.findings import Finding, Severity, count_line
from pulsar_fleet.snapshot.coverage import not_copied

_MAX_LINES = 200
_NOT_COPIED = ("brokers", "notes", "inventory", "clusters", "resource_groups")
_SIGNS = {Side.MISSING: "-", Side.EXTRA: "+", Side.DIFFERENT: "~"}


def compared_line(source: TakenSnapshot, target: TakenSnapshot, seconds: float) -> str:
    """`blue (4.2.4, 2 brokers) → green (4.2.4, 1 broker): 214 namespaces, 3,120 topics compared in 9 s`.

    A second line names what no plan copies.
    """
    counts = source.counts
    resources = f"{counted(counts['namespaces'], 'namespace')}, {counted(counts['topics'], 'topic')}"
    line = f"{_side(source)} → {_side(target)}: {resources} compared in {duration(seconds)}"
    return f"{line}\nNot copied from {source.cluster}: {source.not_copied}." if source.not_copied else line


def findings_text(findings: Sequence[Finding]) -> str:
    """The number of findings, then each finding with consequence and remedy, blockers first."""
    ordered = sorted(findings, key=lambda finding: finding.severity is not Severity.BLOCKER)
    lines = [f"{count_line(findings)}. Nothing has been changed."]
    if findings:
        lines += ["", *(finding.text() for finding in ordered[:_MAX_LINES])]
    if len(ordered) > _MAX_LINES:
        lines.append(f"… and {len(ordered) - _MAX_LINES:,} more (see --json)")
    return "\n".join(lines)


def snapshot_text(snapshot: TakenSnapshot, seconds: float) -> str:
    """What was read, how fast, and where it is stored."""
    counts = {name: count for name, count in snapshot.counts.items() if name not in _NOT_COPIED and count}
    read = ", ".join(counted(count, _singular(name)) for name, count in counts.items()) or "nothing"
    lines = [f"{_side(snapshot)}: {read}; {counted(snapshot.calls, 'call')} in {duration(seconds)}"]
    if not snapshot.complete:
        lines.insert(0, f"INCOMPLETE: {snapshot.unread}")
    if snapshot.not_copied:
        lines.append(f"copied by no plan: {snapshot.not_copied}")
    return "\n".join([*lines, f"stored in {snapshot.reference.uri}"])


def differences_text(names: tuple[str, str], differences: Sequence[Difference], left_alone: Iterable[LeftAlone]) -> str:
    """`-` is only on the first, `+` only on the second, `~` on both with different values."""
    first, second = names
    if not differences:
        lines = [f"Equal: {first} and {second} have the same metadata. Not compared: {not_copied()}."]
    else:
        sides = Counter(difference.side for difference in differences)
        lines = [
            f"{counted(len(differences), 'difference')} between {first} and {second}: "
            f"{sides[Side.DIFFERENT]:,} different, {sides[Side.MISSING]:,} only on {first}, "
            f"{sides[Side.EXTRA]:,} only on {second}.",
            "",
            *(_difference(difference, names) for difference in differences[:_MAX_LINES]),
        ]
    if len(differences) > _MAX_LINES:
        lines.append(f"  … and {len(differences) - _MAX_LINES:,} more (see --json)")
    return "\n".join([*lines, *(f"    not compared: {text}" for text in left_alone_lines(left_alone))])


def applied_text(target: str, counts: Mapping[str, int], problems: Sequence[str], *, complete: bool) -> str:
    """The result of a plan; `counts` are changes by outcome."""
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count) or "nothing to do"
    head = (
        f"Done: all of the plan is in place on {target}" if complete else f"NOT ALL of the plan is in place on {target}"
    )
    return "\n".join([f"{head}: {outcomes}.", *(f"  ! {problem}" for problem in problems)])


def nothing_text(run: str, plan: Plan) -> str:
    """The reasons why no change of a run can be undone."""
    return "\n".join([f"Nothing of {run} can be undone.", *(f"  {line}" for line in left_alone_lines(plan.left_alone))])


def _singular(table: str) -> str:
    noun = table.replace("_", " ")
    return noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")


def _side(snapshot: TakenSnapshot) -> str:
    versions = ", ".join(snapshot.versions) or "version unknown"
    return f"{snapshot.cluster} ({versions}, {counted(snapshot.counts['brokers'], 'broker')})"


def _difference(difference: Difference, names: tuple[str, str]) -> str:
    label = " ".join(
        part
        for part in (difference.resource.value, difference.name.removeprefix("persistent://"), difference.field)
        if part
    )
    if difference.side is Side.DIFFERENT:
        return f"  ~ {label}   {short(difference.source)}  ≠  {short(difference.target)}"
    return f"  {_SIGNS[difference.side]} {label}   only on {names[difference.side is Side.EXTRA]}"
