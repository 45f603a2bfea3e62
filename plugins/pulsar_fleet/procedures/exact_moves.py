"""Move clients so that no message is delivered twice: their producers wait while the last positions are carried.

By the throttle of a cut-over, recorded on the cluster first: `restore` and `watch_overrides` lift what a process that
died has left. A broker reads nothing from a connection whose producer it holds, acknowledgments neither: of a client
whose producers and consumers share one, those on their way are delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.procedures.moving_clients import require_carried

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from pulsar_fleet.clients.store import Publication
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName, TopicName
    from pulsar_fleet.cluster.runs.overrides import NamespaceOverrides
    from pulsar_fleet.cluster.statistics import ConnectedClient, TopicStats
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.prepare.overrides import OriginalSettings, Throttle
    from pulsar_fleet.procedures.procedure import Session
    from pulsar_fleet.replication.failover.carry import CarriedPositions
    from pulsar_fleet.replication.failover.client_move import Carrier, Movement

log = logging.getLogger(__name__)

_QUIESCE_SECONDS, _POLL_SECONDS = 0.5, 0.2
_STILL_SECONDS = 1.0
"""After what time without a change of what they have not acknowledged consumers are not waited for."""
_READY_SECONDS, _COME_SECONDS = 15.0, 10.0
"""How long producers are held at most until the document is published, and for clients that have not read it yet: a
client gives up a message after 30 s by default."""
_FIRST, _MOST = (4, 0, 10), 5
_Subscription = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Led:
    """Clients that were led with their producers held.

    :param seconds: how long these were held.
    :param unacknowledged: topic and subscription → entries without an acknowledgment then, of those with consumers.
    :param late: clients that had not come when producers were released.
    """

    carried: CarriedPositions
    made: Publication
    seconds: float
    unacknowledged: Mapping[_Subscription, int]
    late: tuple[ConnectedClient, ...]

    def text(self) -> str:
        """What was held, and what is delivered again all the same."""
        parts = [f"Producers were held for {self.seconds:.1f} s."]
        if self.unacknowledged:
            names = listed([f"{name} of {topic}" for topic, name in sorted(self.unacknowledged)], _MOST)
            entries = counted(sum(self.unacknowledged.values()), "entry")
            parts.append(f"Consumers had not acknowledged {entries} of {names}: what they had is delivered again.")
        if self.late:
            named = listed([f"{one} on {one.topic}" for one in self.late], _MOST)
            parts.append(
                f"{counted(len(self.late), 'client')} had not come when producers were released: {named}. What they "
                "acknowledge until they come may be delivered again."
            )
        return " ".join(parts)


async def require_holds(origin: AdminClient) -> None:
    """Refuse brokers whose producers cannot be held, or with which some messages came twice (measured: 3.0.7)."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.versions import UNTHROTTLES_AT_ONCE, version_numbers

    version = await origin.version()
    if not UNTHROTTLES_AT_ONCE.holds(version) or version_numbers(version) < _FIRST:
        raise PreconditionFailed(
            f"{origin.connection.name} runs Pulsar {version}, and its producers cannot be held so that nothing is "
            "delivered twice: 'exact' needs 4.0.10, 4.2.1 or later. Start a run without it. No client was moved."
        )


