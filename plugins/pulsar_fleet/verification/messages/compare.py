"""The comparison itself, for any reader: sum up both sides, then look closer only where the sums differ."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Protocol

from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import ALL, DigestRow, TopicDigest, differing_buckets
from pulsar_fleet.messages.ranges import EngineName
from pulsar_fleet.verification.messages.differences import Kind, Mismatch, name_differences
from pulsar_fleet.verification.messages.order import Placed, find_disorder
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification, assemble, judge_topic
from pulsar_fleet.verification.request import Pair, VerifyRequest

log = logging.getLogger(__name__)

NAMED_PER_KIND = 200
"""Contents per topic, of those missing and of those extra, that are looked at; all others are only counted."""

ORDERS_BESIDE = 20
"""Topics whose messages differ of which the order is looked at too: it takes another reading of each."""

_UNORDERED = f"its order was not looked at, because more than {ORDERS_BESIDE} topics differ"

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

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Iterable[DigestRow]]:
        """Digest rows of the pairs with the numbers `pairs`, per side."""
        ...

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Contents that the sides do not hold equally often, within the given buckets."""
        ...

    def displaced(self, request: VerifyRequest, pair: int) -> Sequence[Placed]:
        """Those of the messages that both sides hold which are not in the same place among them; the first ones."""
        ...


def judge(request: VerifyRequest, comparer: Comparer) -> Verification:
    """Compare everything that the request names. Reading again gives the same as long as the bounds are still held.

    Where whole entries are not equal, the messages in them decide: the pair is read again, message by message.
    """
    count = len(request.pairs)
    verdicts = _compare(request, comparer, range(count))
    closer = [
        number
        for number, pair in enumerate(request.pairs)
        if pair.engine is EngineName.ENTRY and verdicts[number].verdict is not Verdict.EQUAL
    ]
    if closer:
        # Numbers of their own, the same in every try of this request: digests are kept and found by them.
        by_message = (_by_message(*each) for each in zip(request.pairs, verdicts, strict=True))
        again = replace(request, pairs=(*request.pairs, *by_message))
        found = _compare(again, comparer, [count + number for number in closer])
        for number, verdict in zip(closer, found, strict=True):
            verdicts[number] = _after_entries(request.pairs[number], verdicts[number], verdict)
    return assemble(request, verdicts)


def _compare(request: VerifyRequest, comparer: Comparer, numbers: Sequence[int]) -> list[TopicVerdict]:
    """Verdicts of these pairs; differing messages are named where messages were read."""
    sums = comparer.sum_up(request, numbers)
    source, target = (_fold(request, side, numbers, sums[side]) for side in Side)
    nothing = TopicDigest()
    only: dict[int, frozenset[int]] = {}
    verdicts: dict[int, TopicVerdict] = {}
    for number in numbers:
        pair, here, there = request.pairs[number], source.get(number, nothing), target.get(number, nothing)
        verdicts[number] = judge_topic(pair, here, there)
        differs = verdicts[number].verdict is Verdict.DIFFERENT and pair.engine is EngineName.CLIENT
        if differs and (buckets := differing_buckets(here, there)):
            only[number] = buckets
    log.info("compared %d topics, %d differ in content", len(verdicts), len(only))
    found = comparer.mismatches(request, only) if only else {}
    for number in only:
        verdicts[number] = _named(verdicts[number], found.get(number), request.examples)
    beside = frozenset(islice(only, ORDERS_BESIDE))
    for number, verdict in verdicts.items():
        by_message = verdict.verdict is Verdict.DIFFERENT and request.pairs[number].engine is EngineName.CLIENT
        if by_message and (verdict.reordered or number in beside):
            verdicts[number] = _ordered(verdict, comparer.displaced(request, number), request.examples)
        elif by_message:
            verdicts[number] = replace(verdict, notes=(*verdict.notes, _UNORDERED))
    return [verdicts[number] for number in numbers]


def _ordered(verdict: TopicVerdict, displaced: Sequence[Placed], examples: int) -> TopicVerdict:
    """The verdict with what is out of order among the messages that both sides hold."""
    disorder = find_disorder(displaced)
    named = (*verdict.differences, *disorder.moves[:examples])
    if verdict.reordered:
        return replace(verdict, reason=disorder.reason, differences=named)
    return replace(verdict, reordered=True, reason=disorder.beside, differences=named) if disorder.moves else verdict


def _by_message(pair: Pair, verdict: TopicVerdict) -> Pair:
    """The pair for the other engine; an earlier proof is of whole entries, so it cannot be continued."""
    failed = f"because reading whole entries failed: {verdict.reason}"
    reason = "because whole entries were not equal" if verdict.verdict is Verdict.DIFFERENT else failed
    return replace(pair, engine=EngineName.CLIENT, engine_reason=reason, earlier=None)


def _after_entries(pair: Pair, entries: TopicVerdict, found: TopicVerdict) -> TopicVerdict:
    """What the messages say, beside what was found about the entries that hold them."""
    if found.verdict is not Verdict.EQUAL:
        return found
    if entries.verdict is Verdict.DIFFERENT:
        unlike = "the messages are equal, but they do not lie in equal entries: batches or their metadata differ"
        found = replace(found, notes=(*found.notes, unlike))
    if pair.earlier:
        run = pair.earlier["run"]
        alone = f"the digests are of what came after run {run} alone, so no run continues them; mode 'full' starts anew"
        found = replace(found, notes=(*found.notes, alone), proof={**found.proof, "after": run})
    return found


def _fold(
    request: VerifyRequest, side: Side, numbers: Sequence[int], rows: Iterable[DigestRow]
) -> dict[int, TopicDigest]:
    """Digests by pair. A range of which nothing came is a problem: silence is not taken for an empty range."""
    by_pair: dict[int, list[DigestRow]] = defaultdict(list)
    heard: set[tuple[int, int]] = set()
    for row in rows:
        by_pair[row.pair].append(row)
        heard.add((row.pair, row.index))
    for wanted in chain.from_iterable(request.groups(side, numbers)):
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
