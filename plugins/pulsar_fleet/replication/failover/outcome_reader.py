"""Read what subscriptions acknowledged on the other cluster since a forecast."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, Unavailable
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.intervals import Intervals, unread_entries
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.replication.failover.entries import CountedEntries
from pulsar_fleet.replication.failover.evaluate import CursorNow, Since, evaluate
from pulsar_fleet.replication.failover.forecast import Forecast, SubscriptionForecast, TopicForecast
from pulsar_fleet.replication.failover.outcome import Agreement, FailoverOutcome, SubscriptionOutcome
from pulsar_fleet.replication.failover.read import TooMany, list_entries, read_topic
from pulsar_fleet.replication.failover.topic_copy import ClusterTopic, ListedEntry

TOPICS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Now:
    """One topic now.

    :param on_from: None if `from` does not answer.
    :param later: entries of `to` that came after the forecast; None if they may be incomplete.
    :param unreplicated: of the entries of `from` that had no copy at the forecast, those that have none now; None: not
        readable.
    """

    on_from: ClusterTopic | None
    on_to: ClusterTopic
    later: list[ListedEntry] | None
    unreplicated: Intervals | None


async def read_outcome(
    origin: ClusterConnection, target: ClusterConnection, forecast: Forecast, *, reach_seconds: float
) -> FailoverOutcome:
    """What each subscription of the forecast got; a topic that `to` does not answer for is unknown.

    :param reach_seconds: how long `origin` may not answer before the outcome is read without it.
    :raises Conflict: `target` is another cluster than that of the forecast.
    """
    # Imports protobuf and numpy, which the rest of the command line does not need.
    from pulsar_fleet.messages.engines.engines import Engines

    async with AdminClient(origin, retry_seconds=reach_seconds) as here, AdminClient(target) as there:
        if (name := await there.cluster_name()) != forecast.target:
            raise Conflict(f"The forecast is for {forecast.target!r}, but {target.name!r} leads to {name!r}.")
        with Engines(origin) as origin_engine, Engines(target) as target_engine:
            source = (here, origin_engine) if await _answers(here) else None
            reader = _OutcomeReader(source, (there, target_engine), forecast)
            slots = asyncio.Semaphore(TOPICS_AT_ONCE)

            async def read(topic: TopicForecast) -> list[SubscriptionOutcome]:
                async with slots:
                    return await reader.outcomes(topic)

            outcomes = await asyncio.gather(*map(read, forecast.topics))
    return FailoverOutcome(
        origin=forecast.origin,
        target=forecast.target,
        forecast_at=forecast.at,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        subscriptions=tuple(outcome for topic in outcomes for outcome in topic),
    )


async def _answers(admin: AdminClient) -> bool:
    try:
        await admin.cluster_name()
    except Unavailable:
        return False
    return True


class _OutcomeReader:
    def __init__(
        self, origin: tuple[AdminClient, Engine] | None, target: tuple[AdminClient, Engine], forecast: Forecast
    ) -> None:
        self._origin, self._target = origin, target
        self._forecast = forecast
        self._names = forecast.origin, forecast.target
        self._reading = asyncio.Lock()

    async def outcomes(self, topic: TopicForecast) -> list[SubscriptionOutcome]:
        """The outcomes of a topic's subscriptions."""
        try:
            now = await self._now(topic)
        except FleetError as error:
            return [
                SubscriptionOutcome(
                    topic=topic.topic,
                    subscription=subscription.subscription,
                    agreement=Agreement.UNKNOWN,
                    predicted_redelivered=None if subscription.unknown else subscription.redelivered.messages,
                    reasons=(str(error),),
                )
                for subscription in topic.subscriptions
            ]
        return [
            evaluate(
                topic.topic,
                subscription,
                _cursor_now(topic, subscription, now),
                _since(subscription, now),
                self._names,
            )
            for subscription in topic.subscriptions
        ]

    async def _now(self, topic: TopicForecast) -> _Now:
        name = TopicName.parse(topic.topic)
        target, engine = self._target
        on_to = await read_topic(target, name, self._forecast.origin)
        on_from: ClusterTopic | None = None
        if self._origin is not None:
            # The failure of `from` may be why applications moved.
            with suppress(FleetError):
                on_from = await read_topic(self._origin[0], name, self._forecast.target)
        later = await self._entries(engine, name, topic.entries_to, on_to.ledgers)
        return _Now(on_from, on_to, later, await self._unreplicated(topic, on_from, later))

    async def _unreplicated(
        self, topic: TopicForecast, on_from: ClusterTopic | None, later: list[ListedEntry] | None
    ) -> Intervals | None:
        missing = Intervals.of(run for item in topic.subscriptions for run in item.lost.unreplicated.numbers.runs)
        if missing.first is None:
            return missing
        if later is None:
            return None
        if on_from is None or self._origin is None:
            return None if any(entry.origin == self._forecast.origin for entry in later) else missing
        before = topic.entries_from
        name, engine = TopicName.parse(topic.topic), self._origin[1]
        entries = await self._entries(engine, name, before, on_from.ledgers, missing.first)
        if entries is None:
            return None
        arrived = {entry.digest for entry in later}
        positions = [on_from.ledgers.at(entry.number) for entry in entries if entry.digest in arrived]
        copied = Intervals.of((before.index_after(place) - 1, before.index_after(place)) for place in positions)
        return missing.minus(copied)

    async def _entries(
        self, engine: Engine, name: TopicName, before: Ledgers, now: Ledgers, begin: int | None = None
    ) -> list[ListedEntry] | None:
        """The entries after the forecast, or from its entry `begin` on; None if some were removed or are unreadable."""
        number = len(before) if begin is None else begin
        after = 0
        if number:
            last = before.at(number - 1)
            if last.ledger not in dict(now.runs):
                return None
            after = now.index_after(last)
        try:
            async with self._reading:
                return await asyncio.to_thread(list_entries, engine, name, now, after)
        except (FleetError, TooMany):
            return None


def _cursor_now(topic: TopicForecast, subscription: SubscriptionForecast, now: _Now) -> CursorNow | None:
    cursor = now.on_to.cursors.get(subscription.subscription)
    if cursor is None:
        return None
    later = None
    if now.later is not None:
        entries = CountedEntries.of((entry.number, entry.messages) for entry in now.later)
        later = entries.without(cursor.unread).messages
    return CursorNow(
        unread=unread_entries(cursor.cursor, topic.entries_to, len(topic.entries_to)),
        later_acknowledged=later,
        delivered=_delivered(topic, subscription, now.on_to),
    )


def _delivered(topic: TopicForecast, subscription: SubscriptionForecast, on_to: ClusterTopic) -> int | None:
    before = topic.entries_to
    known = on_to.ledgers.index_after(before.at(len(before) - 1)) if before else 0
    delivered = on_to.delivered(subscription.subscription) - subscription.delivered_on_to
    if delivered < 0 or topic.load.is_before(on_to.load, len(on_to.ledgers) - known):
        return None
    return delivered


def _since(subscription: SubscriptionForecast, now: _Now) -> Since:
    delivered = now.on_from.delivered(subscription.subscription) - subscription.delivered if now.on_from else 0
    return Since(unreplicated=now.unreplicated, delivered=max(0, delivered))
