"""Count what a subscription gets redelivered, first and not at all on the other cluster (pure)."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.replication.failover.entries import CountedEntries
from pulsar_fleet.replication.failover.forecast import Lost, SubscriptionForecast, TopicForecast
from pulsar_fleet.replication.failover.topic_copy import ClusterTopic, ListedEntry, Place, TopicCopy


def forecast_topic(topic: str, on_from: ClusterTopic, on_to: ClusterTopic, copy: TopicCopy) -> TopicForecast:
    """The forecast of one topic, for every durable subscription on `from`."""
    counter = _Counter(on_from, on_to, copy)
    links = on_from.stats.links if on_from.stats else {}
    sent_to = sorted(name for name, link in links.items() if link.outbound)
    return TopicForecast(
        topic=topic,
        entries_from=on_from.ledgers,
        entries_to=on_to.ledgers,
        load=on_to.load,
        unreplicated=None if on_from.replicated is None else len(on_from.ledgers) - on_from.replicated,
        sent_to=tuple(sent_to),
        silent=tuple(name for name in sent_to if not links[name].inbound),
        exists_on_to=on_to.exists,
        subscriptions=tuple(counter.forecast(name) for name in sorted(on_from.cursors)),
    )


def unknown_topic(topic: str, on_to: ClusterTopic, reason: str) -> TopicForecast:
    """What is known of a topic where only `to` can be read: which subscriptions it has."""
    subscriptions = (
        replace(_facts(name, None, cursor), delivered_on_to=on_to.delivered(name), unknown=reason)
        for name, cursor in sorted(on_to.cursors.items())
    )
    return TopicForecast(topic=topic, entries_to=on_to.ledgers, load=on_to.load, subscriptions=tuple(subscriptions))


class _Counter:
    """Counts for the subscriptions of one topic."""

    def __init__(self, on_from: ClusterTopic, on_to: ClusterTopic, copy: TopicCopy) -> None:
        self._from, self._to, self._copy = on_from, on_to, copy
        self._shared = copy.first_shared()

    def forecast(self, name: str) -> SubscriptionForecast:
        here, there = self._from.cursors[name], self._to.cursors.get(name)
        unread = there.unread if there else Intervals()
        redelivered, first = self._delivered(here.unread, unread)
        forecast = replace(
            _facts(name, here, there),
            redelivered=CountedEntries.of(redelivered),
            first=CountedEntries.of(first),
            lost=self._lost(here.unread, None if there is None else unread),
            delivered=self._from.delivered(name),
            delivered_on_to=self._to.delivered(name),
        )
        if there is not None or not self._to.exists:
            return forecast
        begin = self._create_at(here.unread)
        redelivered, _ = self._delivered(here.unread, Intervals.of([(begin, len(self._to.ledgers))]))
        return replace(forecast, create_at=begin, redelivered_if_created=CountedEntries.of(redelivered).messages)

    def _delivered(
        self, unread_here: Intervals, unread_there: Intervals
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What `to` will deliver: what was acknowledged on `from`, and what was not, as (entry number, messages)."""
        redelivered: list[tuple[int, int]] = []
        first: list[tuple[int, int]] = []
        for entry, partner in self._copy.unread(Place.TO, unread_there):
            repeated = self._was_removed(entry) if partner is None else partner not in unread_here
            (redelivered if repeated else first).append((entry.number, entry.messages))
        return redelivered, first

    def _was_removed(self, entry: ListedEntry) -> bool:
        """Whether `from` had this entry of `to` and removed it, as it does when all subscriptions acknowledged it.

        It removes the oldest first. Otherwise it does not have the entry yet, or the entry is not replicated.
        """
        if entry.origin in self._shared:
            return entry.number < self._shared[entry.origin]
        return bool(entry.origin) or entry.number < (self._to.replicated or 0)

    def _lost(self, unread_here: Intervals, unread_there: Intervals | None) -> Lost:
        skipped: list[tuple[int, int]] = []
        unreplicated: list[tuple[int, int]] = []
        absent = 0
        # What came to `from` after its cursors were read may have come to `to` too.
        settled = self._from.settled
        for entry, partner in self._copy.unread(Place.FROM, unread_here):
            if entry.number not in settled:
                break
            if partner is not None:
                if unread_there is None or partner not in unread_there:
                    skipped.append((partner, entry.messages))
            elif not entry.origin and entry.number >= (self._from.replicated or 0):
                unreplicated.append((entry.number, entry.messages))
            else:
                absent += entry.messages
        never = CountedEntries.of(skipped)
        return Lost(
            skipped=CountedEntries() if unread_there is None else never,
            uncreated=never if unread_there is None else CountedEntries(),
            unreplicated=CountedEntries.of(unreplicated),
            absent=absent,
        )

    def _create_at(self, unread_here: Intervals) -> int:
        """The first entry of `to` that is unread on `from`, or that `from` does not have yet."""
        partners = self._copy.partners[Place.TO]
        for entry in self._copy.entries[Place.TO]:
            partner = partners.get(entry.number)
            if partner in unread_here if partner is not None else not self._was_removed(entry):
                return entry.number
        return len(self._to.ledgers)


def _facts(name: str, here: SubscriptionCursor | None, there: SubscriptionCursor | None) -> SubscriptionForecast:
    return SubscriptionForecast(
        subscription=name,
        replicated=here.replicated if here else None,
        replicated_on_to=there.replicated if there else None,
        mark_delete=str(here.cursor.mark_delete) if here else None,
        mark_delete_on_to=str(there.cursor.mark_delete) if there else None,
        properties=dict(here.properties) if here else {},
        consumers=here.consumers if here else 0,
        consumers_on_to=there.consumers if there else 0,
    )
