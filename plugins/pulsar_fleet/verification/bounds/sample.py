"""The pieces of a sample on both clusters: chosen on the source, then located on the target."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.verification.coverage import Sample
from pulsar_fleet.verification.request import Pair


async def sample_pair(copies: Copies, pair: Pair, sample: Sample) -> Pair:
    """The pair with the pieces of the source and their copies on the target; usually two calls for each piece."""
    spans = sample.choose(str(copies.topic), pair.source.begin, pair.source.end)
    copied: list[tuple[int, int]] = []
    shift = pair.target.begin - pair.source.begin
    for begin, end in spans:
        first = await _copy_of(copies, pair, begin, shift)
        shift = first - begin
        copied.append((first, await _copy_of(copies, pair, end, shift)))
    return replace(pair, source=replace(pair.source, spans=spans), target=replace(pair.target, spans=tuple(copied)))


async def _copy_of(copies: Copies, pair: Pair, index: int, shift: int) -> int:
    """The number of the target's copies of entries before the source's `index`; tries `shift` first."""
    source, target = pair.source, pair.target
    if index >= source.end:
        return target.end
    position = source.ledgers.at(index)
    guess = index + shift
    if target.begin <= guess < target.end and await copies.origin(guess) == position:
        return guess
    return await copies.count_up_to(Position(position.ledger, position.entry - 1))
