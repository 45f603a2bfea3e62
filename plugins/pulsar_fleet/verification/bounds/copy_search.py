"""Find the copies of a source's entries among what else lies on the target: near its end, and near its beginning."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.verification.bounds.continuation import Unprovable

_MOST_LOOKED_AT = 20_000
_LOOKED_AT_ONCE = 32


async def without_later(
    copies: Copies,
    source: AdminClient,
    names: tuple[str, str],
    bounds: TopicBounds,
    target: TopicBounds,
    *,
    may_be_none: bool = False,
) -> TopicBounds:
    """End the target where no copy of a later entry of the source follows; what producers wrote to it may remain.

    A source without a later entry has no such copy. Otherwise the newest copy lies near the target's end.

    :param bounds: of the source.
    :param may_be_none: the source may hold only what other clusters published: then the target is read to no entry.
    """
    assert bounds.last is not None
    now = Ledgers.of(await source.internal_stats(copies.topic))
    if now.index_after(bounds.last) == len(now):
        return target
    for end in range(target.end, max(target.end - _MOST_LOOKED_AT, 0), -_LOOKED_AT_ONCE):
        numbers = range(end - 1, max(end - _LOOKED_AT_ONCE, 0) - 1, -1)
        origins = await asyncio.gather(*(origin_of(copies, number) for number in numbers))
        for number, origin in zip(numbers, origins, strict=True):
            if origin is not None and origin <= bounds.last:
                return replace(target, begin=0, end=number + 1)
    if may_be_none and target.end <= _MOST_LOOKED_AT:
        return replace(target, begin=0, end=0)
    raise Unprovable(
        f"its last {_MOST_LOOKED_AT:,} entries on {names[1]} have no copy of what {names[0]} held when "
        "the verification began; verify again when fewer producers write"
    )


async def oldest_copy(
    copies: Copies, names: tuple[str, str], first: Position, end: int, *, most: int = _MOST_LOOKED_AT
) -> tuple[int, Position | None]:
    """The first copy of the source's entries from `first` on among the target's first `end`; (0, None) if none is.

    Calls: one where the target begins with it.

    :raises Unprovable: it is not among the first `most` entries of the target, which has more.
    """
    for begin in (0, *range(1, min(end, most), _LOOKED_AT_ONCE)):
        numbers = range(begin, min(begin + (_LOOKED_AT_ONCE if begin else 1), most, end))
        origins = await asyncio.gather(*(origin_of(copies, number) for number in numbers))
        for number, origin in zip(numbers, origins, strict=True):
            if origin is not None and origin >= first:
                return number, origin
    if end <= most:
        return 0, None
    raise Unprovable(
        f"its first {most:,} entries on {names[1]} have no copy of what {names[0]} still "
        "holds; verify it with mode 'window'"
    )


async def origin_of(copies: Copies, index: int) -> Position | None:
    """The source position of an entry of the target; None if the target has no entry at all."""
    return await copies.origin(index) if len(copies.copies) else None
