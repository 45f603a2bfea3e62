"""What is left to be done until one snapshot is equal to another, in numbers and first examples (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Change, LeftAlone
from pulsar_fleet.snapshot.model import Snapshot

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Unequal:
    """One field of a resource that is not as the source has it; values are in the target's terms, secrets sealed."""

    resource: str
    name: str
    field: str
    source: Json
    target: Json
    reason: str

    @classmethod
    def of(cls, change: Change) -> Self:
        """What a change would remove."""
        return cls(change.resource.value, change.name, change.field, change.after, change.before, change.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A target beside its source: `equal` when nothing is left that a plan would change.

    :param compared: rows of the source per table.
    :param differing: changes left, per kind of resource.
    :param left_alone: differences that no plan touches, per kind of resource, such as what only the target has.
    :param first: the first differences, in the order of their namespaces.
    :param first_left_alone: the first of those, with the reason.
    """

    source: str
    target: str
    compared: Mapping[str, int]
    differing: Mapping[str, int]
    left_alone: Mapping[str, int]
    first: tuple[Unequal, ...] = ()
    first_left_alone: tuple[LeftAlone, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the target holds all that the source holds."""
        return not self.differing

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": SCHEMA_VERSION,
            "source": self.source,
            "target": self.target,
            "equal": self.equal,
            "compared": dict(self.compared),
            "differing": dict(self.differing),
            "left_alone": dict(self.left_alone),
            "first": [[one.resource, one.name, one.field, one.source, one.target, one.reason] for one in self.first],
            "first_left_alone": [one.to_json() for one in self.first_left_alone],
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote; another version's document is `InvalidRequest`."""
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The comparison has version {found.get('schema_version')!r}, this release reads {SCHEMA_VERSION}: "
                "use the job and the package of one release."
            )
        return cls(
            source=found["source"],
            target=found["target"],
            compared=found["compared"],
            differing=found["differing"],
            left_alone=found["left_alone"],
            first=tuple(Unequal(*one) for one in found["first"]),
            first_left_alone=tuple(LeftAlone.from_json(one) for one in found["first_left_alone"]),
        )


def compare(
    source: Snapshot,
    target: Snapshot,
    *,
    subscriptions: bool = True,
    accept_incomplete: Collection[str] = frozenset(),
    examples: int = 20,
) -> Comparison:
    """Compare by planning, so that `equal` and an empty plan are the same thing.

    Everything in a namespace is compared with that namespace of the other side alone, so snapshots that are cut by
    namespaces give the same as whole ones, once their comparisons are put together by `merge`.

    :param examples: how many differences are kept as values.
    :raises Refused: the snapshots cannot be compared, see `plan_changes`.
    """
    plan = plan_changes(source, target, subscriptions=subscriptions, accept_incomplete=accept_incomplete)
    return Comparison(
        source=source.cluster,
        target=target.cluster,
        compared=source.counts(),
        differing=Counter(change.resource.value for change in plan.changes),
        left_alone=Counter(one.resource.value for one in plan.left_alone),
        first=tuple(Unequal.of(change) for change in plan.changes[:examples]),
        first_left_alone=plan.left_alone[:examples],
    )


def merge(parts: Iterable[Comparison], *, compared: Mapping[str, int], examples: int = 20) -> Comparison:
    """The comparisons of parts of two snapshots as one; `compared` are the rows of the whole source."""
    given = tuple(parts)
    return Comparison(
        source=given[0].source,
        target=given[0].target,
        compared=compared,
        differing=_sum(part.differing for part in given),
        left_alone=_sum(part.left_alone for part in given),
        first=tuple(one for part in given for one in part.first)[:examples],
        first_left_alone=tuple(one for part in given for one in part.first_left_alone)[:examples],
    )


def comparison_text(found: Comparison) -> str:
    """The result for a person: whether they are equal, how much was compared, the first differences."""
    resources = ", ".join(f"{count:,} {table.replace('_', ' ')}" for table, count in found.compared.items() if count)
    if found.equal:
        lines = [f"EQUAL  {found.target} holds all that {found.source} holds: {resources}"]
    else:
        lines = [f"DIFFERENT  {found.target} lacks {_counted(found.differing)} of {found.source}"]
    lines += [f"  {one.resource} {one.name} {one.field}".rstrip() + f": {one.reason}" for one in found.first]
    if (more := sum(found.differing.values()) - len(found.first)) > 0:
        lines.append(f"  … and {more:,} more")
    if found.left_alone:
        lines.append(f"left alone: {_counted(found.left_alone)}")
    return "\n".join(lines)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} × {kind}" for kind, count in sorted(counts.items()))


def _sum(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)
