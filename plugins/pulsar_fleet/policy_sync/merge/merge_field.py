"""The value that all clusters should hold: a three-way merge of one field, after PIP-136 (pure).

The latest change wins. The time of a change is known as a span; if two spans overlap, their order is unknown and the
cluster's name decides. PIP-136 prefers the smaller name, the broker's own synchroniser the larger one, so the direction
is always a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.provenance import digest


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
