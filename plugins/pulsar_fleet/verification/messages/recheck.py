"""The check after a read: whether the frozen entries were read, and the cause of each described difference."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.copies import REPLICATED_FROM, source_position_in
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.verification.bounds.compaction import compacted_to
from pulsar_fleet.verification.messages.differences import (
    Cause,
    Circumstances,
    Difference,
    Headers,
    Kind,
    cause_of_extra,
    cause_of_missing,
    explanation,
)
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import Pair, VerifyRequest

TOPICS_AT_ONCE = 8
_CIPHER = {"payload", "encryption"}


async def recheck(
    source: AdminClient, target: AdminClient, request: VerifyRequest, verification: Verification
) -> Verification:
    """The verdicts with the causes of described differences; inconclusive if the topic was unloaded, trimmed, compacted
    or deleted during the read, or if every difference is expected.

    A migrated topic that is unloaded cannot be loaded again, and its readers are sent to the other cluster without an
    error. So if the topic answers now, it was loaded all the time, and its own messages were read.
    """
    verdicts = {topic.key: topic for namespace in verification.namespaces for topic in namespace.topics}
    slots = asyncio.Semaphore(TOPICS_AT_ONCE)
    explainer = _Explainer(source, target)

    async def check(pair: Pair) -> TopicVerdict:
        verdict = verdicts[pair.key]
        async with slots:
            try:
                if reason := await _disturbed(source, target, pair, verdict):
                    return replace(verdict, verdict=Verdict.INCONCLUSIVE, reason=reason)
                return await explainer.explain(request, pair, verdict)
            except FleetError as error:
                reason = f"it was read, but the check after the read failed: {error}"
                return replace(verdict, verdict=Verdict.INCONCLUSIVE, reason=reason)

    return verification.revised(await asyncio.gather(*(check(pair) for pair in request.pairs)))


async def _disturbed(source: AdminClient, target: AdminClient, pair: Pair, verdict: TopicVerdict) -> str:
    """The event during the read that invalidates the verdict; empty if there was none."""
    trimmed: list[str] = []
    for side, admin in ((Side.SOURCE, source), (Side.TARGET, target)):
        bounds = pair.bounds(side)
        if bounds.first is None or bounds.last is None:
            continue
        try:
            stats = await admin.internal_stats(TopicName.parse(pair.topic))
        except Conflict as error:
            return f"it was unloaded while it was read, and as a migrated topic it cannot be loaded again: {error}"
        if pair.compacted:
            if compacted_to(stats) > bounds.last:
                return f"{admin.connection.name} compacted it beyond the frozen end meanwhile; verify again"
        elif ((now := Ledgers.of(stats)) and now.at(0) > bounds.first) or not now:
            trimmed.append(admin.connection.name)
    # If the digests are equal and one cluster is trimmed, all was read before; if both are, both may lack the same.
    if len(trimmed) == 2 or (trimmed and verdict.verdict is not Verdict.EQUAL):
        return f"{' and '.join(trimmed)} removed old messages while they were compared; verify again"
    return ""


@dataclass(frozen=True, slots=True)
class _Explainer:
    """Explains differences between two clusters; up to two HTTP calls for each described difference."""

    source: AdminClient
    target: AdminClient

    async def explain(self, request: VerifyRequest, pair: Pair, topic_verdict: TopicVerdict) -> TopicVerdict:
        """The verdict with causes; inconclusive if all differences are described and expected."""
        described = topic_verdict.differences if topic_verdict.differing else ()
        if topic_verdict.verdict is not Verdict.DIFFERENT or not described:
            return topic_verdict
        topic = TopicName.parse(pair.topic)
        circumstances = await self._circumstances(request, pair, topic)
        named = tuple([await self._explained(topic, item, circumstances) for item in described])
        causes = [difference.cause for difference in named if difference.cause]
        undescribed = topic_verdict.differing > len(named)
        if topic_verdict.reordered or undescribed or not all(cause.expected for cause in causes):
            return replace(topic_verdict, differences=named)
        reason = explanation(causes, circumstances)
        return replace(topic_verdict, differences=named, verdict=Verdict.INCONCLUSIVE, reason=reason)

    async def _explained(self, topic: TopicName, difference: Difference, circumstances: Circumstances) -> Difference:
        if difference.kind is Kind.REORDERED:
            return difference
        return replace(difference, cause=await self._cause(topic, difference, circumstances))

    async def _circumstances(self, request: VerifyRequest, pair: Pair, topic: TopicName) -> Circumstances:
        policies: JsonObject = await self.source.namespace(topic.namespace) or {}
        return Circumstances(
            source=request.source.name,
            target=request.target.name,
            replicated=pair.publish_time,
            ttl_seconds=policies.get("message_ttl_in_seconds") or 0,
            now=round(time.time() * 1000),
        )

    async def _cause(self, topic: TopicName, difference: Difference, circumstances: Circumstances) -> Cause:
        if difference.copies:
            return Cause.LOST if difference.kind is Kind.MISSING else Cause.DUPLICATED
        if difference.kind is Kind.MISSING:
            return cause_of_missing(
                await _entry(self.source, topic, difference.source), difference.publish_time, circumstances
            )
        entry = await _entry(self.target, topic, difference.target)
        if difference.kind is Kind.EXTRA:
            return cause_of_extra(entry, await self._original(topic, entry, circumstances), circumstances)
        by_cipher = {name for name, _, _ in difference.fields} <= _CIPHER and not circumstances.replicated
        return Cause.ENCRYPTED if by_cipher and (entry or {}).get("x-pulsar-is-encrypted") == "true" else Cause.ALTERED

    async def _original(self, topic: TopicName, entry: Headers, circumstances: Circumstances) -> Headers:
        """The source's entry at the source position of a replicated entry."""
        if entry is None or entry.get(REPLICATED_FROM) != circumstances.source:
            return {}
        origin = source_position_in(entry)
        return await _entry(self.source, topic, origin) if origin else {}


async def _entry(admin: AdminClient, topic: TopicName, position: str | None) -> Headers:
    try:
        return await admin.entry_properties(topic, Position.parse((position or "").partition("[")[0]))
    except NotFound:
        return None