async def lead_held(
    session: Session,
    sides: Sides,
    movement: Movement,
    lead: Callable[[tuple[ConnectedClient, ...]], Awaitable[Publication]],
    original: OriginalSettings | None = None,
) -> Led:
    """Carry the positions with the producers of the namespaces held, and lead the clients; then release them.

    :param sides: the cluster that clients leave first.
    :param lead: publishes; gets who is connected to the cluster that they leave.
    :param original: of a run that has recorded and keeps what it overrides; None: recorded, and restored in the end.
    :raises PreconditionFailed: something else is overridden there, or nothing came to rest in time. Producers were
        released and nobody was moved. Or, after the publication: they may still be held, as the message says.
    """
    from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
    from pulsar_fleet.replication.failover.client_move import carrying, connected

    made = None
    try:
        async with carrying(sides.blue, sides.green, movement.namespaces) as carrier:
            await require_holds(carrier.origin)
            carried, _ = await carrier.carry()
            require_carried(session.conf, carried)
            linked = await _linked(carrier, movement)
            before = await connected(carrier.target, carrier.topics)
            async with _held(session.run, carrier.origin, movement, original) as (throttles, began):
                unacknowledged, carried, clients = await _come_to_rest(session, carrier, movement, linked)
                for throttle in throttles:
                    throttle.require_held()
                await _require_throttled(carrier.origin, movement)
                made = await lead(clients)
                late = await _wait_come(carrier.target, carrier.topics, clients, before)
                seconds = time.monotonic() - began
    except FleetError as error:
        if made is None:
            raise
        raise PreconditionFailed(
            f"The clients are led to {movement.target} already, and producers on {movement.origin} may still be held: "
            f"clear this task again, or: {command_line('restore', sides.blue.argument, '--ended', session.run.id)}. "
            f"{error}"
        ) from error
    return Led(carried, made, seconds, unacknowledged, late)


@asynccontextmanager
async def _held(
    run: Run, origin: AdminClient, movement: Movement, original: OriginalSettings | None
) -> AsyncIterator[tuple[list[Throttle], float]]:
    """Hold the producers of these namespaces while the block runs. Yields the throttles, and when they began."""
    from pulsar_fleet.migration.prepare.overrides import Throttle

    async with AsyncExitStack() as stack:
        if original is None:
            original = await stack.enter_async_context(_recorded(run, origin, movement))
        began = time.monotonic()
        throttles = [await stack.enter_async_context(Throttle(origin, name, original)) for name in movement.namespaces]
        for throttle in throttles:
            await throttle.apply()
        yield throttles, began


@asynccontextmanager
async def _recorded(run: Run, origin: AdminClient, movement: Movement) -> AsyncIterator[OriginalSettings]:
    """What is overridden, recorded on the cluster; restored when the block has ended.

    Under the lease no other run lives: what a dead one has left overridden is restored with it.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.runs.overrides import is_throttle
    from pulsar_fleet.migration.prepare.freeze import read_original_settings, record_overrides
    from pulsar_fleet.migration.prepare.restore import restore_original_settings

    await release_producers(run, origin, movement.namespaces)
    original = await read_original_settings(origin, movement.namespaces, movement.target)
    lists = {str(name): (await origin.namespace(name) or {})["replication_clusters"] for name in movement.namespaces}
    # Tenants and lists stay as they are: nobody may take it for the end of this run that they become shorter.
    original = replace(original, allowed={}, replication=lists, topic_replication={})
    if left := [name for name, rate in {**original.publish_rates, **original.topic_rates}.items() if is_throttle(rate)]:
        raise PreconditionFailed(
            f"{left[0]} has the publish rate of a run that held its producers on {movement.origin}, and no record of "
            "it: set the rate that it should have. No client was moved."
        )
    try:
        for name in movement.namespaces:
            await record_overrides(origin, run, name, original)
        yield original
    finally:
        await restore_original_settings(origin, run.id, original, brokers=False, replicates=True)


async def release_producers(run: Run, origin: AdminClient, namespaces: Sequence[NamespaceName]) -> None:
    """Release what an earlier try of this run has left held. A call for each namespace."""
    from pulsar_fleet.migration.prepare.overrides import OriginalSettings
    from pulsar_fleet.migration.prepare.restore import restore_original_settings

    records = await _records(origin, namespaces)
    if own := {name: record for name, record in records.items() if record.run == run.id}:
        original = OriginalSettings.recorded(own)
        await restore_original_settings(origin, run.id, original, brokers=False, replicates=True)


async def release_rates(admin: AdminClient, namespaces: Sequence[NamespaceName], run_id: str) -> None:
    """Lift what a run has left held on a cluster to which clients return; its other overrides stay.

    :raises PreconditionFailed: a namespace is still held: nobody could publish there.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.runs.overrides import is_throttle
    from pulsar_fleet.migration.prepare.overrides import OriginalSettings, restore_publish_rates

    records = await _records(admin, namespaces)
    for name in namespaces:
        record = records.get(str(name))
        if record and record.run == run_id:
            await restore_publish_rates(admin, name, OriginalSettings.recorded({str(name): record}))
        if is_throttle(await _rate(admin, name)):
            held = command_line("restore", admin.connection.argument, "--namespaces", str(name))
            raise PreconditionFailed(
                f"The producers of {name} are held on {admin.connection.name}"
                f"{f' by {record.run}' if record else ''}: nobody could publish there. If that run has ended: {held}. "
                "Then clear this task. No client was moved."
            )


