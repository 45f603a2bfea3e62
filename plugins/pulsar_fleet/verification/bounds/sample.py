"""The pieces of a sample on both sides: chosen on the source, and found again on the target."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.positions import count_up_to, source_position
from pulsar_fleet.verification.coverage import Sample
from pulsar_fleet.verification.request import Pair


async def sampled(target: AdminClient, topic: TopicName, pair: Pair, sample: Sample) -> Pair:
    """The pair with the chosen pieces of the source, and the entries that they became; mostly two calls a piece."""
    spans = sample.choose(str(topic), pair.source.begin, pair.source.end)
    copied: list[tuple[int, int]] = []
    shift = pair.target.begin - pair.source.begin
    for begin, behind in spans:
        first = await _copy_of(target, topic, pair, begin, shift)
        shift = first - begin
        copied.append((first, await _copy_of(target, topic, pair, behind, shift)))
    return replace(pair, source=replace(pair.source, spans=spans), target=replace(pair.target, spans=tuple(copied)))


async def _copy_of(admin: AdminClient, topic: TopicName, pair: Pair, index: int, shift: int) -> int:
    """How many of the target's entries came from before the source's entry `index`; first it tries `shift` behind."""
    source, target = pair.source, pair.target
    if index >= source.end:
        return target.end
    wanted = source.ledgers.at(index)
    guess = index + shift
    if target.begin <= guess < target.end:
        found = await source_position(admin, topic, target.ledgers.at(guess))
        if found == wanted:
            return guess
    return await count_up_to(admin, topic, target.ledgers, Position(wanted.ledger, wanted.entry - 1))
