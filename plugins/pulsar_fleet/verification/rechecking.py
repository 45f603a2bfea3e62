"""After the reading: was it what we froze? Finds what would make a verdict wrong without anybody noticing."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.reading.environment import Side
from pulsar_fleet.reading.source_positions import Ledgers
from pulsar_fleet.verification.differences import Difference, Kind
from pulsar_fleet.verification.request import Pair, Problem, VerifyRequest
from pulsar_fleet.verification.verdict import TopicVerdict, Verdict, Verification

REPLICATED_FROM = "x-pulsar-replicated-from"
TOPICS_AT_ONCE = 8


async def recheck(
    source: AdminClient, target: AdminClient, request: VerifyRequest, found: Verification
) -> Verification:
    """The verdicts, but inconclusive where the topic was unloaded, trimmed or deleted under the reader, or where all
    differences are messages that were published on the target itself.

    A migrated topic that is unloaded cannot be loaded again, and its readers are sent to the other cluster without an
    error. So if it answers now, it was loaded all the time, and what was read is its own.
    """
    verdicts = {topic.topic: topic for namespace in found.namespaces for topic in namespace.topics}
    room = asyncio.Semaphore(TOPICS_AT_ONCE)

    async def one(pair: Pair) -> Problem | None:
        async with room:
            for side, admin in ((Side.SOURCE, source), (Side.TARGET, target)):
                if reason := await _disturbed(admin, pair, side, verdicts[pair.topic]):
                    return Problem(_namespace(pair), pair.topic, False, reason)
            if pair.publish_time and await _all_explained(source, target, pair, verdicts[pair.topic]):
                return Problem(_namespace(pair), pair.topic, False, _BOTH_WRITE)
            return None

    problems = await asyncio.gather(*(one(pair) for pair in request.pairs))
    return found.overruled([problem for problem in problems if problem])


_BOTH_WRITE = (
    "every difference is a message that was published on the side that holds it while the other one replicated: "
    "stop the writers on both sides and verify with mapping 'whole'"
)


async def _disturbed(admin: AdminClient, pair: Pair, side: Side, verdict: TopicVerdict) -> str:
    bounds = pair.bounds(side)
    if bounds.first is None:
        return ""
    topic = TopicName.parse(pair.topic)
    try:
        now = Ledgers.of(await admin.internal_stats(topic))
    except Conflict as error:
        return f"it was unloaded while it was read, and as a migrated topic it cannot be loaded again: {error}"
    except FleetError as error:
        return f"it could be read, but not be checked afterwards: {error}"
    oldest = now.at(0) if len(now) else None
    if verdict.verdict is not Verdict.EQUAL and (oldest is None or oldest > bounds.first):
        return f"{admin.connection.name} removed old messages while they were compared; verify again"
    return ""


async def _all_explained(source: AdminClient, target: AdminClient, pair: Pair, verdict: TopicVerdict) -> bool:
    named = verdict.differences
    if verdict.verdict is not Verdict.DIFFERENT or not named or verdict.differing > len(named):
        return False
    topic = TopicName.parse(pair.topic)
    for each in named:
        if not await _explained(source, target, topic, each):
            return False
    return True


async def _explained(source: AdminClient, target: AdminClient, topic: TopicName, each: Difference) -> bool:
    """Whether the message is on one side only because it was first published there, or came from the other one."""
    if each.kind is Kind.EXTRA and each.source is None and each.target:
        return REPLICATED_FROM not in await target.entry_properties(topic, _entry(each.target))
    if each.kind is Kind.MISSING and each.target is None and each.source:
        return REPLICATED_FROM in await source.entry_properties(topic, _entry(each.source))
    return False


def _entry(position: str) -> Position:
    return Position.parse(position.partition("[")[0])


def _namespace(pair: Pair) -> str:
    name: NamespaceName = TopicName.parse(pair.topic).namespace
    return str(name)
