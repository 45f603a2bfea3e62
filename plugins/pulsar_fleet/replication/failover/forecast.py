"""What each subscription will get, and lose, if its application moves to another cluster, and what it got (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.positions import Intervals, Ledgers


@dataclass(frozen=True, slots=True)
class CountedEntries(Document):
    """A set of entries and how many messages each of them holds: 10^6 unbatched messages are one interval.

    :param by_size: (messages in each entry, numbers of these entries), ascending, none empty.
    """

    by_size: tuple[tuple[int, Intervals], ...] = ()

    def document_of(self) -> Json:
        """An array for each size: the messages of an entry, and the intervals of entry numbers."""
        return [[size, [list(run) for run in numbers.runs]] for size, numbers in self.by_size]

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """The fields from that array."""
        if not isinstance(document, list):
            return document
        by_size = ((size, Intervals(tuple((begin, end) for begin, end in runs))) for size, runs in document)
        return {"by_size": tuple(by_size)}

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int]]) -> Self:
        """From (entry number, messages in it), in any order, each number once."""
        runs: dict[int, list[tuple[int, int]]] = {}
        for number, messages in entries:
            runs.setdefault(messages, []).append((number, number + 1))
        return cls(tuple((size, Intervals.of(runs[size])) for size in sorted(runs)))

    @property
    def messages(self) -> int:
        """The number of messages in all entries."""
        return sum(size * len(numbers) for size, numbers in self.by_size)

    @property
    def numbers(self) -> Intervals:
        """The numbers of all entries."""
        return Intervals.of(run for _, numbers in self.by_size for run in numbers.runs)

    def without(self, numbers: Intervals) -> Self:
        """The entries that are not among `numbers`."""
        return self._of_sizes((size, own.minus(numbers)) for size, own in self.by_size)

    def within(self, numbers: Intervals) -> Self:
        """The entries that are among `numbers`."""
        return self._of_sizes((size, own.minus(own.minus(numbers))) for size, own in self.by_size)

    def union(self, other: CountedEntries) -> Self:
        """The entries of both sets, which share none."""
        sizes = dict(self.by_size)
        for size, numbers in other.by_size:
            sizes[size] = sizes.get(size, Intervals()).union(numbers)
        return self._of_sizes((size, sizes[size]) for size in sorted(sizes))

    def head(self, messages: int) -> Self:
        """The first entries in topic order that hold at most this many messages together."""
        chosen: list[tuple[int, int]] = []
        for number, size in sorted((number, size) for size, numbers in self.by_size for number in numbers):
            if messages < size:
                break
            messages -= size
            chosen.append((number, size))
        return self.of(chosen)

    def _of_sizes(self, sizes: Iterable[tuple[int, Intervals]]) -> Self:
        return type(self)(tuple((size, numbers) for size, numbers in sizes if numbers))


NO_ENTRIES = CountedEntries()


_NO_LEDGERS = Ledgers(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The messages that a subscription has not acknowledged on `from` and would not get on `to`.

    :param skipped: its cursor on `to` is beyond them; entry numbers of `to`.
    :param uncreated: `to` has them, but no such subscription; entry numbers of `to`.
    :param unreplicated: not yet replicated: they stay on `from` until it comes back; entry numbers of `from`.
    :param absent: `to` has no copy although replication is beyond them: published before it began, or without it, or
        removed from `to`; messages.
    """

    skipped: CountedEntries = NO_ENTRIES
    uncreated: CountedEntries = NO_ENTRIES
    unreplicated: CountedEntries = NO_ENTRIES
    absent: int = 0

    @property
    def messages(self) -> int:
        """Their number."""
        return self.skipped.messages + self.uncreated.messages + self.unreplicated.messages + self.absent


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionForecast(Document):
    """One durable subscription of a plain topic or partition. Counts are messages, not entries.

    A batch of which only some messages are acknowledged counts as unread, because brokers redeliver all of it.

    :param replicated: it has the flag of a replicated subscription on `from`; `replicated_on_to`: on `to`.
    :param mark_delete: its mark-delete position on `from`, `mark_delete_on_to` on `to`; None: no such subscription.
    :param properties: its properties on `from`.
    :param consumers: connected to `from`; `consumers_on_to` to `to`.
    :param redelivered: messages acknowledged on `from` that `to` will deliver; entry numbers of `to`. None of a
        subscription that does not exist on `to`, because clients create it at the end by default.
    :param first: messages that it will get for the first time; entry numbers of `to`.
    :param create_at: where it would have to be created on `to` to lose nothing: number of its first entry to deliver.
    :param redelivered_if_created: messages that it would have redelivered if it were created there.
    :param delivered: messages that `from` gave its consumers since the topic was loaded; `delivered_on_to`: that `to`
        gave them.
    :param unknown: why `redelivered`, `first` and `lost` are not known; they are empty then and do not count.
    """

    subscription: str
    replicated: bool | None = None
    replicated_on_to: bool | None = None
    mark_delete: str | None = None
    mark_delete_on_to: str | None = None
    properties: JsonObject = field(default_factory=dict)
    consumers: int = 0
    consumers_on_to: int = 0
    redelivered: CountedEntries = NO_ENTRIES
    first: CountedEntries = NO_ENTRIES
    lost: Lost = field(default_factory=Lost)
    create_at: int | None = None
    redelivered_if_created: int = 0
    delivered: int = 0
    delivered_on_to: int = 0
    unknown: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether `to` has no such subscription."""
        return self.mark_delete_on_to is None


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """By which load of a topic its broker counts deliveries: a load begins a ledger and counts from 0 (observed).

    :param ledger: the ledger that is written; -1 without a topic.
    :param added: entries written since the load.
    """

    ledger: int = -1
    added: int = 0

    @classmethod
    def of(cls, internal_stats: JsonObject) -> Self:
        """Read an `internalStats` answer."""
        ledgers = internal_stats.get("ledgers") or ()
        newest = int(ledgers[-1]["ledgerId"]) if ledgers else -1
        return cls(newest, int(internal_stats.get("entriesAddedCounter") or 0))

    def is_before(self, now: TopicLoad, written: int) -> bool:
        """Whether the topic was loaded since: it writes another ledger, which a ledger that was full does not explain.

        :param written: entries that came since.
        """
        return now.ledger != self.ledger and (not written or now.added - self.added != written)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForecast(Document):
    """One plain topic or partition.

    :param entries_from, entries_to: the entries of both clusters, whose numbers the forecast uses.
    :param load: by which `to` counts what it delivers.
    :param unreplicated: entries that are not replicated to `to`; None without a replicator.
    :param sent_to: the clusters to which `from` sends it; a position is copied when all of them have answered.
    :param silent: those of them that have no replicator to `from` now, so that no position is copied.
    :param unknown: why it could not be read at all.
    """

    topic: str
    entries_from: Ledgers = _NO_LEDGERS
    entries_to: Ledgers = _NO_LEDGERS
    load: TopicLoad = field(default_factory=TopicLoad)
    unreplicated: int | None = None
    sent_to: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    exists_on_to: bool = True
    subscriptions: tuple[SubscriptionForecast, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRow:
    """One subscription over all partitions of its topic. None is unknown, because a partition is.

    :param missing: partitions on which `to` has no such subscription.
    :param unreplicated: the part of `lost` that stays on `from` until it comes back.
    :param redelivered_if_created: messages that it has redelivered if it is created where it is missing.
    :param lost_if_created: messages that it loses even then.
    """

    topic: str
    subscription: str
    replicated: bool | None
    missing: int
    partitions: int
    consumers: int
    redelivered: int | None
    first: int | None
    lost: int | None
    unreplicated: int = 0
    redelivered_if_created: int | None = None
    lost_if_created: int | None = None
    unknown: str = ""

    @classmethod
    def of(cls, topic: str, subscription: str, parts: Iterable[SubscriptionForecast]) -> Self:
        """Add up the partitions."""
        partitions = list(parts)
        unknown = next((part.unknown for part in partitions if part.unknown), "")

        def known(total: int) -> int | None:
            return None if unknown else total

        redelivered = sum(part.redelivered.messages for part in partitions)
        lost = sum(part.lost.messages for part in partitions)
        return cls(
            topic=topic,
            subscription=subscription,
            replicated=all(part.replicated for part in partitions) if not unknown else partitions[0].replicated,
            missing=sum(part.is_missing for part in partitions),
            partitions=len(partitions),
            consumers=sum(part.consumers for part in partitions),
            redelivered=known(redelivered),
            first=known(sum(part.first.messages for part in partitions)),
            lost=known(lost),
            unreplicated=sum(part.lost.unreplicated.messages for part in partitions),
            redelivered_if_created=known(redelivered + sum(part.redelivered_if_created for part in partitions)),
            lost_if_created=known(lost - sum(part.lost.uncreated.messages for part in partitions)),
            unknown=unknown,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Document):
    """The forecast of a failover.

    :param origin: name of the cluster that applications leave, `from` elsewhere.
    :param target: name of the cluster that they connect to, `to` elsewhere.
    :param at: when it was made, ISO 8601.
    :param origin_unreachable: why `from` could not be read; the forecast says what `to` has then.
    :param unread: namespaces of which it is unknown whether a topic is replicated to `to`, each with the reason.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "make the forecast again"

    origin: str
    target: str
    at: str
    selection: tuple[str, ...]
    topics: tuple[TopicForecast, ...]
    origin_unreachable: str = ""
    unread: tuple[str, ...] = ()

    def rows(self) -> tuple[ForecastRow, ...]:
        """A row for each subscription of each topic, over its partitions."""
        parts: dict[tuple[str, str], list[SubscriptionForecast]] = {}
        for topic, subscription in self.subscriptions():
            key = str(TopicName.parse(topic.topic).parent), subscription.subscription
            parts.setdefault(key, []).append(subscription)
        return tuple(ForecastRow.of(*key, parts[key]) for key in sorted(parts))

    def subscriptions(self) -> Iterator[tuple[TopicForecast, SubscriptionForecast]]:
        """Every subscription of every topic and partition."""
        return ((topic, subscription) for topic in self.topics for subscription in topic.subscriptions)

    @property
    def unread_topics(self) -> tuple[TopicForecast, ...]:
        """The topics and partitions that could not be read at all."""
        return tuple(topic for topic in self.topics if topic.unknown)

    @property
    def redelivered(self) -> int:
        """Messages that will be redelivered, as far as it is known."""
        return sum(row.redelivered or 0 for row in self.rows())

    @property
    def lost(self) -> int:
        """Messages that would not be delivered on `to`, as far as it is known."""
        return sum(row.lost or 0 for row in self.rows())

    @property
    def is_complete(self) -> bool:
        """Whether every subscription is known, and which topics are replicated."""
        unknown = self.unread_topics or self.unread or self.origin_unreachable
        return not (unknown or any(row.unknown for row in self.rows()))


