"""The check after a read that the frozen entries were read: it detects events that make a verdict wrong."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.verification.bounds.compaction import compacted_to
from pulsar_fleet.verification.messages.diagnosis import Explainer
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import Pair, VerifyRequest

TOPICS_AT_ONCE = 8


async def recheck(
    source: AdminClient, target: AdminClient, request: VerifyRequest, verification: Verification
) -> Verification:
    """The verdicts with the causes of described differences; inconclusive if the topic was unloaded, trimmed, compacted
    or deleted during the read, or if every difference is expected.

    A migrated topic that is unloaded cannot be loaded again, and its readers are sent to the other cluster without an
    error. So if the topic answers now, it was loaded all the time, and its own messages were read.
    """
    verdicts = {topic.topic: topic for namespace in verification.namespaces for topic in namespace.topics}
    slots = asyncio.Semaphore(TOPICS_AT_ONCE)
    explainer = Explainer(source, target)

    async def check(pair: Pair) -> TopicVerdict:
        verdict = verdicts[pair.topic]
        async with slots:
            try:
                if reason := await _disturbed(source, target, pair, verdict):
                    return replace(verdict, verdict=Verdict.INCONCLUSIVE, reason=reason)
                return await explainer.explain(request, pair, verdict)
            except FleetError as error:
                reason = f"it was read, but the check after the read failed: {error}"
                return replace(verdict, verdict=Verdict.INCONCLUSIVE, reason=reason)

    revised = await asyncio.gather(*(check(pair) for pair in request.pairs))
    return verification.revised({verdict.topic: verdict for verdict in revised})


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
