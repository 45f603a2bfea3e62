"""The comparison itself, for any reader: sum up both sides, then look closer only where the sums differ."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from pulsar_fleet.reading.digests import ALL, DigestRow, TopicDigest, differing_buckets
from pulsar_fleet.reading.environment import Side
from pulsar_fleet.verification.differences import Kind, Mismatch, name_differences
from pulsar_fleet.verification.ordering import Placed, find_disorder
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.verdict import TopicVerdict, Verdict, Verification, assemble, judge_topic

log = logging.getLogger(__name__)

NAMED_PER_KIND = 200
"""Contents per topic, of those missing and of those extra, that are looked at; all others are only counted."""

Only = Mapping[int, frozenset[int]]
"""Buckets to list, by the number of the pair."""


@dataclass(frozen=True, slots=True)
class Mismatches:
    """What differs in one topic: messages missing and extra in number, and the first contents of them."""

    missing: int
    extra: int
    first: Sequence[Mismatch]


class Comparer(Protocol):
    """Who reads: Spark, or this process."""

    def sum_up(self, request: VerifyRequest) -> Mapping[Side, Iterable[DigestRow]]:
        """Digest rows of all pairs, per side."""
        ...

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Contents that the sides do not hold equally often, within the given buckets."""
        ...

    def displaced(self, request: VerifyRequest, pair: int) -> Sequence[Placed]:
        """Messages of a pair that are not in the same place on both sides, which hold the same ones; the first ones."""
        ...


def judge(request: VerifyRequest, comparer: Comparer) -> Verification:
    """Compare everything that the request names. Reading again gives the same as long as the bounds are still held."""
    sums = comparer.sum_up(request)
    source, target = (_fold(request, side, sums[side]) for side in Side)
    nothing = TopicDigest()
    only: dict[int, frozenset[int]] = {}
    verdicts: list[TopicVerdict] = []
    for number, pair in enumerate(request.pairs):
        here, there = source.get(number, nothing), target.get(number, nothing)
        verdicts.append(judge_topic(pair, here, there))
        if verdicts[-1].verdict is Verdict.DIFFERENT and (buckets := differing_buckets(here, there)):
            only[number] = buckets
    log.info("compared %d topics, %d differ in content", len(verdicts), len(only))
    found = comparer.mismatches(request, only) if only else {}
    for number in only:
        verdicts[number] = _named(verdicts[number], found.get(number), request.examples)
    for number, verdict in enumerate(verdicts):
        if verdict.reordered:
            disorder = find_disorder(comparer.displaced(request, number))
            verdicts[number] = replace(verdict, reason=disorder.reason, differences=disorder.moves[: request.examples])
    return assemble(request, verdicts)


def _fold(request: VerifyRequest, side: Side, rows: Iterable[DigestRow]) -> dict[int, TopicDigest]:
    """Digests by pair. A range of which nothing came is a problem: silence is not taken for an empty range."""
    by_pair: dict[int, list[DigestRow]] = defaultdict(list)
    heard: set[tuple[int, int]] = set()
    for row in rows:
        by_pair[row.pair].append(row)
        heard.add((row.pair, row.index))
    for wanted in chain.from_iterable(request.groups(side)):
        if (wanted.pair, wanted.index) not in heard:
            silent = f"nobody read its entries from {wanted.first} to {wanted.last}; verify again"
            by_pair[wanted.pair].append(DigestRow(wanted.pair, wanted.index, ALL, problem=silent))
    return {pair: TopicDigest.fold(each) for pair, each in by_pair.items()}


def _named(verdict: TopicVerdict, found: Mismatches | None, examples: int) -> TopicVerdict:
    if found is None:
        contradiction = "the sums differ, but a second reading found the same messages on both sides; verify again"
        return replace(verdict, verdict=Verdict.INCONCLUSIVE, reason=contradiction)
    named = name_differences(found.first)
    differing = found.missing + found.extra - sum(each.kind is Kind.ALTERED for each in named)
    return replace(verdict, differing=differing, differences=tuple(named[:examples]))
