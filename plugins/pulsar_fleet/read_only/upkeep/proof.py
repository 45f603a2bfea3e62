"""Freeze what is compared between sources and their shadow topics, to prove that readers get everything."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.read_only.observe import partitions_of, sources_served_in
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice, choose_engine
from pulsar_fleet.verification.coverage import Mode
from pulsar_fleet.verification.request import Address, Pair, Problem, VerifyRequest

TOPICS_AT_ONCE = 8
_UNSEEN = 1
"""Entries at the end of an open ledger that a shadow topic may get only with the next one."""
_CATCH_UP_SECONDS = 30.0
_POLL_SECONDS = 0.5


async def freeze_served(
    admin: AdminClient, namespace: NamespaceName, *, max_bytes_per_second: int | None = None
) -> VerifyRequest:
    """Freeze the entries that every source of a read-only namespace has now; the shadow topics must have the same.

    Waits until a shadow topic has all but the last entry of its source. What cannot be compared is a problem of the
    request, never left out. It loads the topics. Calls: one for each topic, two and more for each of its partitions.

    :raises NotFound: the namespace does not exist.
    :raises PreconditionFailed: no topic is served there.
    """
    sources = await sources_served_in(admin, namespace)
    if not sources:
        raise PreconditionFailed(
            f"No topic is served in {namespace}: name a namespace that serve_read_only has made.",
            cluster=admin.connection.name,
        )
    own, slots = await admin.cluster_name(), asyncio.Semaphore(TOPICS_AT_ONCE)

    async def freeze(source: TopicName) -> list[Pair | Problem]:
        async with slots:
            return await _of_topic(admin, source, TopicName(namespace, source.local))

    outcomes = [outcome for outcomes in await asyncio.gather(*map(freeze, sources)) for outcome in outcomes]
    return VerifyRequest(
        source=Address.of(admin.connection, own),
        target=Address.of(admin.connection, f"{own} ({namespace})"),
        namespaces=tuple(dict.fromkeys(str(source.namespace) for source in sources)),
        pairs=tuple(outcome for outcome in outcomes if isinstance(outcome, Pair)),
        problems=tuple(outcome for outcome in outcomes if isinstance(outcome, Problem)),
        max_bytes_per_second=max_bytes_per_second,
    )


async def _of_topic(admin: AdminClient, source: TopicName, shadow: TopicName) -> list[Pair | Problem]:
    theirs, ours = await partitions_of(admin, source), await partitions_of(admin, shadow)
    if theirs is None or ours is None:
        gone = source if theirs is None else shadow
        return [_problem(source, f"{gone} does not exist any more", different=False)]
    served = dict(zip(source.partitions(theirs), shadow.partitions(ours), strict=False))
    missing = [topic for topic in source.partitions(theirs) if topic not in served]
    return [
        *[await _pair(admin, one, other) for one, other in served.items()],
        *(_problem(topic, "the shadow topic has no such partition", different=True) for topic in missing),
    ]


async def _pair(admin: AdminClient, source: TopicName, shadow: TopicName) -> Pair | Problem:
    first = TopicBounds.whole(str(source), await admin.internal_stats(source))
    deadline = time.monotonic() + _CATCH_UP_SECONDS
    while True:
        served = TopicBounds.whole(str(shadow), await admin.internal_stats(shadow))
        end = min(first.ledgers.index_after(served.last), len(first.ledgers)) if served.last else 0
        behind = len(first.ledgers) - end
        if behind <= _UNSEEN:
            break
        if time.monotonic() > deadline:
            return _problem(source, f"{shadow} is {behind:,} entries behind", different=True)
        await asyncio.sleep(_POLL_SECONDS)
    # What retention has removed meanwhile is compared on neither.
    now = TopicBounds.whole(str(source), await admin.internal_stats(source))
    begin = first.ledgers.index_after(_before(now.first)) if now.first else end
    bounds = replace(first, begin=min(begin, end), end=end)
    if bounds.last is None:
        return Pair(str(source), bounds, replace(served, end=0), publish_time=True)
    if served.first is None or (bounds.first and served.first > bounds.first):
        return _problem(source, f"{shadow} begins with {served.first}, the source with {bounds.first}", different=True)
    target = replace(
        served,
        begin=served.ledgers.index_after(_before(bounds.first)) if bounds.first else 0,
        end=served.ledgers.index_after(bounds.last),
    )
    notes = ("the last entry of its open ledger comes to the shadow topic with the next one",) if behind else ()
    pair = Pair(str(source), bounds, target, publish_time=True, notes=notes)
    return await choose_engine(admin, pair, EngineChoice.AUTO, Mode.FULL)


def _before(position: Position) -> Position:
    return Position(position.ledger, position.entry - 1)


def _problem(source: TopicName, reason: str, *, different: bool) -> Problem:
    return Problem(str(source.namespace), str(source), different, reason)
