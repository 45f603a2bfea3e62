"""The comparison for any backend: compare the digests of both clusters, then list messages only where they differ."""

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
from pulsar_fleet.verification.messages.order import PlacedMessage, find_disorder
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification, assemble, evaluate_topic
from pulsar_fleet.verification.request import Address, ChosenEngine, Order, Pair, VerifyRequest

_Content = tuple[object, ...]


def with_exchanges(verdicts: Sequence[TopicVerdict], source: Address, target: Address) -> list[TopicVerdict]:
    """The verdicts; a different topic says which other topic of the target holds all its messages in their order.

    Its messages are not described one by one: each would look lost, and each of the other topic's of unknown origin.
    """
    different = [verdict for verdict in verdicts if verdict.verdict is Verdict.DIFFERENT and not verdict.compacted]
    holders: dict[_Content, list[str]] = defaultdict(list)
    contents = {verdict.topic: {side: _content(verdict, side) for side in Side} for verdict in different}
    for topic, sides in contents.items():
        if (content := sides[Side.TARGET]) is not None:
            holders[content].append(topic)

    def holder(topic: str) -> str | None:
        content = contents[topic][Side.SOURCE]
        others = holders.get(content, ()) if content is not None else ()
        return min((other for other in others if other != topic), default=None)

    def named(verdict: TopicVerdict) -> TopicVerdict:
        if verdict.compacted or verdict.topic not in contents or (other := holder(verdict.topic)) is None:
            return verdict
        cause = f"{other} on {target.name} holds what this topic holds on {source.name}"
        if holder(other) == verdict.topic:
            cause += ", and the other way round: the contents of the two topics were exchanged"
        return replace(verdict, reason="; ".join(part for part in (verdict.reason, cause) if part), differences=())

    return [named(verdict) for verdict in verdicts]


def _content(verdict: TopicVerdict, side: Side) -> _Content | None:
    """What identifies the content of a topic on one cluster; None if it holds nothing or was not read."""
    proof = verdict.proof.get(side.value)
    if not proof or not proof.get("messages"):
        return None
    digest = tuple(proof.get(name) for name in ("messages", "sums", "order", "engine", "encoding"))
    return (*digest, verdict.proof.get("publish_time"), verdict.proof.get("compacted"))


log = logging.getLogger(__name__)

NAMED_PER_KIND = 200
"""The most missing and the most extra contents of a topic that are described; others are only counted."""

MOST_ORDER_CHECKS = 20
"""The most topics with differing messages whose order is checked too, because that reads each of them again."""

_UNORDERED = f"its order was not checked, because more than {MOST_ORDER_CHECKS} topics differ"

Only = Mapping[int, frozenset[int]]
"""Buckets to list, by the number of the pair."""


@dataclass(frozen=True, slots=True)
class Mismatches:
    """The differing messages of one topic: the numbers of missing and extra ones, and the first contents.

    :param foreign: the extra messages whose content the source does not have at all.
    """

    missing: int
    extra: int
    foreign: int
    first: Sequence[Mismatch]


class Comparer(Protocol):
    """A backend that reads: Spark, or this process."""

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Iterable[DigestRow]]:
        """The digest rows of the pairs with the numbers `pairs`, by side."""
        ...

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        """Contents in the given buckets that the clusters do not have equally often."""
        ...

    def displaced(self, request: VerifyRequest, pair: int) -> Sequence[PlacedMessage]:
        """Common messages that have another place among the common messages of the other cluster.

        At most `MOST_DISPLACED`; first those that break the order of a producer or of a key.
        """
        ...


def judge(request: VerifyRequest, comparer: Comparer) -> Verification:
    """Compare all pairs of the request. A second call gives the same while the clusters keep the entries in the bounds.

    If whole entries are not equal, their messages decide: the pair is read again by message.
    """
    count = len(request.pairs)
    verdicts = _compare(request, comparer, range(count))
    unequal = [
        number
        for number, pair in enumerate(request.pairs)
        if pair.engine.name is EngineName.ENTRY and verdicts[number].verdict is not Verdict.EQUAL
    ]
    if unequal:
        # New pair numbers, the same in each attempt of this request, because checkpoints are found by pair number.
        by_message = (_by_message(*compared) for compared in zip(request.pairs, verdicts, strict=True))
        reread = replace(request, pairs=(*request.pairs, *by_message))
        message_verdicts = _compare(reread, comparer, [count + number for number in unequal])
        for number, verdict in zip(unequal, message_verdicts, strict=True):
            verdicts[number] = _after_entries(request.pairs[number], verdicts[number], verdict)
    return assemble(request, with_exchanges(verdicts, request.source, request.target))


