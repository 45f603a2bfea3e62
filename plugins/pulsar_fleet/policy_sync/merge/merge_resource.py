"""The value that all clusters should hold: the three-way merge of a resource, field by field or as one document (pure).

The latest change wins. The time of a change is known as a span; if two spans overlap, their order is unknown and the
cluster's name decides. PIP-136 prefers the smaller name, the broker's own synchroniser the larger one, so the direction
is always a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.fields import Values, largest
from pulsar_fleet.policy_sync.merge.provenance import UNBOUNDED, UNKNOWN, Provenance, digest


class TieBreak(StrEnum):
    """Which cluster wins if the order of two writes is unknown: the one with the … name."""

    SMALLER = "smaller"
    LARGER = "larger"


class Rule(StrEnum):
    """Why a value was chosen."""

    AGREED = "agreed"
    """No cluster changed it."""
    CARRIED = "carried"
    """Changed on one cluster, or to the same value on several."""
    TIME = "latest time"
    UNCERTAIN = "latest time, within the clock skew"
    """The spans of the writes overlap, so that the order of the times may not be that of the writes."""
    NAME = "name of the cluster"
    JOINED = "agreed before the cluster joined"
    UNDECIDED = "removed, or created again without it: unknown"
    """Nothing is written before the operator chooses."""
    CHOSEN = "chosen by the operator"
    AUTHORITY = "authority"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldState:
    """The value of one field on one cluster, and when it was written.

    :param value: None means not set.
    :param not_before: the earliest time of the write, in seconds since 1970 by our clock; `not_after` the latest.
    :param joined: whether the merge base of the resource includes the cluster.
    :param replaced: digests of the values that this value replaced.
    :param decided_at: when the value last won a conflict, in seconds since 1970; 0 if it never did.
    """

    cluster: str
    value: Json
    not_before: float
    not_after: float
    joined: bool = True
    replaced: tuple[str, ...] = ()
    decided_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The value that every cluster should hold; the losers wrote another value since the merge base."""

    value: Json
    rule: Rule
    winner: str = ""
    losers: tuple[FieldState, ...] = ()


def merge_field(base: Json, sides: Iterable[FieldState], tie_break: TieBreak) -> Decision:
    """Choose the value that every cluster should hold; the order of `sides` has no effect.

    One cluster changed the value: it wins. Several changed it to the same value: agreed. They changed it to different
    values: see `latest` and `winner`. A cluster that joins takes the agreed value; a value that only it has set is
    carried to the others. The losers are returned, so that no edit disappears without a record.

    :param base: the last agreed value; None means not set, or no agreement yet.
    """
    states = sorted(sides, key=_key)
    edited = [state for state in states if _is_change(state, base)]
    givers = [state for state in states if any(_gave_back(state, change, base) for change in edited)]
    changes = [change for change in edited if not any(_gave_back(giver, change, base) for giver in givers)]
    contenders = latest(changes)
    contenders = _unreplaced(contenders, digest(base)) or _last_decided(contenders)
    first = winner(contenders, tie_break) if contenders else None
    value = first.value if first else base
    losers = tuple(change for change in changes if not same(change.value, value))
    rule = Rule.CARRIED if first or givers else Rule.AGREED
    if losers:
        decided_by_time = all(same(contender.value, value) for contender in contenders)
        rule = Rule.TIME if decided_by_time else Rule.NAME
    joining = (state for state in states if not state.joined and state.value is not None and state not in changes)
    overruled = tuple(state for state in joining if not same(state.value, value))
    return Decision(
        value=value,
        rule=Rule.JOINED if overruled and not losers else rule,
        winner=first.cluster if first else givers[-1].cluster if givers else "",
        losers=(*losers, *overruled),
    )


def latest(changes: Iterable[FieldState]) -> tuple[FieldState, ...]:
    """The changes that are not certainly earlier than another change.

    `latest((*latest(a), *latest(b)))` equals `latest((*a, *b))`, so the result does not depend on the order in which
    changes are compared.
    """
    by_key = {_key(change): change for change in changes}
    bound = max((change.not_before for change in by_key.values()), default=0.0)
    ordered = (by_key[key] for key in sorted(by_key))
    return tuple(change for change in ordered if change.not_after > bound or change.not_before == bound)


def winner(contenders: Sequence[FieldState], tie_break: TieBreak) -> FieldState:
    """The contender whose cluster has the smaller or the larger name; `contenders` must not be empty."""
    pick = min if tie_break is TieBreak.SMALLER else max
    return pick(contenders, key=_key)


def is_only_behind(loser: FieldState, holders: Iterable[FieldState], base: Json) -> bool:
    """Whether a loser holds a value that was replaced since the merge base and has not been updated yet: no conflict.

    :param holders: the clusters that hold the decided value.
    """
    deciding, agreed = list(holders), digest(base)
    since_replaced = {older for holder in deciding for older in _replaced(holder, agreed)}
    has_reverted = any(digest(holder.value) in _replaced(loser, agreed) for holder in deciding)
    return loser.joined and digest(loser.value) in since_replaced and not has_reverted


def _unreplaced(contenders: Sequence[FieldState], base: str) -> tuple[FieldState, ...]:
    """The contenders whose value no other contender replaced since the merge base: it decides where spans overlap."""
    replaced = {older for contender in contenders for older in _replaced(contender, base)}
    return tuple(contender for contender in contenders if digest(contender.value) not in replaced)


def _last_decided(contenders: Sequence[FieldState]) -> tuple[FieldState, ...]:
    """The contenders that won last: two decisions, while another cluster was away, may have chosen the opposite."""
    newest = max((contender.decided_at for contender in contenders), default=0.0)
    return tuple(contender for contender in contenders if contender.decided_at == newest)


def _replaced(state: FieldState, base: str) -> tuple[str, ...]:
    """Digests of the values that were replaced since the merge base."""
    return state.replaced[: state.replaced.index(base)] if base in state.replaced else state.replaced


def _is_change(state: FieldState, base: Json) -> bool:
    if state.joined:
        return not same(state.value, base)
    return base is None and state.value is not None


def _gave_back(state: FieldState, change: FieldState, base: Json) -> bool:
    """Whether a cluster had the changed value and certainly set the agreed one again later: the change is a copy."""
    is_later = state.not_before >= change.not_after and digest(change.value) in state.replaced
    return state.joined and is_later and same(state.value, base)


def _key(state: FieldState) -> tuple[str, float, float, str, tuple[str, ...]]:
    value = json.dumps(state.value, sort_keys=True)
    return state.cluster, state.not_after, state.not_before, value, state.replaced


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


def shared_options(
    selection: Selection, granularity: Granularity, tie_break: TieBreak, *, topics: bool, partitioned_topics: bool
) -> list[str]:
    """The options of a command line that are not the default ones."""
    options = [part for text in selection.texts() for part in ("--select", text)]
    options += ["--granularity", granularity.value] if granularity is not Granularity.FIELD else []
    options += ["--tie-break", tie_break.value] if tie_break is not TieBreak.SMALLER else []
    options += [] if topics else ["--no-topics"]
    return [*options, *([] if partitioned_topics else ["--no-partitioned-topics"])]
