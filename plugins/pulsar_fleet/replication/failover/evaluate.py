"""Compare what a subscription got after a failover with its forecast (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.replication.failover.entries import CountedEntries
from pulsar_fleet.replication.failover.forecast import SubscriptionForecast
from pulsar_fleet.replication.failover.outcome import Agreement, SubscriptionOutcome


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
