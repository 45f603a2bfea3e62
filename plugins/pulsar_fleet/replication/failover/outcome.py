"""What each subscription got after a failover, compared with its forecast (documents)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import TopicName


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
