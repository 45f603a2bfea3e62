"""The comparison without Spark, for small namespaces: all in this process, with the same digests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from pulsar_fleet.reading.digests import DigestRow
from pulsar_fleet.reading.environment import Side
from pulsar_fleet.reading.passes import Engine, Sighting, list_messages, sum_up
from pulsar_fleet.verification.differences import Mismatch, tally
from pulsar_fleet.verification.judge import NAMED_PER_KIND, Mismatches, Only
from pulsar_fleet.verification.request import VerifyRequest


class InProcess:
    """Reads with the engines given, one per side."""

    def __init__(self, engines: Mapping[Side, Engine]) -> None:
        self._engines = engines

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int] | None = None) -> Mapping[Side, Iterable[DigestRow]]:
        """Digest rows of all pairs, or of those with the numbers `pairs`, per side."""
        return {
            side: [
                row
                for wanted in chain.from_iterable(request.groups(side, pairs))
                for row in sum_up(self._engines[side], wanted, request.buckets)
            ]
            for side in Side
        }

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Topic by topic, so that the messages of one topic's differing buckets are all that is held in memory."""
        found: dict[int, Mismatches] = {}
        for number, buckets in only.items():
            source, target = (self._listed(request, side, number, buckets) for side in Side)
            found |= summarize(tally(source, target))
        return found

    def _listed(self, request: VerifyRequest, side: Side, number: int, buckets: frozenset[int]) -> Iterator[Sighting]:
        for wanted in chain.from_iterable(request.groups(side, [number])):
            yield from list_messages(self._engines[side], wanted, buckets, request.buckets)


def summarize(found: Iterable[Mismatch]) -> dict[int, Mismatches]:
    """Counts per pair, and the first contents in topic order."""
    by_pair: dict[int, list[Mismatch]] = defaultdict(list)
    for each in found:
        by_pair[each.pair].append(each)
    return {pair: _summary(each) for pair, each in by_pair.items()}


def _summary(found: list[Mismatch]) -> Mismatches:
    missing = [each for each in found if each.in_source > each.in_target]
    extra = [each for each in found if each.in_source < each.in_target]
    return Mismatches(
        missing=sum(each.in_source - each.in_target for each in missing),
        extra=sum(each.in_target - each.in_source for each in extra),
        first=[*missing[:NAMED_PER_KIND], *extra[:NAMED_PER_KIND]],
    )