async def _records(admin: AdminClient, namespaces: Sequence[NamespaceName]) -> dict[str, NamespaceOverrides]:
    from pulsar_fleet.cluster.runs.overrides import overrides_in

    found = {str(name): overrides_in(await admin.namespace(name) or {}) for name in namespaces}
    return {name: record for name, record in found.items() if record}


async def is_held(run: Run, origin: AdminClient, namespaces: Sequence[NamespaceName]) -> bool:
    """Whether this run still has a record there; True where that cannot be read."""
    from pulsar_fleet.cluster.errors import FleetError

    try:
        return any(record.run == run.id for record in (await _records(origin, namespaces)).values())
    except FleetError as error:
        log.warning("%s", error)
        return True


async def _rate(admin: AdminClient, name: NamespaceName) -> JsonObject | None:
    rate: JsonObject | None = await admin.get(f"/namespaces/{name.path}/publishRate")
    return rate


async def _require_throttled(origin: AdminClient, movement: Movement) -> None:
    """Refuse to publish where somebody else has released the producers meanwhile."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.runs.overrides import is_throttle

    for name in movement.namespaces:
        if not is_throttle(await _rate(origin, name)):
            raise PreconditionFailed(
                f"Somebody has changed the publish rate of {name} on {movement.origin}, which held its producers. No "
                "client was moved: clear this task."
            )


async def _linked(carrier: Carrier, movement: Movement) -> tuple[TopicName, ...]:
    """The topics that replicate to the target, without those that take no message; refuses one without a link."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.links.lag import lag_of
    from pulsar_fleet.links.partition_stats import required_stats
    from pulsar_fleet.replication.failover.client_move import terminated

    statistics = await required_stats(carrier.origin, carrier.topics)
    unlinked = {*lag_of([*statistics.values()], movement.target).unlinked}
    ended = await terminated(carrier.origin, [topic for topic in carrier.topics if str(topic) in unlinked])
    if missing := sorted(unlinked - {*map(str, ended)}):
        raise PreconditionFailed(
            f"{listed(missing, _MOST)}: {movement.origin} does not replicate it to {movement.target} now. No producer "
            "was held and no client was moved. The doctor says why; then clear this task."
        )
    return tuple(topic for topic in carrier.topics if topic not in ended)


