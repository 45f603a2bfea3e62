"""Read what subscriptions acknowledged on the other cluster since a forecast, and compare it with the forecast."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, Unavailable
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.positions import Intervals, Ledgers, unread_entries
from pulsar_fleet.replication.failover.forecast import (
    Agreement,
    CountedEntries,
    FailoverOutcome,
    Forecast,
    SubscriptionForecast,
    SubscriptionOutcome,
    TopicForecast,
)
from pulsar_fleet.replication.failover.read import TooMany, list_entries, read_topic
from pulsar_fleet.replication.failover.topic_copy import ClusterTopic, ListedEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorNow:
    """A subscription on `to` after the failover.

    :param unread: entries of the forecast that it would still deliver; entry numbers of the forecast.
    :param later_acknowledged: messages acknowledged among those that came after the forecast; None: not readable.
    :param delivered: messages that its consumers got since the forecast; None if the topic was loaded since, so that
        the broker counts from 0.
    """

    unread: Intervals
    later_acknowledged: int | None
    delivered: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What happened elsewhere since the forecast.

    :param unreplicated: entries of `from` that have no copy on `to` even now; None: not readable.
    :param delivered: messages that consumers got on `from`; 0 if it does not answer.
    """

    unreplicated: Intervals | None
    delivered: int = 0


def evaluate(
    topic: str, forecast: SubscriptionForecast, now: CursorNow | None, since: Since, names: tuple[str, str]
) -> SubscriptionOutcome:
    """The outcome of one subscription that the forecast knows.

    :param now: None if `to` still has no such subscription.
    :param names: of `from` and `to`.
    """
    if forecast.unknown:
        return SubscriptionOutcome(
            topic=topic,
            subscription=forecast.subscription,
            agreement=Agreement.UNKNOWN,
            reasons=(f"the forecast does not know it: {forecast.unknown}",),
        )
    if now is None:
        return _not_connected(topic, forecast, names)
    return _Evaluation(topic, forecast, now, since, names).outcome()


class _Evaluation:
    """The outcome of a subscription that `to` has."""

    def __init__(
        self, topic: str, forecast: SubscriptionForecast, now: CursorNow, since: Since, names: tuple[str, str]
    ) -> None:
        self._topic, self._forecast, self._now, self._since = topic, forecast, now, since
        self._from, self._to = names
        self._redelivered = forecast.redelivered.without(now.unread)
        # Of a subscription that did not exist, the forecast lists here what it would lose.
        self._first = forecast.first.union(forecast.lost.uncreated).without(now.unread)

    def outcome(self) -> SubscriptionOutcome:
        forecast, now = self._forecast, self._now
        undelivered = self._undelivered()
        redelivered = self._redelivered.without(undelivered.numbers).messages
        first = self._first.without(undelivered.numbers).messages
        to_come = forecast.redelivered.within(now.unread).messages
        first_to_come = forecast.first.union(forecast.lost.uncreated).within(now.unread).messages
        if forecast.is_missing:
            redelivered = self._surplus()
        lost = self._lost(undelivered)
        return SubscriptionOutcome(
            topic=self._topic,
            subscription=forecast.subscription,
            agreement=self._agreement(redelivered, to_come, first_to_come, lost),
            predicted_redelivered=forecast.redelivered.messages,
            redelivered=redelivered,
            redelivered_to_come=to_come,
            first=first,
            first_to_come=first_to_come,
            predicted_lost=forecast.lost.messages,
            lost=lost,
            passed_on=0 if forecast.is_missing else undelivered.messages,
            reasons=tuple(self._reasons(first, undelivered)),
        )

    def _undelivered(self) -> CountedEntries:
        """Entries that are acknowledged and were not delivered: the first ones, because a cursor only moves forward.

        Replication acknowledged them, or they lie before the position at which a client created the subscription.
        """
        delivered, later = self._now.delivered, self._now.later_acknowledged
        if delivered is None or later is None:
            return CountedEntries()
        acknowledged = self._redelivered.union(self._first)
        return acknowledged.head(max(0, acknowledged.messages + later - delivered))

    def _surplus(self) -> int:
        """What a subscription got that its client created: all beyond what was unread on `from`."""
        delivered, later = self._now.delivered, self._now.later_acknowledged
        return max(0, (delivered or 0) - self._first.messages - (later or 0))

    def _lost(self, undelivered: CountedEntries) -> int | None:
        forecast, unreplicated = self._forecast, self._since.unreplicated
        if unreplicated is None and forecast.lost.unreplicated.by_size:
            return None
        waiting = forecast.lost.unreplicated.within(unreplicated or Intervals()).messages
        skipped = forecast.lost.skipped.without(self._now.unread).messages
        created_late = undelivered.within(forecast.lost.uncreated.numbers).messages
        return forecast.lost.absent + skipped + waiting + created_late

    def _agreement(self, redelivered: int, to_come: int, first_to_come: int, lost: int | None) -> Agreement:
        forecast = self._forecast
        if redelivered + to_come != forecast.redelivered.messages or self._since.delivered:
            return Agreement.DIFFERENT
        if lost is not None and lost > forecast.lost.messages:
            return Agreement.DIFFERENT
        if lost is None or forecast.consumers:
            return Agreement.UNKNOWN
        return Agreement.UNFINISHED if to_come or first_to_come else Agreement.AS_PREDICTED

    def _reasons(self, first: int, undelivered: CountedEntries) -> Iterable[str]:
        if self._since.delivered:
            most = min(first, self._since.delivered)
            yield (
                f"consumers on {self._from} got {counted(self._since.delivered, 'message')} after the forecast: up to "
                f"{most:,} of the {first:,} that count as first were redelivered"
            )
        elif self._forecast.consumers:
            yield (
                f"{counted(self._forecast.consumers, 'consumer')} connected to {self._from} at the forecast: what they "
                f"acknowledged after it, among the {first:,} that count as first, was redelivered"
            )
        if self._forecast.is_missing:
            yield f"it did not exist on {self._to}, so its client chose where it begins"
        elif undelivered.by_size:
            passed_on = counted(undelivered.messages, "message")
            yield (
                f"{passed_on} acknowledged on {self._to} without a delivery there: replication passed on "
                "acknowledgements after the forecast"
            )
        if self._now.delivered is None:
            yield f"the topic was loaded again on {self._to}: what was acknowledged there counts as delivered"
        elif self._now.later_acknowledged is None:
            yield f"{self._to} has removed messages since: what was acknowledged there counts as delivered"


def _not_connected(topic: str, forecast: SubscriptionForecast, names: tuple[str, str]) -> SubscriptionOutcome:
    lost = forecast.lost
    return SubscriptionOutcome(
        topic=topic,
        subscription=forecast.subscription,
        agreement=Agreement.UNFINISHED,
        predicted_redelivered=forecast.redelivered.messages,
        redelivered=0,
        first=0,
        first_to_come=lost.uncreated.messages,
        predicted_lost=lost.messages,
        reasons=(f"{names[1]} has no such subscription yet: its application has not connected",),
    )


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
