"""The progress of a namespace's drain: its backlog on blue, and the clients that are connected to green (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import ConnectedClient
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.migration.drain.forecast import Forecast
from pulsar_fleet.migration.model import Move, PartitionClients
from pulsar_fleet.migration.stats.partition_state import PartitionState, PartitionStates


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one subscription on blue.

    :param entries: over all partitions of the topic.
    :param rate: entries per second since its first sample, None while there is only one.
    """

    topic: str
    subscription: str
    entries: int
    rate: float | None = None

    @property
    def key(self) -> str:
        """Its key among the others."""
        return f"{self.topic} · {self.subscription}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """The state of one namespace's drain.

    :param clusters: `blue` and `green` → the cluster's own name.
    :param remaining: unread entries that subscriptions still have to read on blue, or that are still to be replicated.
    :param backlogs: the subscriptions with a backlog, the largest first.
    :param producers: on green now, and on blue before the cutover; `consumers` likewise.
    :param missing: clients that were connected before the cutover and are not on green yet, in words.
    :param stragglers: clients that are still on blue.
    :param unconfirmed: partitions that no individual read has confirmed as drained on blue and complete on green.
    """

    namespace: str
    clusters: Mapping[str, str]
    remaining: int
    backlogs: tuple[Backlog, ...]
    producers: tuple[int, int]
    consumers: tuple[int, int]
    missing: tuple[str, ...]
    stragglers: tuple[ConnectedClient, ...]
    unconfirmed: int
    forecast: Forecast | None = None

    @property
    def is_done(self) -> bool:
        """Every partition, read individually: no backlog on blue, and as many clients on green as before."""
        return not self.unconfirmed

    def line(self) -> str:
        """One line for the log."""
        state = (
            "drained"
            if not self.remaining
            else f"{counted(self.remaining, 'entry')} left on {self.clusters['blue']}{self._forecast_text()}"
        )
        clients = (
            f"{self.producers[0]} of {counted(self.producers[1], 'producer')} and "
            f"{self.consumers[0]} of {counted(self.consumers[1], 'consumer')} on {self.clusters['green']}"
        )
        late = f"; waiting for {'; '.join(self.missing[:3])}" if self.missing else ""
        stragglers = (
            f"; still on {self.clusters['blue']}: {', '.join(map(str, self.stragglers[:3]))}" if self.stragglers else ""
        )
        return f"{self.namespace}: {state}, {clients}{late}{stragglers}"

    def _forecast_text(self) -> str:
        if self.forecast is None:
            return ""
        margin = f" (± {duration(self.forecast.margin)})"
        return f", {self.forecast.rate:,.0f}/s, done in about {duration(self.forecast.seconds)}{margin}"


def drain_progress(
    move: Move,
    clusters: Mapping[str, str],
    blue: PartitionStates,
    green: PartitionStates,
    confirmed: Collection[TopicName],
    *,
    forecast: Forecast | None = None,
    rates: Mapping[str, float] = MappingProxyType({}),
) -> DrainProgress:
    """Judge a namespace by the last states of both clusters; a partition without a state is never done.

    :param rates: `Backlog.key` → entries per second.
    :param confirmed: partitions for which `is_drained` and `has_arrived` were true, each read individually.
    """
    states = {topic: state for topic, state in blue.items() if topic in move.partitions}
    gaps = {topic: tuple(_gaps(topic, clients, green.get(topic))) for topic, clients in move.partitions.items()}
    late_producers = sum(count for rows in gaps.values() for role, count, _ in rows if role == "producers")
    late_consumers = sum(count for rows in gaps.values() for role, count, _ in rows if role == "consumers")
    return DrainProgress(
        namespace=str(move.namespace),
        clusters=clusters,
        remaining=sum(_remaining(move, topic, state) for topic, state in states.items()),
        backlogs=tuple(replace(backlog, rate=rates.get(backlog.key)) for backlog in _backlogs(move, states)),
        producers=(move.producers - late_producers, move.producers),
        consumers=(move.consumers - late_consumers, move.consumers),
        missing=tuple(text for rows in gaps.values() for _, _, text in rows),
        stragglers=tuple(client for state in states.values() for client in state.clients),
        unconfirmed=sum(topic not in confirmed for topic in move.partitions),
        forecast=forecast,
    )


def is_drained(move: Move, topic: TopicName, state: PartitionState) -> bool:
    """Whether this partition of blue has no backlog and no clients; only an individual read can show that."""
    return state.close and state.absence is None and not state.clients and not _remaining(move, topic, state)


def has_arrived(topic: TopicName, before: PartitionClients, state: PartitionState) -> bool:
    """Whether green's partition has at least as many clients as blue's had, per subscription."""
    return state.close and state.absence is None and not tuple(_gaps(topic, before, state))


def _gaps(topic: TopicName, before: PartitionClients, state: PartitionState | None) -> Iterator[tuple[str, int, str]]:
    """(producers or consumers, how many are missing, in words)."""
    producers = before.producers - (state.producers if state else 0)
    if producers > 0:
        yield "producers", producers, f"{counted(producers, 'producer')} of {topic}"
    for name, count in before.consumers.items():
        consumers = count - (state.consumers(name) if state else 0)
        if consumers > 0:
            yield "consumers", consumers, f"{counted(consumers, 'consumer')} of {name!r} on {topic}"


def _remaining(move: Move, topic: TopicName, state: PartitionState) -> int:
    return sum(_unread(move, topic, state).values()) + state.unsent


def _unread(move: Move, topic: TopicName, state: PartitionState) -> Mapping[str, int]:
    """Subscription → unread entries; without those that continue on green, whose messages were replicated."""
    transferred = (
        {name for name, count in move.partitions[topic].consumers.items() if count == 0}
        if move.strategy.copies and move.strategy.redirects
        else set()
    )
    return {name: entries for name, entries in state.backlog.items() if entries and name not in transferred}


def _backlogs(move: Move, blue: PartitionStates) -> tuple[Backlog, ...]:
    totals: dict[tuple[str, str], int] = {}
    for topic, state in blue.items():
        for name, entries in _unread(move, topic, state).items():
            key = (str(topic.parent), name)
            totals[key] = totals.get(key, 0) + entries
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Backlog(topic, name, entries) for (topic, name), entries in ordered)


def summary(namespaces: Collection[DrainProgress]) -> str:
    """One line for the whole wave."""
    done = sum(progress.is_done for progress in namespaces)
    remaining = sum(progress.remaining for progress in namespaces)
    stragglers = [client for progress in namespaces for client in progress.stragglers]
    (blue,) = {progress.clusters["blue"] for progress in namespaces}
    late = f"; {counted(len(stragglers), 'client')} still on {blue}: {stragglers[0]}" if stragglers else ""
    backlog = f"{counted(remaining, 'entry')} left on {blue}{_wave_forecast(namespaces)}"
    first = f"{done} of {counted(len(namespaces), 'namespace')} done; {backlog}{late}"
    return " · ".join([first, *(progress.line() for progress in list(namespaces)[:3] if not progress.is_done)])


def _wave_forecast(namespaces: Collection[DrainProgress]) -> str:
    """The wave ends with its last namespace; without a forecast for each there is none for the wave."""
    draining = [progress for progress in namespaces if progress.remaining]
    forecasts = [progress.forecast for progress in draining if progress.forecast is not None]
    if not forecasts or len(forecasts) < len(draining):
        return ""
    rate, last = sum(forecast.rate for forecast in forecasts), max(forecast.seconds for forecast in forecasts)
    return f", {rate:,.0f}/s, done in about {duration(last)}"
