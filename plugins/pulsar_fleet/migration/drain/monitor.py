"""Watch switched namespaces on both sides: who has arrived, what is left, what goes wrong. Changes nothing.

What a look costs: one call per broker at most every 15 s, a few calls for each partition in the first half minute, and
one to confirm each partition in the end. What was confirmed is not asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import Role
from pulsar_fleet.migration.cutover.redirect import Redirect, is_stored
from pulsar_fleet.migration.drain.detect import ARRIVAL_SECONDS, missing_clients, recognise
from pulsar_fleet.migration.drain.forecast import forecast
from pulsar_fleet.migration.drain.incident import Incident, Situation
from pulsar_fleet.migration.drain.permissions import lacking
from pulsar_fleet.migration.drain.poll import Listed, ask, closed_topics, list_loaded
from pulsar_fleet.migration.drain.progress import Progress, has_arrived, is_drained, progress, summary
from pulsar_fleet.migration.drain.state import NamespaceWatch, SideWatch, WatchState
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.stats.clients import Roster
from pulsar_fleet.migration.stats.partition_state import Absence, PartitionState

log = logging.getLogger(__name__)

Holds = Callable[[TopicName, PartitionState], bool]
LIST_SECONDS = 15.0
CHECK_SECONDS = 30.0
PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw: the state of each namespace, and every open incident.

    :param suspicious: producers are missing, and it was not tried for a while whether their topics let anybody in.
    """

    found: tuple[Progress, ...]
    incidents: tuple[Incident, ...]
    suspicious: bool = False

    @property
    def is_done(self) -> bool:
        """Everything is drained on blue and everybody is on green."""
        return all(state.is_done for state in self.found)

    def line(self) -> str:
        """For the log: how far it is, and what goes wrong."""
        waves = summary(self.found)
        return " · ".join([waves, *(incident.sentence for incident in self.incidents[:5])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch over some namespaces; its state is kept by the caller.

    :param rosters: namespace → who was connected to blue right before the switch.
    :param redirect: the address that blue must hand out.
    :param probing: try with a producer of its own whether topics are closed; not in a process that must not hang.
    """

    blue: AdminClient
    green: AdminClient
    moves: Sequence[Move]
    rosters: Mapping[str, Roster]
    redirect: Redirect
    state: WatchState
    probing: bool

    async def look(self, now: float) -> Look:
        """Look once. `state` is brought up to date; nothing else is changed.

        :param now: seconds since 1970.
        """
        calls = self.blue.calls + self.green.calls
        for move in self.moves:
            self.state.namespaces.setdefault(str(move.namespace), NamespaceWatch.begin(now))
        for move in self._open():
            await self._ask(move, now)
        live = await self._list(now)
        looks = [await self._judge(move, now, live) for move in self._open()]
        self.state.looks += 1
        self.state.calls += self.blue.calls + self.green.calls - calls
        incidents = tuple(incident for found in looks for incident in found)
        suspicious = any(self._suspects(move, now) for move in self._open())
        return Look(tuple(self._progress(move) for move in self.moves), incidents, suspicious)

    def _open(self) -> list[Move]:
        return [move for move in self.moves if self.state.namespaces[str(move.namespace)].ended is None]

    async def _list(self, now: float) -> Collection[str]:
        """Ask every broker for its list, unless that was done a moment ago; returns blue's live brokers."""
        if not self._open() or (now - self.state.listed < LIST_SECONDS and not self._somebody_is_silent(now)):
            return frozenset()
        self.state.listed = now
        wanted = {move.namespace: frozenset(move.partitions) for move in self._open()}
        blue, green = await asyncio.gather(list_loaded(self.blue, wanted, now), list_loaded(self.green, wanted, now))
        self._hear("blue", blue, now)
        self._hear("green", green, now)
        for move in self._open():
            one = self.state.namespaces[str(move.namespace)]
            for side, listed in ((one.blue, blue), (one.green, green)):
                side.listed({topic: listed.states[topic] for topic in move.partitions if topic in listed.states})
            for topic in move.partitions:
                if topic in blue.states:
                    one.places.setdefault(topic, (blue.states[topic].broker, blue.states[topic].bundle))
        return blue.answered

    def _hear(self, side: str, listed: Listed, now: float) -> None:
        for broker in listed.silent:
            self.state.silent.setdefault(f"{side} {broker}", now)
        for broker in listed.answered:
            if self.state.silent.pop(f"{side} {broker}", None) is not None and side == "blue":
                self.state.restarted.add(broker)

    def _somebody_is_silent(self, now: float) -> bool:
        """Whether a partition that was asked just now got no answer."""
        sides = [side for one in self.state.namespaces.values() for side in (one.blue, one.green)]
        states = (state for side in sides for state in side.known.values())
        return any(state.absence is Absence.SILENT and state.at == now for state in states)

    async def _ask(self, move: Move, now: float) -> None:
        """Ask the partitions whose turn it is."""
        one = self.state.namespaces[str(move.namespace)]

        def drained(topic: TopicName, state: PartitionState) -> bool:
            return is_drained(move, topic, state)

        def arrived(topic: TopicName, state: PartitionState) -> bool:
            return has_arrived(topic, move.partitions[topic], state)

        for admin, side, holds in ((self.blue, one.blue, drained), (self.green, one.green, arrived)):
            await _ask_due(admin, side, move, now, holds, together=not self.state.silent)

    async def _judge(self, move: Move, now: float, live: Collection[str]) -> tuple[Incident, ...]:
        one = self.state.namespaces[str(move.namespace)]
        if any(state.at == now for state in one.blue.known.values()):
            found = self._progress(move)
            one.note(found.remaining, now, {backlog.key: backlog.left for backlog in found.backlogs})
        if len(one.blue.confirmed) == len(one.green.confirmed) == len(move.partitions):
            one.ended = now
        if self.probing and (suspects := self._suspects(move, now)):
            one.probed, one.closed = now, set(await closed_topics(self.blue.connection, suspects))
        situation = self._situation(move, one, now, live)
        if one.ended is None and situation.waited >= ARRIVAL_SECONDS and now - one.checked >= CHECK_SECONDS:
            one.checked = now
            situation = await self._checked(situation)
        incidents = recognise(situation)
        one.meet(incidents, now)
        return incidents

    def _situation(self, move: Move, one: NamespaceWatch, now: float, live: Collection[str]) -> Situation:
        return Situation(
            namespace=move.namespace,
            waited=now - one.green.base,
            before=self.rosters.get(str(move.namespace), {}),
            blue=_unconfirmed(one.blue),
            green=_unconfirmed(one.green),
            places=one.places,
            silent={broker: now - since for broker, since in self.state.silent.items()},
            live=live,
            restarted=self.state.restarted,
            closed=one.closed,
        )

    async def _checked(self, bare: Situation) -> Situation:
        """Ask what only matters when not everything is done in time: flag, address, and rights."""
        name = bare.namespace
        try:
            blue, green = await asyncio.gather(self.blue.namespace(name), self.green.namespace(name))
            redirected = await is_stored(self.blue, await self.blue.cluster_name(), self.redirect)
        except FleetError as error:
            log.warning("%s: %s", name, error)
            return bare
        lacked = lacking(name, blue or {}, green or {})
        return replace(
            bare,
            flagged=bool((blue or {}).get("migrated")),
            redirected=redirected,
            green_exists=green is not None,
            ungranted=tuple(sorted({grant.role for grant in lacked})),
        )

    def _suspects(self, move: Move, now: float) -> set[TopicName]:
        """Topics whose producers are on neither side, which may be closed to all; not more often than once a minute."""
        one = self.state.namespaces[str(move.namespace)]
        if now - one.green.base < ARRIVAL_SECONDS or now - one.probed < PROBE_SECONDS:
            return set()
        missing = missing_clients(self._situation(move, one, now, ()))
        return {TopicName.parse(client.topic) for client in missing if client.role is Role.PRODUCER}

    def _progress(self, move: Move) -> Progress:
        one = self.state.namespaces[str(move.namespace)]
        confirmed = one.blue.confirmed & one.green.confirmed
        return progress(
            move, one.blue.known, one.green.known, confirmed, forecast=forecast(one.samples), rates=one.rates
        )


async def _ask_due(
    admin: AdminClient, side: SideWatch, move: Move, now: float, holds: Holds, *, together: bool
) -> None:
    due = side.due(move.partitions, now, holds)
    side.asked(await ask(admin, due, now, together=together), now)
    side.confirmed.update(topic for topic in due if holds(topic, side.known[topic]))


def _unconfirmed(side: SideWatch) -> dict[TopicName, PartitionState]:
    return {topic: state for topic, state in side.known.items() if topic not in side.confirmed}
