"""Move the clients of a group to another cluster: what stands in the way, their positions, and who has arrived."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document, Sorted
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, TopicStats, absent_clients
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.replication.failover.carry import (
    CarriedCursor,
    CarriedPositions,
    carry_positions,
    plan_positions,
)
from pulsar_fleet.replication.failover.measure import TOPICS_AT_ONCE, both_clusters, persistent_partitions
from pulsar_fleet.replication.failover.read import TopicReader
from pulsar_fleet.replication.failover.shared_clients import used_elsewhere
from pulsar_fleet.snapshot.resources import is_terminated, read_migrated_to

_SETTLED_SECONDS = 60.0
"""Nobody is waited for any longer who left one cluster and did not come to the other: it may have ended."""
_QUICK_SECONDS, _SHRUNK = 1.0, 0.8
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement(Document):
    """One move, decided once.

    :param origin: own name of the cluster that the clients leave; `target`: that to which they move.
    :param document: what they follow then; `before`: what they follow until then.
    """

    SCHEMA_VERSION = 1

    group: str
    namespaces: tuple[NamespaceName, ...]
    origin: str
    target: str
    document: ConnectionDocument
    before: ConnectionDocument

    def back(self) -> Movement:
        """The same the other way."""
        return Movement(
            group=self.group,
            namespaces=self.namespaces,
            origin=self.target,
            target=self.origin,
            document=self.before,
            before=self.document,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """What a move would do now.

    :param clients: connected to the topics on the cluster that they leave.
    :param elsewhere: address of a client → other namespaces that it uses; None: why that is unknown, as `unread`.
    """

    positions: CarriedPositions
    clients: tuple[ConnectedClient, ...]
    elsewhere: Mapping[str, Collection[str]]
    unread: str = ""


@dataclass(slots=True)
class Departure(Document):
    """The clients of a move, before it and since.

    :param since: when the last of them had left, in seconds since 1970; None while one is connected.
    :param arrived: `subscription of topic` that have had consumers on the other cluster: their cursors are theirs.
    """

    SCHEMA_VERSION = 1

    clients: tuple[ConnectedClient, ...] = ()
    since: float | None = None
    arrived: Annotated[set[str], Sorted()] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Who has come.

    :param staying: connected to the cluster that they should have left; None: it does not answer.
    :param missing: connected to neither.
    """

    expected: int
    staying: tuple[ConnectedClient, ...] | None
    missing: tuple[ConnectedClient, ...]
    waited_enough: bool

    @property
    def is_done(self) -> bool:
        """Whether nobody is waited for."""
        return not self.staying and (not self.missing or self.waited_enough)

    def line(self, origin: str, target: str) -> str:
        """`3 of 12 clients are on blue: …; 1 on neither cluster: …`."""
        come = self.expected - len(self.missing) - len(self.staying or ())
        parts = [f"{max(0, come):,} of {counted(self.expected, 'client')} came to {target}"]
        if self.staying is None:
            parts.append(f"{origin} does not answer")
        elif self.staying:
            parts.append(f"{len(self.staying):,} on {origin}: {listed(_named(self.staying), _MOST)}")
        if self.missing:
            parts.append(f"{len(self.missing):,} on neither: {listed(_named(self.missing), _MOST)}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Who is still on a cluster that is to end.

    :param problem: why messages would be lost with the subscriptions that are carried; empty if none would.
    :param is_unread: the problem is what nobody has read, and not that something is unknown.
    :param carried: the positions that were set.
    """

    staying: tuple[ConnectedClient, ...]
    problem: str
    is_unread: bool
    carried: tuple[CarriedCursor, ...]

    @property
    def created(self) -> dict[TopicName, list[str]]:
        """Topic → subscriptions that the other cluster lacked until now."""
        created = dict[TopicName, list[str]]()
        for cursor in self.carried:
            if cursor.is_new:
                created.setdefault(TopicName.parse(cursor.topic), []).append(cursor.subscription)
        return created

    @property
    def is_done(self) -> bool:
        """Whether nobody is waited for, and nothing would be lost."""
        return not self.staying and not self.problem

    def line(self, origin: str) -> str:
        """`3 clients on blue: …`, with the problem."""
        named = f": {listed(_named(self.staying), _MOST)}" if self.staying else ""
        line = f"{counted(len(self.staying), 'client')} on {origin}{named}"
        if not self.problem:
            return line
        if not self.is_unread:
            return f"{line}; {self.problem}"
        return (
            f"{line}; {self.problem}. Let their applications read them on {origin}, or delete the subscription there "
            "if none needs it"
        )


def _named(clients: Sequence[ConnectedClient]) -> list[str]:
    return [f"{client} on {client.topic}" for client in clients]


async def plan_move(
    origin: ClusterConnection, target: ClusterConnection, namespaces: Sequence[NamespaceName]
) -> MovePlan:
    """Read what a move would do; changes nothing, and loads the topics.

    Calls: two for a namespace, eight for a topic, one for each broker.

    :raises PreconditionFailed: a namespace does not replicate both ways, or a migration has ended it.
    :raises NotFound: a cluster lacks a namespace.
    """
    async with both_clusters(origin, target) as (here, there, reader):
        await _require_both_ways(here.admin, there.admin, namespaces)
        topics = await topics_of(here.admin, namespaces)
        positions = await plan_positions(reader, topics)
        clients = await connected(here.admin, topics)
        try:
            elsewhere, unread = await used_elsewhere(here.admin, clients, namespaces), ""
        except FleetError as error:
            elsewhere, unread = {}, str(error)
    return MovePlan(positions=positions, clients=clients, elsewhere=elsewhere, unread=unread)


async def _require_both_ways(here: AdminClient, there: AdminClient, namespaces: Sequence[NamespaceName]) -> None:
    names = {await here.cluster_name(), await there.cluster_name()}
    for admin in (here, there):
        own = await admin.cluster_name()
        for namespace in namespaces:
            document = await admin.namespace(namespace)
            replicate = ("replicate", here.connection.argument, there.connection.argument, "--namespaces", namespace)
            if document is None and admin is here:
                raise NotFound(f"{own} has no namespace {namespace}: correct 'namespaces'. No client was moved.")
            if document is None:
                raise NotFound(
                    f"{own} has no namespace {namespace}: replicate it both ways first, with what is stored: "
                    f"{command_line(*replicate, '--history')}"
                )
            if text := await read_migrated_to(admin, namespace, document):
                raise PreconditionFailed(f"{text}. Its topics take no message again: no client can move back.")
            if missing := names - {*(document.get("replication_clusters") or ())}:
                raise PreconditionFailed(
                    f"{own} does not replicate {namespace} to {listed(sorted(missing))}: what clients write after the "
                    f"move would not come back. Replicate it both ways first: {command_line(*replicate)}"
                )


async def topics_of(admin: AdminClient, namespaces: Sequence[NamespaceName]) -> list[TopicName]:
    """All persistent topics that exist, plain ones and partitions."""
    return await persistent_partitions(admin, dict.fromkeys(namespaces, ()))


async def connected(admin: AdminClient, topics: Sequence[TopicName]) -> tuple[ConnectedClient, ...]:
    """The clients of these topics, of those that can be read. A call for each; loads them."""
    answers = await stats_of(admin, topics, precise=False)
    read = (answer for answer in answers.values() if isinstance(answer, TopicStats))
    return tuple(client for stats in read for client in stats.clients)


def newcomers(clients: Iterable[ConnectedClient], before: Iterable[ConnectedClient]) -> tuple[ConnectedClient, ...]:
    """Those who were not connected before, or have connected again since."""
    earlier = {(client.identity, client.address) for client in before}
    return tuple(client for client in clients if (client.identity, client.address) not in earlier)


async def require_open(
    admin: AdminClient, namespaces: Sequence[NamespaceName], other: AdminClient | None = None
) -> None:
    """Refuse a cluster on which a migration has ended a namespace: nobody can publish there. A call for each topic.

    :param other: the cluster that clients leave. Without it, where it does not answer, only a namespace is refused of
        which every topic is terminated.
    """
    for namespace in namespaces:
        if text := await read_migrated_to(admin, namespace, await admin.namespace(namespace) or {}):
            raise PreconditionFailed(f"{text}. Its topics take no message again: no client can move there.")
        topics = await topics_of(admin, [namespace])
        ended = await terminated(admin, topics)
        refused = ended - await terminated(other, sorted(ended)) if other and ended else ended
        if refused and (other or len(ended) == len(topics)):
            raise PreconditionFailed(
                f"{listed(sorted(refused), _MOST)}: terminated on {await admin.cluster_name()}, as by a migration that "
                "has completed the move. It takes no message again: no client can move there."
            )


async def terminated(admin: AdminClient, topics: Sequence[TopicName]) -> set[TopicName]:
    """Those of the topics that take no message any more, as far as they can be read. A call for each."""
    slots = asyncio.Semaphore(TOPICS_AT_ONCE)

    async def is_ended(topic: TopicName) -> bool:
        async with slots:
            try:
                return is_terminated(await admin.internal_info(topic, answered_retry_seconds=0))
            except FleetError:
                # A topic that cannot be read keeps nobody on a cluster that is worse.
                return False

    found = await asyncio.gather(*map(is_ended, topics))
    return {topic for topic, ended in zip(topics, found, strict=True) if ended}


async def carry(
    origin: ClusterConnection,
    target: ClusterConnection,
    namespaces: Sequence[NamespaceName],
    *,
    limit_seconds: float = math.inf,
    present: Mapping[TopicName, Collection[str]] | None = None,
) -> tuple[CarriedPositions, tuple[ConnectedClient, ...]]:
    """Carry the positions of every subscription, and read who is connected to the cluster that clients leave.

    Positions are carried again until that takes at most a second, or hardly less than the time before: what is
    acknowledged while they are carried will be delivered again.

    :param limit_seconds: nothing is begun again that would end later, if it took as long. 0: they are carried once.
    :param present: as of `carry_positions`.
    """
    async with carrying(origin, target, namespaces, present) as carrier:
        return await carrier.carry(limit_seconds)


@dataclass(slots=True)
class Carrier:
    """Carries the positions of namespaces; what was read once it does not read again.

    :param present: as of `carry_positions`.
    :param topics: those of the last time.
    """

    origin: AdminClient
    target: AdminClient
    namespaces: Sequence[NamespaceName]
    reader: TopicReader
    present: Mapping[TopicName, Collection[str]] | None = None
    topics: Sequence[TopicName] = ()
    carried: CarriedPositions | None = None

    async def carry(self, limit_seconds: float = math.inf) -> tuple[CarriedPositions, tuple[ConnectedClient, ...]]:
        """As the function `carry`."""
        first, before = time.monotonic(), math.inf
        while True:
            # Read before: while they are read positions would grow old.
            self.topics = await topics_of(self.origin, self.namespaces)
            clients, began = await connected(self.origin, self.topics), time.monotonic()
            carried = await carry_positions(self.reader, self.topics, self.target, present=self.present)
            self.carried = carried.after(self.carried)
            seconds = time.monotonic() - began
            is_late = time.monotonic() - first + seconds > limit_seconds
            if is_late or seconds <= _QUICK_SECONDS or seconds > before * _SHRUNK:
                return self.carried, clients
            before = seconds


@asynccontextmanager
async def carrying(
    origin: ClusterConnection,
    target: ClusterConnection,
    namespaces: Sequence[NamespaceName],
    present: Mapping[TopicName, Collection[str]] | None = None,
) -> AsyncIterator[Carrier]:
    """Open both clusters; refuses a target that nobody can move to."""
    async with both_clusters(origin, target) as (here, there, reader):
        await require_open(there.admin, namespaces, here.admin)
        yield Carrier(here.admin, there.admin, namespaces, reader, present)


async def look_arrived(
    origin: ClusterConnection,
    target: ClusterConnection,
    namespaces: Sequence[NamespaceName],
    departure: Departure,
    present: Mapping[TopicName, Collection[str]] | None = None,
) -> Arrival:
    """Who has come since the document was published.

    Of a subscription whose consumers are still on `origin` the position is carried again.

    :param departure: what was known at the last look; changed in place.
    :param present: as of `carry_positions`.
    """
    async with both_clusters(origin, target) as (here, there, reader):
        topics = await topics_of(here.admin, namespaces)
        on_origin, on_target = await _statistics(here.admin, topics), await _statistics(there.admin, topics)
        late = {topic: _awaited(on_origin[topic], on_target[topic], departure) for topic in topics}
        # Where the cluster did not answer at first, no address is known at which its entries are read.
        if origin.service_url and (awaited := {topic: names for topic, names in late.items() if names}):
            await carry_positions(reader, awaited, there.admin, awaited, present)
    staying = tuple(client for stats in on_origin.values() for client in stats.clients)
    departure.since = None if staying else departure.since or time.time()
    return _arrival(departure, staying, on_target)


async def look_left(
    origin: ClusterConnection,
    target: ClusterConnection,
    namespaces: Sequence[NamespaceName],
    departure: Departure,
    *,
    led_since: int,
    confirmed: Mapping[TopicName, Position],
) -> Left:
    """Who is still on `origin`, which is to end. Subscriptions that `target` lacks are created there.

    Carried are their positions, and those of subscriptions whose consumers are on `origin` and which nobody has used on
    `target`. Where messages would be lost nothing is set.

    :param departure: what was known at the last look; changed in place.
    :param led_since: when applications were led to `target`, in ms since 1970: who has read there since then has the
        position. 0: not known, and everybody has who has read there.
    :param confirmed: as of `plan_positions`.
    """
    positions, cursors = CarriedPositions(unknown={}), tuple[CarriedCursor, ...]()
    async with both_clusters(origin, target) as (here, there, reader):
        topics = await topics_of(here.admin, namespaces)
        on_origin, on_target = await _statistics(here.admin, topics), await _statistics(there.admin, topics)
        for topic, stats in on_target.items():
            read = (name for name, one in stats.subscriptions.items() if one.last_used > led_since)
            departure.arrived |= {f"{name} of {topic}" for name in read}
        late = {
            topic: _awaited(on_origin[topic], on_target[topic], departure)
            | _lacking(on_origin[topic], on_target[topic])
            for topic in topics
        }
        if awaited := {topic: names for topic, names in late.items() if names}:
            # A subscription that is there is missed by nobody: its messages must be too.
            positions = await plan_positions(reader, awaited, awaited, confirmed)
            if not positions.problem():
                positions = await carry_positions(reader, awaited, there.admin, awaited, confirmed=confirmed)
                cursors = positions.cursors
    staying = tuple(client for stats in on_origin.values() for client in stats.clients)
    is_unread = positions.accepted_by == "accept_lost"
    return Left(staying=staying, problem=positions.problem(), is_unread=is_unread, carried=cursors)


async def carry_idle(
    origin: ClusterConnection, target: ClusterConnection, namespaces: Sequence[NamespaceName], departure: Departure
) -> CarriedPositions:
    """Carry positions of subscriptions that nobody reads in this moment, as of a job that runs at night on `origin`.

    Only forward: what is acknowledged on `target` must be so on `origin` too. A broker forgets when a subscription was
    read last, and one that was read on `target` must not deliver again.

    :param departure: of the last look: a subscription that has arrived on `target` stays.
    """
    async with both_clusters(origin, target) as (here, there, reader):
        topics = await topics_of(here.admin, namespaces)
        on_origin, on_target = await _statistics(here.admin, topics), await _statistics(there.admin, topics)
        idle = {topic: _idle(on_origin[topic], on_target[topic], departure) for topic in topics}
        planned = await plan_positions(reader, [topic for topic, names in idle.items() if names], idle)
        forward = dict[TopicName, set[str]]()
        for cursor in planned.cursors:
            if not (cursor.again or cursor.absent or cursor.used):
                forward.setdefault(TopicName.parse(cursor.topic), set()).add(cursor.subscription)
        return await carry_positions(reader, forward, there.admin, forward)


async def look_arrived_alone(target: AdminClient, movement: Movement, departure: Departure) -> Arrival:
    """As `look_arrived` where the cluster that clients leave does not answer."""
    topics = await topics_of(target, movement.namespaces)
    on_target = await _statistics(target, topics)
    departure.since = departure.since or time.time()
    for stats in on_target.values():
        _note_arrived(stats, departure)
    return _arrival(departure, None, on_target)


async def _statistics(admin: AdminClient, topics: Sequence[TopicName]) -> dict[TopicName, TopicStats]:
    """The statistics of topics; of one that the cluster lacks without clients, and `Unavailable` for one unread."""
    found: dict[TopicName, TopicStats] = {}
    for topic, answer in (await stats_of(admin, topics, precise=False)).items():
        if isinstance(answer, FleetError) and not isinstance(answer, NotFound):
            raise Unavailable(f"{topic} cannot be read on {admin.connection.name}: {answer}")
        found[topic] = answer if isinstance(answer, TopicStats) else TopicStats.of(topic, {}, exists=False)
    return found


def _awaited(on_origin: TopicStats, on_target: TopicStats, departure: Departure) -> set[str]:
    """The subscriptions with consumers on the cluster that they leave, which had none on the other one until now."""
    _note_arrived(on_target, departure)
    return {
        name
        for name, one in on_origin.subscriptions.items()
        if one.consumers and f"{name} of {on_target.topic}" not in departure.arrived
    }


def _idle(on_origin: TopicStats, on_target: TopicStats, departure: Departure) -> set[str]:
    """The subscriptions of both without consumers that have not arrived."""
    return {
        name
        for name, subscription in on_origin.subscriptions.items()
        if subscription.durable
        and not subscription.consumers
        and f"{name} of {on_target.topic}" not in departure.arrived
    } & on_target.subscriptions.keys()


def _lacking(on_origin: TopicStats, on_target: TopicStats) -> set[str]:
    return {name for name, one in on_origin.subscriptions.items() if one.durable} - on_target.subscriptions.keys()


def _note_arrived(on_target: TopicStats, departure: Departure) -> None:
    there = (name for name, one in on_target.subscriptions.items() if one.consumers)
    departure.arrived |= {f"{name} of {on_target.topic}" for name in there}


def _arrival(
    departure: Departure, staying: tuple[ConnectedClient, ...] | None, on_target: Mapping[TopicName, TopicStats]
) -> Arrival:
    arrived = [client for stats in on_target.values() for client in stats.clients]
    missing = absent_clients(departure.clients, staying or (), arrived)
    waited = departure.since is not None and time.time() - departure.since >= _SETTLED_SECONDS
    return Arrival(expected=len(departure.clients), staying=staying, missing=missing, waited_enough=waited)
