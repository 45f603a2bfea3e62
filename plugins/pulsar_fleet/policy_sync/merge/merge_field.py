"""Which value all clusters should hold: three-way per field against the last agreed value, after PIP-136 (pure).

The latest change wins. A change is known to lie between two times; where two of these spans overlap nobody can tell
which was later, and the cluster's name decides. What the proposal calls the smaller name, the broker's own
synchroniser calls the larger one, so the direction is always said.
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
    """Whose value wins when nobody can tell which was written later: that of the … name."""

    SMALLER = "smaller"
    LARGER = "larger"


class Rule(StrEnum):
    """Why a value was picked."""

    AGREED = "agreed"
    """Nobody changed it."""
    CARRIED = "carried"
    """Changed on one cluster, or to the same value on several."""
    TIME = "latest time"
    NAME = "name of the cluster"
    JOINED = "agreed before the cluster joined"
    CHOSEN = "chosen by the operator"
    AUTHORITY = "authority"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one cluster holds in one field, and when it was written.

    :param value: None is not set.
    :param not_before: it was written between these two times, in seconds since 1970 by our clock.
    :param joined: the cluster took part in the last agreement about this resource.
    :param replaced: digests of the values that it took the place of.
    """

    cluster: str
    value: Json
    not_before: float
    not_after: float
    joined: bool = True
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The value that every cluster should hold; the losers wrote another one since the last agreement."""

    value: Json
    rule: Rule
    winner: str = ""
    losers: tuple[Held, ...] = ()


def merge_field(base: Json, sides: Iterable[Held], tie_break: TieBreak) -> Decision:
    """Pick the value that every cluster should hold; in which order the clusters are given makes no difference.

    One side moved: it wins. Several moved to the same: agreed. Moved apart: see `latest` and `winner`. A cluster that
    joins takes what the others agreed on; what it alone has set is carried to them. The losers are returned, so that
    nothing is dropped in silence.

    :param base: the last agreed value, None for not set or never agreed.
    """
    given = sorted(sides, key=_key)
    moved = [one for one in given if _moved(one, base)]
    contenders = latest(moved)
    contenders = _unreplaced(contenders, digest(base)) or contenders
    first = winner(contenders, tie_break) if contenders else None
    value = first.value if first else base
    losers = tuple(one for one in moved if not same(one.value, value))
    rule = Rule.CARRIED if first else Rule.AGREED
    if losers:
        told_by_time = all(same(one.value, value) for one in contenders)
        rule = Rule.TIME if told_by_time else Rule.NAME
    strangers = tuple(one for one in given if not one.joined and one.value is not None and one not in moved)
    overruled = tuple(one for one in strangers if not same(one.value, value))
    return Decision(
        value=value,
        rule=Rule.JOINED if overruled and not losers else rule,
        winner=first.cluster if first else "",
        losers=(*losers, *overruled),
    )


def latest(changes: Iterable[Held]) -> tuple[Held, ...]:
    """The changes of which none is surely earlier than another one.

    `latest((*latest(a), *latest(b)))` is `latest((*a, *b))`: what is dropped early would be dropped late too, so the
    result does not depend on who meets whom first.
    """
    known = {_key(one): one for one in changes}
    bound = max((one.not_before for one in known.values()), default=0.0)
    kept = (known[key] for key in sorted(known))
    return tuple(one for one in kept if one.not_after > bound or one.not_before == bound)


def winner(contenders: Sequence[Held], tie_break: TieBreak) -> Held:
    """The one whose cluster has the smaller or the larger name; `contenders` must not be empty."""
    pick = min if tie_break is TieBreak.SMALLER else max
    return pick(contenders, key=_key)


def is_only_behind(loser: Held, holders: Iterable[Held], base: Json) -> bool:
    """Whether a loser just has not got yet what took the place of its value since the last agreement: no conflict.

    :param holders: those that hold what was decided.
    """
    given, agreed = list(holders), digest(base)
    since_replaced = {older for one in given for older in _replaced(one, agreed)}
    took_it_back = any(digest(one.value) in _replaced(loser, agreed) for one in given)
    return loser.joined and digest(loser.value) in since_replaced and not took_it_back


def _unreplaced(contenders: Sequence[Held], base: str) -> tuple[Held, ...]:
    """Those whose value no other one took the place of since the last agreement, where times alone cannot tell."""
    known = {older for one in contenders for older in _replaced(one, base)}
    return tuple(one for one in contenders if digest(one.value) not in known)


def _replaced(one: Held, base: str) -> tuple[str, ...]:
    """Digests of the values that it took the place of since the last agreement."""
    return one.replaced[: one.replaced.index(base)] if base in one.replaced else one.replaced


def _moved(one: Held, base: Json) -> bool:
    if one.joined:
        return not same(one.value, base)
    return base is None and one.value is not None


def _key(one: Held) -> tuple[str, float, float, str, tuple[str, ...]]:
    return one.cluster, one.not_after, one.not_before, json.dumps(one.value, sort_keys=True), one.replaced