async def _come_to_rest(
    session: Session, carrier: Carrier, movement: Movement, linked: Sequence[TopicName]
) -> tuple[Mapping[_Subscription, int], CarriedPositions, tuple[ConnectedClient, ...]]:
    """Wait until nothing is in flight, read and replicated, then carry what has changed since.

    Returns what consumers have not acknowledged, the positions, and who is connected.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.statistics import Role
    from pulsar_fleet.migration.cutover.namespace_cutover import pending_text, wait_quiesced
    from pulsar_fleet.replication.failover.client_move import connected

    state, unacknowledged = "publishes were still in flight", dict[_Subscription, int]()
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await asyncio.sleep(_QUIESCE_SECONDS)
            producers = [one for one in await connected(carrier.origin, linked) if one.role is Role.PRODUCER]
            written = {client.topic for client in producers}
            partitions = [topic for topic in linked if str(topic) in written]
            result = await wait_quiesced(carrier.origin, partitions, _READY_SECONDS - 2 * _QUIESCE_SECONDS)
            if result.waiting:
                raise PreconditionFailed(
                    f"Producers on {movement.origin} publish although they are held: {pending_text(result.waiting)}. "
                    "They were released, and no client was moved. Look at the write latency of the bookies, then clear "
                    "this task; or start a run without 'exact'."
                )
            async for look in _looks(carrier.origin, linked, movement):
                state, unacknowledged = look
                if not state:
                    break
            state = "the positions that had changed were still being carried"
            carried, clients = await carrier.carry(limit_seconds=0.0)
    except TimeoutError:
        raise PreconditionFailed(
            f"{movement.origin}: {state}, {_READY_SECONDS:.0f} s after producers were held. They were released, and no "
            "client was moved. Let it catch up, then clear this task; or start a run without 'exact'."
        ) from None
    require_carried(session.conf, carried)
    return unacknowledged, carried, clients


async def _looks(
    origin: AdminClient, topics: Sequence[TopicName], movement: Movement
) -> AsyncIterator[tuple[str, dict[_Subscription, int]]]:
    """What is not at rest, at each look, and what consumers have not acknowledged; empty where everything is.

    Consumers that do not go on hold what they have, or their acknowledgments are on their way on a connection that the
    broker does not read: they are not waited for.
    """
    from pulsar_fleet.links.lag import lag_of
    from pulsar_fleet.links.partition_stats import required_stats

    changed, before = time.monotonic(), dict[_Subscription, int]()
    while True:
        statistics, now = await required_stats(origin, topics), time.monotonic()
        unread, lag = _unread(statistics), lag_of([*statistics.values()], movement.target)
        changed, before = (changed, before) if unread == before else (now, unread)
        if lag.entries or lag.unlinked:
            yield f"messages were not replicated to {movement.target}", unread
        elif unread and now - changed < _STILL_SECONDS:
            names = [f"{name} of {topic} ({counted(number, 'entry')})" for (topic, name), number in unread.items()]
            yield f"consumers still read {listed(names, _MOST)}", unread
        else:
            yield "", unread
        await asyncio.sleep(_POLL_SECONDS)


def _unread(statistics: Mapping[TopicName, TopicStats]) -> dict[_Subscription, int]:
    """Topic and subscription with consumers → entries that it has not acknowledged, where there are any."""
    return {
        (str(topic), name): one.backlog
        for topic, stats in statistics.items()
        for name, one in stats.subscriptions.items()
        if one.consumers and one.durable and one.backlog
    }


async def _wait_come(
    target: AdminClient,
    topics: Sequence[TopicName],
    expected: Sequence[ConnectedClient],
    before: Collection[ConnectedClient],
) -> tuple[ConnectedClient, ...]:
    """Wait until the clients are on the target; returns those that are not after `_COME_SECONDS`.

    The cluster that they leave would not say it: it does not read a connection whose producer it holds.

    :param before: who was on the target before.
    """
    from pulsar_fleet.cluster.statistics import absent_clients
    from pulsar_fleet.replication.failover.client_move import connected

    there = {(client.identity, client.address) for client in before}
    late = tuple(expected)
    try:
        async with asyncio.timeout(_COME_SECONDS):
            while late:
                await asyncio.sleep(_POLL_SECONDS)
                arrived = await connected(target, topics)
                new = [client for client in arrived if (client.identity, client.address) not in there]
                late = absent_clients(expected, (), new)
    except TimeoutError:
        log.info("%s have not come yet", counted(len(late), "client"))
    return late
