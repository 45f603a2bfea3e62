"""Move clients so that no message is delivered twice: their producers wait while the last positions are carried.

By the throttle of a cut-over, recorded on the cluster first: `restore` and `watch_overrides` lift what a process that
died has left. A broker reads nothing from a connection whose producer it holds, acknowledgments neither: of a client
whose producers and consumers share one, those on their way are delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.procedures.moving_clients import (
    answers,
    keep_clients,
    present_before,
    publish,
    published_text,
    reached,
    require_carried,
    sides_of,
)
from pulsar_fleet.procedures.procedure import Done

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from pulsar_fleet.clients.store import ConnectionDocuments, Publication
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


def is_exact(conf: JsonObject) -> bool:
    """Whether nothing may be delivered twice; not in runs of an earlier release, which have no such setting."""
    return bool(conf.get("exact"))


def require_one_of(conf: JsonObject) -> None:
    """Refuse to deliver nothing twice without positions."""
    from pulsar_fleet.cluster.errors import InvalidRequest

    if is_exact(conf) and conf["skip_positions"]:
        raise InvalidRequest(
            "'exact' delivers nothing twice, and 'skip_positions' moves clients without their positions: set one of "
            "both. Nothing was changed."
        )


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


async def begin_again(session: Session, movement: Movement, *, is_gone: bool = False) -> None:
    """Release what an earlier try of this run has left held, and its lease.

    :param is_gone: the cluster that clients leave does not answer.
    """
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.migration.prepare.lease import release, require_own
    from pulsar_fleet.migration.prepare.overrides import OriginalSettings

    sides, run = reached(session), session.run
    await require_own(sides, run)
    if not is_gone:
        origin = session.clusters["origin"]
        records = _records(await _policies(origin, movement.namespaces))
        if own := {name: record for name, record in records.items() if record.run == run.id}:
            await _release(run, origin, OriginalSettings.recorded(own))
    with suppress(*((FleetError,) if is_gone else ())):
        await release(sides, run)


async def lead_leased(session: Session, movement: Movement, documents: ConnectionDocuments, expected: int) -> Done:
    """As `lead_held`, under a lease of its own: no other run sets these cursors meanwhile."""
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.prepare.lease import held, release

    sides, run = Sides(*sides_of(session)), session.run

    async def lead(clients: tuple[ConnectedClient, ...]) -> Publication:
        keep_clients(run, clients)
        return publish(run, session.conf["why"], documents, movement, expected)

    async with held(sides, run, movement.namespaces, gives_up=False):
        try:
            led = await lead_held(session, sides, movement, lead)
        finally:
            # While producers are held the lease says so: `restore` and `watch_overrides` look for it.
            if not await _is_held(run, session.clusters["origin"], movement.namespaces):
                await release(sides, run)
    return Done(f"{published_text(led.made, documents)} {led.text()}", led.carried)


async def return_held(
    session: Session, movement: Movement, documents: ConnectionDocuments, expected: int
) -> Done | None:
    """As `lead_leased`; None where the cluster that they leave has died before they were led."""
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.migration.prepare.lease import release

    try:
        return await lead_leased(session, movement, documents, expected)
    except FleetError as error:
        if documents.newest(movement.group) != expected or await answers(session):
            raise
        log.warning("Producers are not held: %s", error)
    with suppress(FleetError):
        await release(reached(session), session.run)
    return None


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
    :raises PreconditionFailed: nothing came to rest in time, or a topic has no link: producers were released, and
        nobody was moved. Or, after the publication: they may still be held, as the message says.
    """
    from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
    from pulsar_fleet.replication.failover.client_move import carrying, connected

    made = None
    try:
        async with carrying(sides.blue, sides.green, movement.namespaces, present_before(session)) as carrier:
            await require_holds(carrier.origin)
            carried, _ = await carrier.carry()
            require_carried(session.conf, carried)
            linked = await _linked(carrier, movement)
            before = await connected(carrier.target, carrier.topics)
            async with _held(session.run, carrier.origin, movement, original) as (throttles, began):
                unacknowledged, carried, clients = await _come_to_rest(session, carrier, movement, linked, throttles)
                await asyncio.gather(*(throttle.require_held() for throttle in throttles))
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
    """What is overridden, recorded on the cluster; restored when the block has ended."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.runs.overrides import is_throttle
    from pulsar_fleet.migration.prepare.freeze import read_original_settings, record_overrides

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
        await _release(run, origin, original)


async def _release(run: Run, origin: AdminClient, original: OriginalSettings) -> None:
    """Release the producers of these namespaces."""
    from pulsar_fleet.migration.prepare.restore import restore_original_settings

    await restore_original_settings(origin, run.id, original, brokers=False, replicates=True)


async def release_rates(admin: AdminClient, namespaces: Sequence[NamespaceName], run_id: str = "") -> None:
    """Lift what a run has left held on a cluster to which clients are led; its other overrides stay.

    :raises PreconditionFailed: a namespace is still held: nobody could publish there.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.runs.overrides import is_throttle
    from pulsar_fleet.migration.prepare.overrides import OriginalSettings, restore_publish_rates

    policies, own = await _policies(admin, namespaces), await admin.cluster_name()
    records = _records(policies)
    for name in namespaces:
        record = records.get(str(name))
        if record and record.run == run_id:
            await restore_publish_rates(admin, name, OriginalSettings.recorded({str(name): record}))
        elif is_throttle((policies[str(name)].get("publishMaxMessageRate") or {}).get(own)):
            held = command_line("restore", admin.connection.argument, "--namespaces", str(name))
            raise PreconditionFailed(
                f"The producers of {name} are held on {admin.connection.name}"
                f"{f' by {record.run}' if record else ''}: nobody could publish there. If that run has ended: {held}. "
                "Then clear this task. No client was moved."
            )


