"""Compare the subscriptions of topics on two clusters: exactly which messages would come again, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.cursors import cursors_in_stats
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.scan import Engine
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors, unread_by
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import Pair, Progress, VerifyRequest
from pulsar_fleet.verification.subscriptions.correspondence import Correspondence, OneToOne
from pulsar_fleet.verification.subscriptions.evaluate import judge_subscription, movement, type_note
from pulsar_fleet.verification.subscriptions.examples import DeliveryNames
from pulsar_fleet.verification.subscriptions.match import Partners, Unclear, Unread
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerdict, TopicSubscriptions


async def read_subscriptions(
    admin: AdminClient, topic: TopicName, numbers: Ledgers, *, end: int
) -> dict[str, SubscriptionCursor]:
    """Every durable subscription of applications, by name; cursors of replication, compaction and readers are none.

    :param end: entries from this number on are left out, since they came after the bounds were frozen.
    :raises FleetError: the broker does not answer, or in a form that we do not know. **Loads the topic.**
    """
    stats, internal_stats = await asyncio.gather(admin.stats(topic, precise=False), admin.internal_stats(topic))
    return subscription_cursors(numbers, TopicStats.of(topic, stats), internal_stats, end=end)


async def read_unread(admin: AdminClient, topic: TopicName, numbers: Ledgers, *, end: int) -> Mapping[str, Intervals]:
    """The unread entries of every cursor, by the subscription's name; the broker's own cursors are among them."""
    cursors = cursors_in_stats(await admin.internal_stats(topic))
    return {name: unread_by(cursor, numbers, end) for name, cursor in cursors.items()}


TOPICS_AT_ONCE = 8
States = Mapping[Side, Mapping[str, SubscriptionCursor]]


async def compare_pairs(
    source: AdminClient, target: AdminClient, request: VerifyRequest, progress: Progress | None = None
) -> list[TopicSubscriptions]:
    """Every pair of the request, between the bounds that it froze; six calls a topic, more where anything is unread.

    Nothing is consumed and no subscription is touched. What cannot be compared is inconclusive and says why.

    :param progress: takes how many topics are done, and of how many.
    """
    # Loads the pulsar client, which nothing that only plans needs.
    from pulsar_fleet.messages.engines.engines import Engines

    with ExitStack() as stack:
        engines = {
            Side.SOURCE: stack.enter_context(Engines(source.connection)),
            Side.TARGET: stack.enter_context(Engines(target.connection)),
        }
        comparer = SubscriptionComparer(source, target, engines, request)
        room = asyncio.Semaphore(TOPICS_AT_ONCE)
        done = 0

        async def one(pair: Pair) -> TopicSubscriptions:
            nonlocal done
            async with room:
                found = await comparer.compare(pair)
            done += 1
            if progress:
                progress(done, len(request.pairs))
            return found

        return list(await asyncio.gather(*(one(pair) for pair in request.pairs)))


class SubscriptionComparer:
    """Compares the subscriptions of one topic after the other."""

    def __init__(
        self, source: AdminClient, target: AdminClient, engines: Mapping[Side, Engine], request: VerifyRequest
    ) -> None:
        self._admins = {Side.SOURCE: source, Side.TARGET: target}
        self._names = {side: request.address(side).name for side in Side}
        self._partners = Partners(target, engines, (request.source.name, request.target.name))
        self._examples = request.examples

    async def compare(self, pair: Pair) -> TopicSubscriptions:
        """The verdicts on one topic's subscriptions; a failure of ours or the broker's is a reason, no exception."""
        numbers = {side: pair.bounds(side).ledgers for side in Side}
        try:
            states = await self._states(pair, numbers)
            missing = [self._missing(name, states) for name in states[Side.SOURCE] if name not in states[Side.TARGET]]
            common = await self._common(pair, numbers, states)
        except FleetError as error:
            return TopicSubscriptions(topic=pair.topic, known=Verdict.INCONCLUSIVE, reason=str(error))
        return TopicSubscriptions(
            topic=pair.topic,
            known=Verdict.EQUAL,
            subscriptions=tuple(sorted([*missing, *common], key=lambda each: each.subscription)),
            notes=(*pair.notes, *self._notes(states)),
        )

    async def _states(self, pair: Pair, numbers: Mapping[Side, Ledgers]) -> States:
        topic = TopicName.parse(pair.topic)
        found = await asyncio.gather(
            *(read_subscriptions(self._admins[side], topic, numbers[side], end=pair.bounds(side).end) for side in Side)
        )
        return dict(zip(Side, found, strict=True))

    async def _common(self, pair: Pair, numbers: Mapping[Side, Ledgers], states: States) -> list[SubscriptionVerdict]:
        """The verdicts on subscriptions that both sides have."""
        source, target = states[Side.SOURCE], states[Side.TARGET]
        common = [name for name in source if name in target]
        if not common:
            return []
        correspondence, unclear = await self._correspondence(pair, numbers, states, common)
        moved = await self._moved(pair, numbers, states)
        names = DeliveryNames(TopicName.parse(pair.topic), numbers, self._admins, self._examples)
        verdicts = []
        for name in common:
            here, there = source[name], target[name]
            if reason := moved.get(name) or (unclear if here.unread or there.unread else ""):
                verdicts.append(_inconclusive(name, reason, here, there))
                continue
            found = correspondence.compare(here.unread, there.unread, examples=self._examples)
            verdicts.append(judge_subscription(name, here, there, found, await names.examples(found)))
        return verdicts

    async def _correspondence(
        self, pair: Pair, numbers: Mapping[Side, Ledgers], states: States, common: Sequence[str]
    ) -> tuple[Correspondence, str]:
        """What belongs together, and why that cannot be told where anything is unread."""
        source, target = (
            Intervals.of(chain.from_iterable(states[side][name].unread.runs for name in common)) for side in Side
        )
        # A replicated subscription makes the brokers store snapshots of its position among the messages.
        markers = any(state.replicated for side in Side for state in states[side].values())
        try:
            return await self._partners.find(pair, numbers, Unread(source, target), markers=markers), ""
        except (Unclear, FleetError, UnicodeDecodeError) as error:
            return OneToOne(0), str(error)

    async def _moved(self, pair: Pair, numbers: Mapping[Side, Ledgers], states: States) -> Mapping[str, str]:
        """Subscriptions that did not stand still since they were read, and what happened to them."""
        topic = TopicName.parse(pair.topic)
        moved: dict[str, str] = {}
        for side in Side:
            now = await read_unread(self._admins[side], topic, numbers[side], end=pair.bounds(side).end)
            for name, before in states[side].items():
                if what := movement(before.unread, now.get(name)):
                    moved[name] = (
                        f"it moved while being compared: {what} on {self._names[side]}; "
                        "stop its consumers or compare again"
                    )
        return moved

    def _missing(self, name: str, states: States) -> SubscriptionVerdict:
        return SubscriptionVerdict(
            subscription=name,
            verdict=Verdict.DIFFERENT,
            reason=f"{self._names[Side.TARGET]} has no such subscription",
            source_unread=len(states[Side.SOURCE][name].unread),
        )

    def _notes(self, states: States) -> list[str]:
        source, target = states[Side.SOURCE], states[Side.TARGET]
        extra = sorted(target.keys() - source.keys())
        types = (type_note(name, source[name], target[name]) for name in sorted(source.keys() & target.keys()))
        return [
            *(f"subscription {name!r} is on {self._names[Side.TARGET]} only" for name in extra),
            *(note for note in types if note),
        ]


def _inconclusive(
    name: str, reason: str, source: SubscriptionCursor, target: SubscriptionCursor
) -> SubscriptionVerdict:
    return SubscriptionVerdict(
        subscription=name,
        verdict=Verdict.INCONCLUSIVE,
        reason=reason,
        source_unread=len(source.unread),
        target_unread=len(target.unread),
    )
