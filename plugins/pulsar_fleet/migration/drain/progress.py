"""How far a switched namespace has drained and who has arrived on green (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import ConnectedClient
from pulsar_fleet.migration.drain.forecast import Forecast
from pulsar_fleet.migration.model import Clients, Move, Strategy
from pulsar_fleet.migration.stats.partition_state import Absence, PartitionState, Side


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one subscription still has to read on blue.

    :param left: entries over all partitions of the topic.
    :param rate: entries per second since it was first seen, None where that is not known yet.
    """

    topic: str
    subscription: str
    left: int
    rate: float | None = None

    @property
    def key(self) -> str:
        """What names it among the others."""
        return f"{self.topic} · {self.subscription}"

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"topic": self.topic, "subscription": self.subscription, "left": self.left, "rate": self.rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of one namespace's drain.

    :param remaining: unread entries on blue that somebody there still has to read, or that are still to be replicated.
    :param backlogs: the subscriptions that have any, the largest first.
    :param producers: on green now, and on blue before the switch; `consumers` likewise.
    :param missing: what was connected before the switch and is not on green yet, in words.
    :param stragglers: clients that are still on blue.
    :param unloaded: partitions that blue no longer serves although the namespace has not drained: an incident.
    :param unconfirmed: partitions that were not yet asked one by one and found drained on blue and complete on green.
    """

    namespace: str
    remaining: int
    backlogs: tuple[Backlog, ...]
    producers: tuple[int, int]
    consumers: tuple[int, int]
    missing: tuple[str, ...]
    stragglers: tuple[ConnectedClient, ...]
    unloaded: tuple[str, ...]
    unconfirmed: int
    forecast: Forecast | None = None

    @property
    def is_done(self) -> bool:
        """Each partition, asked by itself: everything is read on blue, and as many clients are on green as before."""
        return not self.unconfirmed

    @property
    def phase(self) -> str:
        """One word for it."""
        if self.is_done:
            return "done"
        if self.unloaded:
            return "stranded"
        return "draining" if self.remaining else "arriving"

    def line(self) -> str:
        """One line for the log, as an operator reads it."""
        state = "drained" if not self.remaining else f"{self.remaining:,} entries left on blue{self._outlook()}"
        clients = (
            f"{self.producers[0]} of {self.producers[1]} producers and "
            f"{self.consumers[0]} of {self.consumers[1]} consumers arrived"
        )
        late = f"; waiting for {'; '.join(self.missing[:3])}" if self.missing else ""
        stragglers = f"; still on blue: {', '.join(map(str, self.stragglers[:3]))}" if self.stragglers else ""
        return f"{self.namespace}: {state}, {clients}{late}{stragglers}"

    def _outlook(self) -> str:
        if self.forecast is None:
            return ""
        margin = f" (± {duration(self.forecast.margin)})"
        return f", {self.forecast.rate:,.0f}/s, done in about {duration(self.forecast.seconds)}{margin}"

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 2,
            "namespace": self.namespace,
            "phase": self.phase,
            "remaining": self.remaining,
            "backlogs": [backlog.to_json() for backlog in self.backlogs],
            "producers": list(self.producers),
            "consumers": list(self.consumers),
            "missing": list(self.missing),
            "stragglers": [client.to_json() for client in self.stragglers],
            "unloaded": list(self.unloaded),
            "unconfirmed": self.unconfirmed,
            "forecast": self.forecast.to_json() if self.forecast else None,
        }


def progress(
    move: Move,
    blue: Side,
    green: Side,
    confirmed: Collection[TopicName],
    *,
    forecast: Forecast | None = None,
    rates: Mapping[str, float] = MappingProxyType({}),
) -> Progress:
    """Judge a namespace by what both sides showed last; a partition that was never seen is never taken for done.

    :param rates: `Backlog.key` → entries per second.
    :param confirmed: partitions that `is_drained` and `has_arrived` were true for, each asked by itself.
    """
    known = {topic: state for topic, state in blue.items() if topic in move.partitions}
    gaps = {topic: tuple(_gaps(topic, clients, green.get(topic))) for topic, clients in move.partitions.items()}
    late_producers = sum(count for found in gaps.values() for kind, count, _ in found if kind == "producers")
    late_consumers = sum(count for found in gaps.values() for kind, count, _ in found if kind == "consumers")
    return Progress(
        namespace=str(move.namespace),
        remaining=sum(_remaining(move, topic, state) for topic, state in known.items()),
        backlogs=tuple(replace(one, rate=rates.get(one.key)) for one in _backlogs(move, known)),
        producers=(move.producers - late_producers, move.producers),
        consumers=(move.consumers - late_consumers, move.consumers),
        missing=tuple(text for found in gaps.values() for _, _, text in found),
        stragglers=tuple(client for state in known.values() for client in state.clients),
        unloaded=tuple(str(topic) for topic, state in known.items() if state.absence is Absence.UNLOADED),
        unconfirmed=sum(topic not in confirmed for topic in move.partitions),
        forecast=forecast,
    )


def is_drained(move: Move, topic: TopicName, state: PartitionState) -> bool:
    """Whether nobody has anything left to do on this partition of blue; only what was asked by itself can say so."""
    return state.close and state.absence is None and not state.clients and not _remaining(move, topic, state)


def has_arrived(topic: TopicName, before: Clients, state: PartitionState) -> bool:
    """Whether green's partition has at least the clients that blue's had, per subscription."""
    return state.close and state.absence is None and not tuple(_gaps(topic, before, state))


def duration(seconds: float) -> str:
    """As a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _gaps(topic: TopicName, before: Clients, state: PartitionState | None) -> Iterator[tuple[str, int, str]]:
    """(producers or consumers, how many are missing, in words)."""
    producers = before.producers - (state.producers if state else 0)
    if producers > 0:
        yield "producers", producers, f"{producers} producers of {topic}"
    for name, count in before.consumers.items():
        consumers = count - (state.consumers(name) if state else 0)
        if consumers > 0:
            yield "consumers", consumers, f"{consumers} consumers of {name!r} on {topic}"


