"""The comparison without Spark, for small namespaces: all in this process, with the same digests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from pulsar_fleet.messages.checkpoints import Checkpoints, sum_up_group
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import DigestRow
from pulsar_fleet.messages.engines.throttle import Limits
from pulsar_fleet.messages.scan import Engine, Sighting, list_messages
from pulsar_fleet.verification.messages.compare import NAMED_PER_KIND, Mismatches, Only
from pulsar_fleet.verification.messages.differences import Mismatch, tally
from pulsar_fleet.verification.messages.order import MOST_DISPLACED, Placed, pair_up
from pulsar_fleet.verification.request import Progress, VerifyRequest


class InProcess:
    """Reads with the engines given, one per side.

    :param checkpoints: where finished ranges are kept; None to keep none.
    :param progress: takes how many entries were summed up, and of how many, after each group of ranges.
    """

    def __init__(
        self, engines: Mapping[Side, Engine], checkpoints: Checkpoints | None = None, progress: Progress | None = None
    ) -> None:
        self._engines = engines
        self._checkpoints = checkpoints
        self._progress = progress

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Iterable[DigestRow]]:
        """Digest rows of these pairs, per side."""
        found: dict[Side, list[DigestRow]] = {side: [] for side in Side}
        groups = [(side, group) for side in Side for group in request.groups(side, pairs)]
        done, entries = 0, sum(wanted.entries for _, group in groups for wanted in group)
        engines = {side: self._engine(request, side) for side in Side}
        for side, group in groups:
            found[side].extend(sum_up_group(engines[side], side, group, request.buckets, self._checkpoints))
            done += sum(wanted.entries for wanted in group)
            if self._progress:
                self._progress(done, entries)
        return found

    def _engine(self, request: VerifyRequest, side: Side) -> Engine:
        return Limits(**request.limits(readers=1)).on(self._engines[side])

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Topic by topic, so that the messages of one topic's differing buckets are all that is held in memory."""
        found: dict[int, Mismatches] = {}
        for number, buckets in only.items():
            source, target = (self._listed(request, side, number, buckets) for side in Side)
            found |= summarize(tally(source, target))
        return found

    def displaced(self, request: VerifyRequest, pair: int) -> list[Placed]:
        """All messages of the pair are held in memory, without their payloads."""
        everything = frozenset(range(request.buckets))
        source, target = (self._listed(request, side, pair, everything) for side in Side)
        return pair_up(source, target)[:MOST_DISPLACED]

    def _listed(self, request: VerifyRequest, side: Side, number: int, buckets: frozenset[int]) -> Iterator[Sighting]:
        for wanted in chain.from_iterable(request.groups(side, [number])):
            yield from list_messages(self._engine(request, side), wanted, buckets, request.buckets)


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