class Agreement(StrEnum):
    """How what happened agrees with the forecast."""

    AS_PREDICTED = "as predicted"
    UNFINISHED = "unfinished"
    """So far as predicted; the application has not acknowledged everything yet."""
    DIFFERENT = "different"
    UNKNOWN = "unknown"

    @classmethod
    def over(cls, parts: Iterable[Agreement]) -> Agreement:
        """Of several: the first of different, unknown, unfinished that one of them has; else as predicted."""
        present = set(parts)
        worse = (cls.DIFFERENT, cls.UNKNOWN, cls.UNFINISHED)
        return next((agreement for agreement in worse if agreement in present), cls.AS_PREDICTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOutcome(Document):
    """The outcome of one subscription of a plain topic or partition; counts are messages, None is unknown.

    :param predicted_redelivered: what the forecast said; `redelivered`: redelivered and acknowledged until now;
        `redelivered_to_come`: acknowledged on `from` and not yet acknowledged on `to`.
    :param first: got for the first time, of the messages that existed at the forecast; `first_to_come`: not yet.
    :param lost: not delivered on `to`, and not going to be.
    :param passed_on: acknowledged on `to` by replication after the forecast, so not delivered there.
    """

    topic: str
    subscription: str
    agreement: Agreement
    predicted_redelivered: int | None = None
    redelivered: int | None = None
    redelivered_to_come: int = 0
    first: int | None = None
    first_to_come: int = 0
    predicted_lost: int | None = None
    lost: int | None = None
    passed_on: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """The outcome of one subscription over all partitions of its topic."""

    topic: str
    subscription: str
    agreement: Agreement
    predicted_redelivered: int | None
    redelivered: int | None
    redelivered_to_come: int
    first: int | None
    first_to_come: int
    lost: int | None
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, topic: str, subscription: str, parts: Iterable[SubscriptionOutcome]) -> Self:
        """Add up the partitions."""
        partitions = list(parts)
        return cls(
            topic=topic,
            subscription=subscription,
            agreement=Agreement.over(part.agreement for part in partitions),
            predicted_redelivered=_total(part.predicted_redelivered for part in partitions),
            redelivered=_total(part.redelivered for part in partitions),
            redelivered_to_come=sum(part.redelivered_to_come for part in partitions),
            first=_total(part.first for part in partitions),
            first_to_come=sum(part.first_to_come for part in partitions),
            lost=_total(part.lost for part in partitions),
            reasons=tuple(dict.fromkeys(reason for part in partitions for reason in part.reasons)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOutcome(Document):
    """The outcome of a failover.

    :param forecast_at: when the forecast was made; `at`: when the outcome was read; ISO 8601.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "read the outcome again"

    origin: str
    target: str
    forecast_at: str
    at: str
    subscriptions: tuple[SubscriptionOutcome, ...]

    def rows(self) -> tuple[OutcomeRow, ...]:
        """A row for each subscription of each topic, over its partitions."""
        parts: dict[tuple[str, str], list[SubscriptionOutcome]] = {}
        for subscription in self.subscriptions:
            key = str(TopicName.parse(subscription.topic).parent), subscription.subscription
            parts.setdefault(key, []).append(subscription)
        return tuple(OutcomeRow.of(*key, parts[key]) for key in sorted(parts))

    @property
    def agreement(self) -> Agreement:
        """Over all subscriptions; unknown without any."""
        return (
            Agreement.over(part.agreement for part in self.subscriptions) if self.subscriptions else Agreement.UNKNOWN
        )


def _total(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
