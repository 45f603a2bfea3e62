"""The backend without Spark, for small namespaces: it reads in this process and makes the same digests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pulsar_fleet.messages.checkpoints import Checkpoints, sum_up_ranges
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import DigestRow
from pulsar_fleet.messages.engines.base import Engine, Limits
from pulsar_fleet.messages.scan import MessageRecord, list_messages
from pulsar_fleet.verification.messages.compare import NAMED_PER_KIND, Mismatches, Only
from pulsar_fleet.verification.messages.differences import Mismatch, count_mismatches
from pulsar_fleet.verification.messages.order import MOST_DISPLACED, PlacedMessage, match_messages
from pulsar_fleet.verification.request import Progress, VerifyRequest


@dataclass
class LocalBackend:
    """Reads with one engine for each cluster.

    :param checkpoints: where finished ranges are written; None writes none.
    :param progress: takes, after each group of ranges, the number of entries that were read and their total.
    """

    engines: Mapping[Side, Engine]
    checkpoints: Checkpoints | None = None
    progress: Progress | None = None

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Iterable[DigestRow]]:
        """The digest rows of these pairs, by side."""
        rows: dict[Side, list[DigestRow]] = {side: [] for side in Side}
        groups = [(side, group) for side in Side for group in request.groups(side, pairs)]
        done, entries = 0, sum(entry_range.entries for _, group in groups for entry_range in group)
        engines = {side: self._engine(request, side) for side in Side}
        for side, group in groups:
            rows[side].extend(sum_up_ranges(engines[side], side, group, request.buckets, self.checkpoints))
            done += sum(entry_range.entries for entry_range in group)
            if self.progress:
                self.progress(done, entries)
        return rows

    def _engine(self, request: VerifyRequest, side: Side) -> Engine:
        return Limits(**request.limits(readers=1)).on(self.engines[side])

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Topic by topic, so that memory holds only the messages in the differing buckets of one topic."""
        by_number: dict[int, Mismatches] = {}
        for number, buckets in only.items():
            source, target = (self._listed(request, side, number, buckets) for side in Side)
            by_number |= summarize(count_mismatches(source, target))
        return by_number

    def displaced(self, request: VerifyRequest, pair: int) -> list[PlacedMessage]:
        """Memory holds all messages of the pair, without their payloads."""
        everything = frozenset(range(request.buckets))
        source, target = (self._listed(request, side, pair, everything) for side in Side)
        return match_messages(source, target)[:MOST_DISPLACED]

    def _listed(
        self, request: VerifyRequest, side: Side, number: int, buckets: frozenset[int]
    ) -> Iterator[MessageRecord]:
        for entry_range in chain.from_iterable(request.groups(side, [number])):
            yield from list_messages(self._engine(request, side), entry_range, buckets, request.buckets)


def summarize(mismatches: Iterable[Mismatch]) -> dict[int, Mismatches]:
    """Counts per pair, and the first contents in topic order."""
    by_pair: dict[int, list[Mismatch]] = defaultdict(list)
    for mismatch in mismatches:
        by_pair[mismatch.pair].append(mismatch)
    return {pair: _summary(mismatch) for pair, mismatch in by_pair.items()}


def _summary(mismatches: list[Mismatch]) -> Mismatches:
    missing = [mismatch for mismatch in mismatches if mismatch.in_source > mismatch.in_target]
    extra = [mismatch for mismatch in mismatches if mismatch.in_source < mismatch.in_target]
    return Mismatches(
        missing=sum(mismatch.in_source - mismatch.in_target for mismatch in missing),
        extra=sum(mismatch.in_target - mismatch.in_source for mismatch in extra),
        foreign=sum(mismatch.in_target for mismatch in extra if not mismatch.in_source),
        first=[*missing[:NAMED_PER_KIND], *extra[:NAMED_PER_KIND]],
    )
