"""How a target snapshot differs from its source: counts and the first differences (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.document import ArrayDocument, Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Change, LeftAlone
from pulsar_fleet.planning.render import left_alone_lines
from pulsar_fleet.planning.unread import Unread
from pulsar_fleet.snapshot.coverage import not_copied
from pulsar_fleet.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True)
class UnequalField(ArrayDocument):
    """A field whose values differ; both are in the target's terms, with secrets redacted."""

    resource: str
    name: str
    field: str
    source: Json
    target: Json
    reason: str

    @classmethod
    def of(cls, change: Change) -> Self:
        """The difference that a change would remove."""
        return cls(change.resource.value, change.name, change.field, change.after, change.before, change.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Document):
    """A target compared with its source: `equal` when a plan would change nothing.

    :param compared: rows of the source per table.
    :param differing: planned changes per kind of resource.
    :param left_alone: differences that no plan changes, per kind of resource, such as what only the target has.
    :param unread: what exists and could not be read on one of the clusters: it was not compared.
    :param first: the first differences, in the order of their namespaces.
    :param first_left_alone: scalable topics, and the first differences that no plan changes, with the reason.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "use the job and the package of one release"
    PROPERTIES = ("equal",)

    source: str
    target: str
    compared: Mapping[str, int]
    differing: Mapping[str, int]
    left_alone: Mapping[str, int]
    first: tuple[UnequalField, ...] = ()
    first_left_alone: tuple[LeftAlone, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the target has all that was read of the source."""
        return not self.differing


def compare(
    source: Snapshot,
    target: Snapshot,
    *,
    subscriptions: bool = True,
    examples: int = 20,
    list_unread: bool = True,
) -> Comparison:
    """Compare by planning: `equal` means that the plan is empty.

    A namespace is compared only with the same namespace of the other side, so the comparisons of parts that are split
    by namespaces give, combined by `merge`, the same result as the comparison of whole snapshots.

    What could not be read is not compared.

    :param examples: how many differences are kept as values.
    :param list_unread: name what could not be read; False for a part, whose whole names it.
    :raises PreconditionFailed: the snapshots cannot be compared, see `plan_changes`.
    """
    plan = plan_changes(source, target, subscriptions=subscriptions)
    unread = dict.fromkeys(Unread(source, target, subscriptions=subscriptions).left_alone())
    left_alone = tuple(row for row in plan.left_alone if list_unread or row not in unread)
    return Comparison(
        source=source.cluster,
        target=target.cluster,
        compared=source.counts(),
        differing=Counter(change.resource.value for change in plan.changes),
        left_alone=Counter(row.resource.value for row in left_alone),
        first=tuple(UnequalField.of(change) for change in plan.changes[:examples]),
        first_left_alone=_first(left_alone, examples),
        unread=tuple(row.name for row in unread) if list_unread else (),
    )


def merge(parts: Iterable[Comparison], *, compared: Mapping[str, int], examples: int = 20) -> Comparison:
    """Combine the comparisons of parts of two snapshots; `compared` counts the rows of the whole source."""
    comparisons = tuple(parts)
    return Comparison(
        source=comparisons[0].source,
        target=comparisons[0].target,
        compared=compared,
        differing=_sum(part.differing for part in comparisons),
        left_alone=_sum(part.left_alone for part in comparisons),
        first=tuple(row for part in comparisons for row in part.first)[:examples],
        first_left_alone=_first([row for part in comparisons for row in part.first_left_alone], examples),
        unread=tuple(name for part in comparisons for name in part.unread),
    )


def _first(rows: Sequence[LeftAlone], examples: int) -> tuple[LeftAlone, ...]:
    """The first rows, scalable topics before all others: nothing else names these."""
    return tuple(sorted(rows, key=lambda row: row.resource is not Resource.SCALABLE_TOPIC)[:examples])


def comparison_text(comparison: Comparison) -> str:
    """The result as text: equal or different, how much was compared, the first differences."""
    resources = ", ".join(
        f"{count:,} {table.replace('_', ' ')}" for table, count in comparison.compared.items() if count
    )
    if comparison.equal:
        exception = f", except what could not be read ({unread_names(comparison.unread)})" if comparison.unread else ""
        equal = f"{comparison.target} has all that a plan copies from {comparison.source}"
        lines = [f"EQUAL  {equal}{exception}: {resources}", f"  not compared: {not_copied()}"]
    else:
        lines = [f"DIFFERENT  {comparison.target} lacks {_counted(comparison.differing)} of {comparison.source}"]
    lines += [f"  {row.resource} {row.name} {row.field}".rstrip() + f": {row.reason}" for row in comparison.first]
    if (more := sum(comparison.differing.values()) - len(comparison.first)) > 0:
        lines.append(f"  … and {more:,} more")
    if comparison.left_alone:
        lines.append(f"left alone: {_counted(comparison.left_alone)}")
        scalable = (row for row in comparison.first_left_alone if row.resource is Resource.SCALABLE_TOPIC)
        lines += [f"  {text}" for text in left_alone_lines(scalable)]
    return "\n".join(lines)


def unread_names(names: Sequence[str]) -> str:
    """`2 resources, not compared: acme/orders, schemas of persistent://acme/mail/x`: the first few."""
    return f"{counted(len(names), 'resource')}, not compared: {', '.join(names[:3])}" + (", …" if names[3:] else "")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} × {kind}" for kind, count in sorted(counts.items()))


def _sum(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for table in counts:
        total.update(table)
    return dict(total)