async def _policies(admin: AdminClient, namespaces: Sequence[NamespaceName]) -> dict[str, JsonObject]:
    return {str(name): await admin.namespace(name) or {} for name in namespaces}


def _records(policies: Mapping[str, JsonObject]) -> dict[str, NamespaceOverrides]:
    from pulsar_fleet.cluster.runs.overrides import overrides_in

    records = ((name, overrides_in(document)) for name, document in policies.items())
    return {name: record for name, record in records if record}


async def _is_held(run: Run, origin: AdminClient, namespaces: Sequence[NamespaceName]) -> bool:
    """Whether this run still has a record there; True where that cannot be read."""
    from pulsar_fleet.cluster.errors import FleetError

    try:
        return any(record.run == run.id for record in _records(await _policies(origin, namespaces)).values())
    except FleetError as error:
        log.warning("%s", error)
        return True


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
    session: Session,
    carrier: Carrier,
    movement: Movement,
    linked: Sequence[TopicName],
    throttles: Sequence[Throttle],
) -> tuple[Mapping[_Subscription, int], CarriedPositions, tuple[ConnectedClient, ...]]:
    """Wait until nothing is in flight, read and replicated, then carry what has changed since.

    Returns what consumers have not acknowledged, the positions, and who is connected.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.polling import all_ended
    from pulsar_fleet.cluster.statistics import Role
    from pulsar_fleet.migration.cutover.namespace_cutover import wait_quiesced
    from pulsar_fleet.replication.failover.client_move import connected

    state, unacknowledged = "publishes were still in flight", dict[_Subscription, int]()
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await asyncio.sleep(_QUIESCE_SECONDS)
            producers = [one for one in await connected(carrier.origin, linked) if one.role is Role.PRODUCER]
            written = {client.topic for client in producers}
            partitions = [topic for topic in linked if str(topic) in written]
            result = await wait_quiesced(
                carrier.origin,
                partitions,
                _READY_SECONDS - 2 * _QUIESCE_SECONDS,
                again=lambda: all_ended(*(throttle.store_again() for throttle in throttles)),
            )
            if result.waiting:
                raise PreconditionFailed(
                    f"Producers on {movement.origin} publish although they are held: {result.text()}. "
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
    from pulsar_fleet.replication.failover.client_move import connected, newcomers

    late = tuple(expected)
    try:
        async with asyncio.timeout(_COME_SECONDS):
            while late:
                await asyncio.sleep(_POLL_SECONDS)
                late = absent_clients(expected, (), newcomers(await connected(target, topics), before))
    except TimeoutError:
        log.info("%s have not come yet", counted(len(late), "client"))
    return late