def _remaining(move: Move, topic: TopicName, state: PartitionState) -> int:
    return sum(_unread(move, topic, state).values()) + state.unsent


def _unread(move: Move, topic: TopicName, state: PartitionState) -> Mapping[str, int]:
    """Subscription → unread entries, without those whose messages were replicated: nobody has to read them on blue."""
    carried = (
        {name for name, count in move.partitions[topic].consumers.items() if count == 0}
        if move.strategy is Strategy.REPLICATE
        else set()
    )
    return {name: left for name, left in state.backlog.items() if left and name not in carried}


def _backlogs(move: Move, blue: Side) -> tuple[Backlog, ...]:
    found: dict[tuple[str, str], int] = {}
    for topic, state in blue.items():
        for name, left in _unread(move, topic, state).items():
            key = (str(topic.parent), name)
            found[key] = found.get(key, 0) + left
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Backlog(topic, name, left) for (topic, name), left in ordered)


def summary(found: Collection[Progress]) -> str:
    """One line for the whole wave."""
    done = sum(state.is_done for state in found)
    left = sum(state.remaining for state in found)
    stragglers = [client for state in found for client in state.stragglers]
    late = f"; {len(stragglers)} clients still on blue: {stragglers[0]}" if stragglers else ""
    first = f"{done} of {len(found)} namespaces done; {left:,} entries left on blue{_wave_outlook(found)}{late}"
    return " · ".join([first, *(state.line() for state in list(found)[:3] if not state.is_done)])


def _wave_outlook(found: Collection[Progress]) -> str:
    """The wave ends with its last namespace; one that cannot be forecast leaves the end open."""
    draining = [state for state in found if state.remaining]
    known = [state.forecast for state in draining if state.forecast is not None]
    if not known or len(known) < len(draining):
        return ""
    rate, last = sum(one.rate for one in known), max(one.seconds for one in known)
    return f", {rate:,.0f}/s, done in about {duration(last)}"
