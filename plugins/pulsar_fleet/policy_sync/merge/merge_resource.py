"""A whole resource, merged field by field or as one document (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.fields import Values
from pulsar_fleet.policy_sync.merge.merge_field import Decision, Held, Rule, TieBreak, merge_field
from pulsar_fleet.policy_sync.merge.provenance import UNBOUNDED, UNKNOWN, Seen


class Granularity(StrEnum):
    """What wins or loses as a whole."""

    FIELD = "field"
    DOCUMENT = "document"
    """As in PIP-136: of two edits of different fields of one resource, one is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one cluster holds of a resource.

    :param seen: field → when it was written, where that is known.
    :param joined: the cluster took part in the last agreement about it.
    """

    cluster: str
    values: Mapping[str, Json]
    seen: Mapping[str, Seen]
    joined: bool = True

    def held(self, name: str) -> Held:
        """One field of it."""
        seen = self.seen.get(name)
        return Held(
            cluster=self.cluster,
            value=self.values.get(name),
            not_before=seen.not_before if seen else UNKNOWN,
            not_after=seen.not_after if seen else UNBOUNDED,
            joined=self.joined,
            replaced=seen.replaced if seen else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What every cluster should hold.

    :param decisions: only of fields in which the clusters, or they and the last agreement, differ.
    :param lost: edits that lost although nobody else had edited their field: of whole documents only.
    """

    values: Values
    decisions: Mapping[str, Decision]
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How to merge.

    :param truth: what every cluster should hold whatever it holds now, None to let the latest change win.
    :param chosen: field → the value that the operator chose of a conflict.
    """

    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD
    truth: Mapping[str, Json] | None = None
    chosen: Mapping[str, Json] = field(default_factory=dict)


def merge_resource(base: Mapping[str, Json], clusters: Iterable[Side], how: How) -> Merged:
    """Merge what the clusters hold of one resource; in which order they are given makes no difference.

    :param base: what they agreed on last, empty when they never did.
    """
    sides = sorted(clusters, key=lambda side: side.cluster)
    if how.truth is not None:
        decided, lost = _by_truth(sides, how.truth), 0
    elif how.granularity is Granularity.FIELD:
        decided, lost = _by_field(base, sides, how.tie_break), 0
    else:
        decided, lost = _by_document(base, sides, how.tie_break)
    for name, value in how.chosen.items():
        decided[name] = Decision(value=value, rule=Rule.CHOSEN)
    return Merged(
        values={name: one.value for name, one in decided.items() if one.value is not None},
        decisions={name: one for name, one in decided.items() if _differs(one, base.get(name), sides, name)},
        lost=lost,
    )


def _by_truth(sides: Sequence[Side], truth: Mapping[str, Json]) -> dict[str, Decision]:
    return {name: Decision(value=truth.get(name), rule=Rule.AUTHORITY) for name in _names(truth, sides)}


def _by_field(base: Mapping[str, Json], sides: Sequence[Side], tie_break: TieBreak) -> dict[str, Decision]:
    return {
        name: merge_field(base.get(name), [side.held(name) for side in sides], tie_break)
        for name in _names(base, sides)
    }


def _by_document(
    base: Mapping[str, Json], sides: Sequence[Side], tie_break: TieBreak
) -> tuple[dict[str, Decision], int]:
    names = _names(base, sides)
    whole = merge_field(dict(base) or None, [_document(side, base) for side in sides], tie_break)
    value, losing = whole.value or {}, {one.cluster for one in whole.losers}
    lost = 0
    decided = {}
    for name in names:
        edits = [side.held(name) for side in sides if side.cluster in losing]
        edits = [one for one in edits if not same(one.value, base.get(name))]
        losers = tuple(one for one in edits if not same(one.value, value.get(name)))
        lost += len(losers) if same(value.get(name), base.get(name)) else 0
        decided[name] = Decision(value=value.get(name), rule=whole.rule, winner=whole.winner, losers=losers)
    return decided, lost


def _document(side: Side, base: Mapping[str, Json]) -> Held:
    """A document as one value, as old as its youngest edit."""
    edits = [side.held(name) for name in _names(base, [side]) if not same(side.values.get(name), base.get(name))]
    return Held(
        cluster=side.cluster,
        value=dict(side.values) or None,
        not_before=max((one.not_before for one in edits), default=UNKNOWN),
        not_after=max((one.not_after for one in edits), default=UNKNOWN),
        joined=side.joined,
    )


def _names(base: Mapping[str, Json], sides: Sequence[Side]) -> list[str]:
    def given() -> Iterator[str]:
        yield from base
        for side in sides:
            yield from side.values

    return sorted(set(given()))


def _differs(decision: Decision, agreed: Json, sides: Sequence[Side], name: str) -> bool:
    return not all(same(value, decision.value) for value in (agreed, *(side.values.get(name) for side in sides)))