def _compare(request: VerifyRequest, comparer: Comparer, numbers: Sequence[int]) -> list[TopicVerdict]:
    """Verdicts of these pairs, with differences for pairs that were read by message."""
    sums = comparer.sum_up(request, numbers)
    source, target = (_fold(request, side, numbers, sums[side]) for side in Side)
    nothing = TopicDigest()
    only: dict[int, frozenset[int]] = {}
    verdicts: dict[int, TopicVerdict] = {}
    for number in numbers:
        pair = request.pairs[number]
        source_digest, target_digest = source.get(number, nothing), target.get(number, nothing)
        verdicts[number] = evaluate_topic(pair, source_digest, target_digest)
        differs = verdicts[number].verdict is Verdict.DIFFERENT and pair.engine.name is EngineName.MESSAGE
        if differs and (buckets := differing_buckets(source_digest, target_digest)):
            only[number] = buckets
    log.info("compared %d topics, %d differ in content", len(verdicts), len(only))
    by_number = comparer.mismatches(request, only) if only else {}
    for number in only:
        verdicts[number] = _with_differences(verdicts[number], by_number.get(number), request.examples)
    order_checked = frozenset(islice(only, MOST_ORDER_CHECKS))
    for number, verdict in verdicts.items():
        by_message = verdict.verdict is Verdict.DIFFERENT and request.pairs[number].engine.name is EngineName.MESSAGE
        if by_message and (verdict.reordered or number in order_checked):
            verdicts[number] = _ordered(verdict, comparer.displaced(request, number), request)
        elif by_message:
            verdicts[number] = replace(verdict, notes=(*verdict.notes, _UNORDERED))
    return [verdicts[number] for number in numbers]


def _ordered(verdict: TopicVerdict, displaced: Sequence[PlacedMessage], request: VerifyRequest) -> TopicVerdict:
    """The verdict with the disorder of the messages that both clusters have.

    If the order of each producer and of each key is kept, only `Order.TOTAL` makes it a difference.
    """
    disorder = find_disorder(displaced)
    if disorder.is_harmless and request.order is Order.PRODUCER_AND_KEY:
        if not disorder.moves:
            return verdict
        noted = replace(verdict, notes=(*verdict.notes, disorder.note))
        return replace(noted, verdict=Verdict.EQUAL, reason="") if verdict.reordered else noted
    named = (*verdict.differences, *disorder.moves[: request.examples])
    if verdict.reordered:
        return replace(verdict, reason=disorder.reason, differences=named)
    if not disorder.moves:
        return verdict
    return replace(verdict, reordered=True, reason=disorder.partial_reason, differences=named)


def _by_message(pair: Pair, verdict: TopicVerdict) -> Pair:
    """The pair for engine `message`, without the earlier proof, which is of whole entries."""
    failed = f"because reading whole entries failed: {verdict.reason}"
    reason = "because whole entries were not equal" if verdict.verdict is Verdict.DIFFERENT else failed
    return replace(pair, engine=ChosenEngine(EngineName.MESSAGE, reason), earlier=None)


def _after_entries(pair: Pair, entry_verdict: TopicVerdict, message_verdict: TopicVerdict) -> TopicVerdict:
    """The verdict on the messages, with notes about their entries."""
    if message_verdict.verdict is not Verdict.EQUAL:
        return message_verdict
    if entry_verdict.verdict is Verdict.DIFFERENT:
        note = "the messages are equal, but they do not lie in equal entries: batches or their metadata differ"
        message_verdict = replace(message_verdict, notes=(*message_verdict.notes, note))
    if pair.earlier:
        run = pair.earlier["run"]
        restart = f"the digests cover only the part after run {run}, so no run continues them; mode 'full' starts again"
        message_verdict = replace(
            message_verdict, notes=(*message_verdict.notes, restart), proof={**message_verdict.proof, "after": run}
        )
    return message_verdict


def _fold(
    request: VerifyRequest, side: Side, numbers: Sequence[int], rows: Iterable[DigestRow]
) -> dict[int, TopicDigest]:
    """Digests by pair. A range without any row is a problem: it counts as unread, not as empty."""
    by_pair: dict[int, list[DigestRow]] = defaultdict(list)
    answered: set[tuple[int, int]] = set()
    for row in rows:
        by_pair[row.pair].append(row)
        answered.add((row.pair, row.index))
    for entry_range in chain.from_iterable(request.groups(side, numbers)):
        if (entry_range.pair, entry_range.index) not in answered:
            unread = f"its entries from {entry_range.first} to {entry_range.last} were not read; verify again"
            by_pair[entry_range.pair].append(DigestRow(entry_range.pair, entry_range.index, ALL, problem=unread))
    return {pair: TopicDigest.fold(pair_rows) for pair, pair_rows in by_pair.items()}


def _with_differences(verdict: TopicVerdict, mismatches: Mismatches | None, examples: int) -> TopicVerdict:
    if mismatches is None:
        contradiction = "the digests differ, but a second read found the same messages on both clusters; verify again"
        return replace(verdict, verdict=Verdict.INCONCLUSIVE, reason=contradiction)
    named = name_differences(mismatches.first)
    differing = mismatches.missing + mismatches.extra - sum(difference.kind is Kind.ALTERED for difference in named)
    repeated = mismatches.extra if not (mismatches.missing or mismatches.foreign) else 0
    return replace(verdict, differing=differing, differences=tuple(named[:examples]), repeated=repeated)
