"""Poll namespaces after their cutover on both clusters: backlog, clients, incidents. Changes nothing.

What a poll costs: one call for each broker at most every 15 s, a few calls for each partition in the first half
minute, and one to confirm each partition at the end. A confirmed partition is not read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, Role
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.migration.cutover.redirect import Redirect, is_flagged, is_stored
from pulsar_fleet.migration.drain.detect import ARRIVAL_SECONDS, detect_incidents, missing_clients, missing_grants
from pulsar_fleet.migration.drain.forecast import Forecast, forecast
from pulsar_fleet.migration.drain.poll import LoadedPartitions, list_loaded, probe_producers, read_partitions
from pulsar_fleet.migration.drain.state import DrainFacts, DrainState, Incident, NamespaceState, SideState
from pulsar_fleet.migration.facts import Absence, ConnectedClients, PartitionState, PartitionStates
from pulsar_fleet.migration.model import Move, PartitionClients


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


log = logging.getLogger(__name__)

IsConfirmed = Callable[[TopicName, PartitionState], bool]
LIST_SECONDS = 15.0
CHECK_SECONDS = 30.0
PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """The result of one poll: the progress of each namespace, and every open incident.

    :param probe_due: producers are missing, and their topics were not probed for a while.
    :param remediable: incidents whose remedy may be attempted now.
    """

    namespaces: tuple[DrainProgress, ...]
    incidents: tuple[Incident, ...]
    probe_due: bool = False
    remediable: tuple[Incident, ...] = ()

    @property
    def is_done(self) -> bool:
        """Every namespace is drained on blue, and its clients are on green."""
        return all(progress.is_done for progress in self.namespaces)

    @property
    def needs_worker(self) -> bool:
        """Whether there is something to do that a poll must not: record the end, remediate, or probe a topic."""
        return self.is_done or bool(self.remediable) or self.probe_due

    def line(self) -> str:
        """For the log: the progress and the incidents."""
        if not self.namespaces:
            return "no application was redirected: nothing is left to drain"
        return " · ".join([summary(self.namespaces), *(incident.sentence for incident in self.incidents[:5])])


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainMonitor:
    """Monitors some namespaces; the caller stores its state.

    :param names: the names that clusters and tasks have in this run, see `Sides.names`.
    :param connected: namespace → the clients connected to blue right before the cutover.
    :param departed: namespace → consumers of the gates that left before the cutover, see `departed_consumers`.
    :param redirect: the address to which blue must redirect its clients.
    :param unterminated: partitions that the drain does not wait for, since blue has not terminated them.
    :param accepted_as_unread: brokers whose lists are not read.
    :param versions: of blue's brokers at the gates.
    :param probing: probe with a new producer whether topics are fenced; not in a process that must not hang.
    """

    blue: AdminClient
    green: AdminClient
    names: Mapping[str, str]
    moves: Sequence[Move]
    connected: Mapping[str, ConnectedClients]
    departed: Mapping[str, ConnectedClients]
    redirect: Redirect
    state: DrainState
    probing: bool
    accepted_as_unread: Collection[str] = ()
    unterminated: Collection[TopicName] = ()
    versions: Collection[str] = ()

    async def poll(self, now: float) -> DrainStatus:
        """Poll once. `state` is updated; nothing else is changed.

        :param now: seconds since 1970.
        """
        calls = self.blue.calls + self.green.calls
        for move in self.moves:
            namespace = self.state.namespaces.setdefault(str(move.namespace), NamespaceState.begin(now))
            if not self._is_confirmed(move):
                # What the drain did not wait for until now, blue has terminated since.
                namespace.ended = None
        for move in self._open():
            await self._read_due(move, now)
        live = await self._read_lists(now)
        incidents = [await self._evaluate(move, now, live) for move in self._open()]
        self.state.polls += 1
        self.state.calls += self.blue.calls + self.green.calls - calls
        probe_due = any(self._suspects(move, now) for move in self._open())
        return DrainStatus(
            tuple(self._progress(move) for move in self.moves),
            tuple(incident for namespace in incidents for incident in namespace),
            probe_due,
        )

    def _open(self) -> list[Move]:
        return [move for move in self.moves if self._namespace(move).ended is None]

    def _confirmed(self, move: Move) -> set[TopicName]:
        """The partitions that the drain does not wait for any more."""
        namespace = self._namespace(move)
        return {*(namespace.blue.confirmed & namespace.green.confirmed), *self.unterminated}

    def _is_confirmed(self, move: Move) -> bool:
        return move.partitions.keys() <= self._confirmed(move)

    def _namespace(self, move: Move) -> NamespaceState:
        return self.state.namespaces[str(move.namespace)]

    async def _read_lists(self, now: float) -> Collection[str]:
        """Read every broker's list, unless that was done a moment ago; returns blue's live brokers."""
        if not self._open() or (now - self.state.listed < LIST_SECONDS and not self._is_unreachable(now)):
            return frozenset()
        self.state.listed = now
        partitions = {move.namespace: frozenset(move.partitions) for move in self._open()}
        blue, green = await asyncio.gather(
            *(list_loaded(admin, partitions, now, self.accepted_as_unread) for admin in (self.blue, self.green))
        )
        self._record_outages("blue", blue, now)
        self._record_outages("green", green, now)
        for move in self._open():
            namespace = self._namespace(move)
            for side, loaded in ((namespace.blue, blue), (namespace.green, green)):
                side.add_listed({topic: loaded.states[topic] for topic in move.partitions if topic in loaded.states})
            for topic in move.partitions:
                if topic in blue.states:
                    namespace.owners.setdefault(topic, (blue.states[topic].broker, blue.states[topic].bundle))
        return blue.answered

    def _record_outages(self, side: str, loaded: LoadedPartitions, now: float) -> None:
        for broker in loaded.unreachable:
            self.state.outages.setdefault(f"{side} {broker}", now)
        for broker in loaded.answered:
            if self.state.outages.pop(f"{side} {broker}", None) is not None and side == "blue":
                self.state.restarted.add(broker)

    def _is_unreachable(self, now: float) -> bool:
        """Whether a partition that was read just now got no answer."""
        sides = [side for namespace in self.state.namespaces.values() for side in (namespace.blue, namespace.green)]
        states = (state for side in sides for state in side.partitions.values())
        return any(state.absence is Absence.UNREACHABLE and state.at == now for state in states)

    async def _read_due(self, move: Move, now: float) -> None:
        """Read the partitions that are due."""
        namespace = self._namespace(move)

        def drained(topic: TopicName, state: PartitionState) -> bool:
            return is_drained(move, topic, state)

        def arrived(topic: TopicName, state: PartitionState) -> bool:
            return has_arrived(topic, move.partitions[topic], state)

        for admin, side, is_confirmed in (
            (self.blue, namespace.blue, drained),
            (self.green, namespace.green, arrived),
        ):
            await _read_due(admin, side, move, now, is_confirmed, together=not self.state.outages)
        namespace.blue.confirmed |= await self._deleted(move, namespace.blue)

    async def _deleted(self, move: Move, side: SideState) -> set[TopicName]:
        """Partitions that somebody has deleted on blue since the cut-over: nothing of them is left to read there."""
        gone = {topic for topic in move.partitions if (state := side.partitions.get(topic)) and state.is_gone}
        if not gone - side.confirmed:
            return set()
        try:
            return gone - set(await self.blue.topics(move.namespace))
        except FleetError as error:
            log.warning("%s: %s", move.namespace, error)
            return set()

    async def _evaluate(self, move: Move, now: float, live: Collection[str]) -> tuple[Incident, ...]:
        namespace = self._namespace(move)
        if any(state.at == now for state in namespace.blue.partitions.values()):
            progress = self._progress(move)
            backlogs = {backlog.key: backlog.entries for backlog in progress.backlogs}
            namespace.add_sample(progress.remaining, now, backlogs)
        if self._is_confirmed(move):
            namespace.ended = now
        if self.probing and (suspects := self._suspects(move, now)):
            namespace.add_probe(suspects, await probe_producers(self.blue.connection, suspects), now)
        facts = self._facts(move, now, live)
        if namespace.ended is None and facts.seconds >= ARRIVAL_SECONDS and now - namespace.checked >= CHECK_SECONDS:
            namespace.checked = now
            facts = await self._with_settings(move, facts)
        incidents = detect_incidents(facts)
        namespace.record_incidents(incidents, now)
        return incidents

    def _facts(self, move: Move, now: float, live: Collection[str]) -> DrainFacts:
        namespace = self._namespace(move)
        return DrainFacts(
            namespace=move.namespace,
            seconds=now - namespace.green.started,
            clusters=self.names,
            before=self.connected.get(str(move.namespace), {}),
            blue=_unconfirmed(namespace.blue),
            green=_unconfirmed(namespace.green),
            owners=namespace.owners,
            unreachable={broker: now - since for broker, since in self.state.outages.items()},
            live=live,
            restarted=self.state.restarted,
            fenced=namespace.fenced,
            departed=self.departed.get(str(move.namespace), {}),
            versions=self.versions,
            flags_cluster=move.strategy.flags_cluster,
        )

    async def _with_settings(self, move: Move, facts: DrainFacts) -> DrainFacts:
        """Add what only matters when a namespace is not done in time: flag, address, and permissions."""
        name = facts.namespace
        try:
            blue, green = await asyncio.gather(self.blue.namespace(name), self.green.namespace(name))
            redirected = await is_stored(self.blue, await self.blue.cluster_name(), self.redirect)
            flagged = await is_flagged(self.blue, move)
        except FleetError as error:
            log.warning("%s: %s", name, error)
            return facts
        grants = missing_grants(name, blue or {}, green or {})
        return replace(
            facts,
            flagged=flagged,
            redirected=redirected,
            green_exists=green is not None,
            roles_without_permission=tuple(sorted({grant.role for grant in grants})),
        )

    def _suspects(self, move: Move, now: float) -> set[TopicName]:
        """Topics whose producers are on neither cluster, which may be fenced; at most once a minute."""
        namespace = self._namespace(move)
        if now - namespace.green.started < ARRIVAL_SECONDS or now - namespace.probed < PROBE_SECONDS:
            return set()
        missing = missing_clients(self._facts(move, now, ()))
        return {TopicName.parse(client.topic) for client in missing if client.role is Role.PRODUCER}

    def _progress(self, move: Move) -> DrainProgress:
        namespace = self._namespace(move)
        return drain_progress(
            move,
            self.names,
            namespace.blue.partitions,
            namespace.green.partitions,
            self._confirmed(move),
            forecast=forecast(namespace.samples),
            rates=namespace.rates,
        )


async def _read_due(
    admin: AdminClient, side: SideState, move: Move, now: float, is_confirmed: IsConfirmed, *, together: bool
) -> None:
    due = side.due(move.partitions, now, is_confirmed)
    side.add_read(await read_partitions(admin, due, now, together=together), now)
    side.confirmed.update(topic for topic in due if is_confirmed(topic, side.partitions[topic]))


def _unconfirmed(side: SideState) -> dict[TopicName, PartitionState]:
    return {topic: state for topic, state in side.partitions.items() if topic not in side.confirmed}
