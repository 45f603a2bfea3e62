"""The merge of a whole resource, field by field or as one document (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.fields import Values
from pulsar_fleet.policy_sync.merge.merge_field import Decision, FieldState, Rule, TieBreak, merge_field
from pulsar_fleet.policy_sync.merge.provenance import UNBOUNDED, UNKNOWN, Provenance
from pulsar_fleet.policy_sync.merge.topic_fields import largest


class Granularity(StrEnum):
    """What wins or loses as a whole."""

    FIELD = "field"
    DOCUMENT = "document"
    """As in PIP-136: of two edits of different fields of one resource, one is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterValues:
    """The values of a resource on one cluster.

    :param provenance: field → when it was written, if known.
    :param joined: whether the merge base of the resource includes the cluster.
    """

    cluster: str
    values: Mapping[str, Json]
    provenance: Mapping[str, Provenance]
    joined: bool = True

    def state(self, name: str) -> FieldState:
        """One field."""
        provenance = self.provenance.get(name)
        return FieldState(
            cluster=self.cluster,
            value=self.values.get(name),
            not_before=provenance.not_before if provenance else UNKNOWN,
            not_after=provenance.not_after if provenance else UNBOUNDED,
            joined=self.joined,
            replaced=provenance.replaced if provenance else (),
            decided_at=provenance.decided_at if provenance else 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedResource:
    """The values that every cluster should hold.

    :param decisions: only for fields that differ between the clusters or from the merge base.
    :param lost: number of edits that lost although no other cluster edited their field: only for whole documents.
    """

    values: Values
    decisions: Mapping[str, Decision]
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """How a resource is merged.

    :param desired: the values that every cluster should hold regardless of its own; None: the latest change wins.
    :param chosen: field → the value of a conflict that the operator chose.
    :param growing: fields of which the value counts that contains all others, whenever it was written.
    """

    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD
    desired: Mapping[str, Json] | None = None
    chosen: Mapping[str, Json] = field(default_factory=dict)
    growing: tuple[str, ...] = ()


def merge_resource(
    base: Mapping[str, Json], clusters: Iterable[ClusterValues], options: MergeOptions
) -> MergedResource:
    """Merge the values of one resource; the order of the clusters has no effect.

    :param base: the document of the merge base; empty if there is none.
    """
    sides = sorted(clusters, key=lambda side: side.cluster)
    if options.desired is not None:
        desired, lost = options.desired, 0
        names = _names(desired, sides)
        decided = {name: Decision(value=desired.get(name), rule=Rule.AUTHORITY) for name in names}
    elif options.granularity is Granularity.FIELD:
        decided, lost = _by_field(base, sides, options.tie_break), 0
    else:
        decided, lost = _by_document(base, sides, options.tie_break)
    if options.desired is None:
        decided |= {name: _grown(base.get(name), sides, name, options.tie_break) for name in options.growing}
    for name, value in options.chosen.items():
        decided[name] = Decision(value=value, rule=Rule.CHOSEN)
    return MergedResource(
        values={name: decision.value for name, decision in decided.items() if decision.value is not None},
        decisions={
            name: decision for name, decision in decided.items() if _differs(decision, base.get(name), sides, name)
        },
        lost=lost,
    )


def _by_field(base: Mapping[str, Json], sides: Sequence[ClusterValues], tie_break: TieBreak) -> dict[str, Decision]:
    return {
        name: merge_field(base.get(name), [side.state(name) for side in sides], tie_break)
        for name in _names(base, sides)
    }


def _grown(base: Json, sides: Sequence[ClusterValues], name: str, tie_break: TieBreak) -> Decision:
    """The value that contains all others, without losers: the others grow. Without one, as for any other field."""
    states = [state for side in sides if (state := side.state(name)).value is not None]
    value = largest([state.value for state in states])
    if value is None:
        return merge_field(base, states, tie_break)
    winner = next(state.cluster for state in states if same(state.value, value))
    return Decision(value=value, rule=Rule.CARRIED, winner=winner)


def _by_document(
    base: Mapping[str, Json], sides: Sequence[ClusterValues], tie_break: TieBreak
) -> tuple[dict[str, Decision], int]:
    names = _names(base, sides)
    whole = merge_field(dict(base) or None, [_document(side, base) for side in sides], tie_break)
    value, losing = whole.value or {}, {loser.cluster for loser in whole.losers}
    lost = 0
    decided = {}
    for name in names:
        states = (side.state(name) for side in sides if side.cluster in losing)
        edits = (state for state in states if not same(state.value, base.get(name)))
        losers = tuple(edit for edit in edits if not same(edit.value, value.get(name)))
        lost += len(losers) if same(value.get(name), base.get(name)) else 0
        decided[name] = Decision(value=value.get(name), rule=whole.rule, winner=whole.winner, losers=losers)
    return decided, lost


def _document(side: ClusterValues, base: Mapping[str, Json]) -> FieldState:
    """A document as one value with the time of its newest edit."""
    edits = [side.state(name) for name in _names(base, [side]) if not same(side.values.get(name), base.get(name))]
    return FieldState(
        cluster=side.cluster,
        value=dict(side.values) or None,
        not_before=max((edit.not_before for edit in edits), default=UNKNOWN),
        not_after=max((edit.not_after for edit in edits), default=UNKNOWN),
        joined=side.joined,
    )


def _names(base: Mapping[str, Json], sides: Iterable[ClusterValues]) -> list[str]:
    return sorted({*base, *(name for side in sides for name in side.values)})


def _differs(decision: Decision, agreed: Json, sides: Sequence[ClusterValues], name: str) -> bool:
    return not all(same(value, decision.value) for value in (agreed, *(side.values.get(name) for side in sides)))
