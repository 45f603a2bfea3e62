"""What was read about one replicator, and about the topic to which it writes (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The replicator in one answer of `stats`.

    :param backlog: entries that are not yet replicated.
    :param delay_seconds: age of the oldest of them that was read.
    :param sent_rate: messages per second, which the broker renews once a minute.
    :param sent_bytes_rate: the same in bytes.
    :param sent: messages and bytes since the topic was loaded, sent again or not; None where brokers do not say it.
    :param expired_rate: messages per second that expired before they were replicated.
    :param outbound: address of the connection to the target, empty without one.
    :param inbound: address of the connection by which the target replicates to us, empty without one.
    """

    backlog: int = 0
    connected: bool = False
    delay_seconds: float = 0.0
    sent_rate: float = 0.0
    sent_bytes_rate: float = 0.0
    sent: tuple[int, int] | None = None
    expired_rate: float = 0.0
    outbound: str = ""
    inbound: str = ""

    @classmethod
    def of(cls, document: JsonObject) -> Self:
        """Parse its part of a `stats` document; a missing field counts as 0 or empty."""
        return cls(
            backlog=int(document.get("replicationBacklog") or 0),
            connected=bool(document.get("connected")),
            delay_seconds=float(document.get("replicationDelayInSeconds") or 0),
            sent_rate=float(document.get("msgRateOut") or 0),
            sent_bytes_rate=float(document.get("msgThroughputOut") or 0),
            sent=_pair_of_counts(document),
            expired_rate=float(document.get("msgRateExpired") or 0),
            outbound=str(document.get("outboundConnection") or ""),
            inbound=str(document.get("inboundConnection") or ""),
        )


def _pair_of_counts(document: JsonObject) -> tuple[int, int] | None:
    messages, size = document.get("msgOutCount"), document.get("bytesOutCount")
    return None if messages is None else (int(messages), int(size or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorFacts:
    """A replicator of a topic or partition, read once, and twice if it is not idle and connected.

    :param expected: a list of clusters asks for it.
    :param first: None if the statistics do not have it.
    :param last: the later reading; the first one where one was enough.
    :param cursors: its cursor at two times, None where the topic has none; empty if it was not read.
    :param seconds: time between the two cursors.
    :param error: why the topic could not be read.
    """

    source: str
    target: str
    topic: TopicName
    expected: bool = True
    first: Reading | None = None
    last: Reading | None = None
    cursors: tuple[Cursor | None, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def namespace(self) -> NamespaceName:
        """The namespace of its topic."""
        return self.topic.namespace

    @property
    def backlog(self) -> int:
        """Entries that are not yet replicated, at the last reading."""
        return self.last.backlog if self.last else 0

    @property
    def moved(self) -> int | None:
        """Entries that the target confirmed between the two readings of the cursor; None without two."""
        if len(self.cursors) < 2:
            return None
        before, now = self.cursors[0], self.cursors[-1]
        if before is None or now is None:
            return 0
        return now.confirmed_since(before)

    @property
    def per_second(self) -> float:
        """Entries that the target confirms per second, between the readings."""
        return (self.moved or 0) / self.seconds if self.seconds else 0.0

    @property
    def resent(self) -> bool | None:
        """Whether it sent messages between the readings of which none was confirmed; None if that is unknown."""
        sent = self._sent_between
        return None if sent is None or self.moved is None else sent[0] > 0 and self.moved == 0

    @property
    def speed(self) -> tuple[float, float]:
        """Messages and bytes per second: what it sent between the readings, or the broker's average: the higher."""
        sent, seconds = self._sent_between or (0, 0), self.seconds or 1.0
        last = self.last or Reading()
        return max(sent[0] / seconds, self.per_second, last.sent_rate), max(sent[1] / seconds, last.sent_bytes_rate)

    @property
    def _sent_between(self) -> tuple[int, int] | None:
        first, last = (reading.sent if reading else None for reading in (self.first, self.last))
        if first is None or last is None:
            return None
        # A topic that was loaded again in between counts from 0.
        return max(0, last[0] - first[0]), max(0, last[1] - first[1])

    @property
    def growth_per_second(self) -> float:
        """Entries per second by which the backlog grows; negative while it shrinks."""
        if self.first is None or self.last is None or not self.seconds:
            return 0.0
        return (self.last.backlog - self.first.backlog) / self.seconds

    @property
    def mark_delete(self) -> Position | None:
        """The last entry that the target has confirmed."""
        cursor = self.cursors[-1] if self.cursors else None
        return cursor.mark_delete if cursor else None

    def name(self) -> str:
        """`blue → green persistent://acme/orders/events-partition-3`."""
        return f"{self.source} → {self.target} {self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSchema:
    """A version of the source's schemas that the target does not have.

    :param version: its number on the source.
    :param body: of the call that registers it.
    :param accepted: whether the target accepts it after the missing versions before it; None if that is unknown.
    """

    version: int
    body: Mapping[str, object] = field(default_factory=dict)
    accepted: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """The topic to which a replicator writes, read where the replicator does not work.

    :param exists: None if that is unknown.
    :param stored_bytes: its backlog in bytes, by which a backlog quota counts.
    :param received: messages and bytes per second of all its producers; None if that is unknown.
    :param missing: the schema versions of the source that the target does not have, in their order; empty if it has
        all of them, or if they were not read.
    :param strategy: the strategy by which the target judged the first of them.
    """

    exists: bool | None = None
    terminated: bool = False
    stored_bytes: int | None = None
    received: tuple[float, float] | None = None
    missing: tuple[MissingSchema, ...] = ()
    strategy: str = ""
