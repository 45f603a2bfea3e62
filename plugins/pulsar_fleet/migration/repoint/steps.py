"""Watch the applications of namespaces that their owners connect to green; the state is stored with the run.

While a subscription has consumers on blue and none on green, green's cursor follows blue's: a consumer that leaves blue
and arrives on green gets again what was acknowledged on blue since the last poll, and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document, Sorted
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, TopicStats, absent_clients
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import required_stats
from pulsar_fleet.migration.artefacts import REPOINT_STATE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import read_clients
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy
from pulsar_fleet.migration.prepare.lease import renew_while_waiting
from pulsar_fleet.migration.prepare.target import prepare_deleted
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.subscriptions.checkpoint import Checkpoint, stored_clients
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer

SETTLED_SECONDS = 600.0
"""Blue is left for good when it has had no client for so long, also where fewer clients than before are on green."""
_MOST = 3


@dataclass(slots=True)
class PartitionWatch(Document):
    """The subscriptions of one partition.

    :param followed: subscription → mark-delete position on blue up to which green delivers nothing.
    :param arrived: subscriptions that have had consumers on green; their cursors are not set any more.
    :param written: producers have been connected to green: no cursor may skip what they wrote.
    """

    followed: dict[str, Position] = field(default_factory=dict)
    arrived: Annotated[set[str], Sorted()] = field(default_factory=set)
    written: bool = False

    def record_green(self, stats: TopicStats) -> None:
        """Note who is connected to green."""
        self.arrived |= {name for name, subscription in stats.subscriptions.items() if subscription.consumers}
        self.written |= stats.producers > 0


@dataclass(slots=True)
class NamespaceWatch(Document):
    """One namespace.

    :param left_since: since when blue has had no client, in seconds since 1970; None while it has one.
    """

    partitions: dict[TopicName, PartitionWatch] = field(default_factory=dict)
    left_since: float | None = None

    def partition(self, topic: TopicName) -> PartitionWatch:
        """The subscriptions of a partition."""
        return self.partitions.setdefault(topic, PartitionWatch())

    def record_clients(self, blue: Mapping[TopicName, TopicStats], now: float) -> None:
        """Note whether blue has a client."""
        if any(stats.clients for stats in blue.values()):
            self.left_since = None
        elif self.left_since is None:
            self.left_since = now


@dataclass(slots=True)
class RepointState(Document):
    """All namespaces of a run that are moved so, by name."""

    SCHEMA_VERSION = 1

    namespaces: dict[str, NamespaceWatch] = field(default_factory=dict)

    def namespace(self, name: str) -> NamespaceWatch:
        """One namespace."""
        return self.namespaces.setdefault(name, NamespaceWatch())


@dataclass(frozen=True, slots=True, kw_only=True)
class RepointProgress:
    """How far the applications of one namespace have come.

    :param clients: number of clients that were on blue at first.
    :param on_blue: clients that are connected to blue.
    :param missing: clients that were on blue and are on neither cluster.
    :param on_both: `subscription of topic` with consumers on both clusters: both deliver every message.
    :param left_seconds: how long blue has had no client.
    :param unsent: entries on blue that are not on green yet.
    """

    namespace: str
    clients: int
    on_blue: tuple[ConnectedClient, ...]
    missing: tuple[ConnectedClient, ...]
    on_both: tuple[str, ...]
    left_seconds: float
    unsent: int

    @classmethod
    def of(
        cls,
        namespace: str,
        before: ConnectedClients,
        blue: Mapping[TopicName, TopicStats],
        green: Mapping[TopicName, TopicStats],
        *,
        cluster: str,
        left_seconds: float,
    ) -> RepointProgress:
        """Compare the clients of both clusters with those that were on blue at first.

        :param cluster: green's own name.
        """
        missing = (absent_clients(before.get(topic, ()), blue[topic].clients, green[topic].clients) for topic in blue)
        return cls(
            namespace=namespace,
            clients=sum(map(len, before.values())),
            on_blue=tuple(client for stats in blue.values() for client in stats.clients),
            missing=tuple(client for partition in missing for client in partition),
            on_both=tuple(text for topic, stats in blue.items() for text in _on_both(stats, green[topic])),
            left_seconds=left_seconds,
            unsent=sum(stats.replication_backlog.get(cluster, 0) for stats in blue.values()),
        )

    @property
    def is_done(self) -> bool:
        """Whether blue's topics can be terminated: all clients are on green, or blue has had none for a while."""
        return not self.on_blue and (not self.missing or self.left_seconds >= SETTLED_SECONDS)

    def line(self, clusters: Mapping[str, str]) -> str:
        """`acme/orders: 3 of 12 clients on east: …; west has every entry; 1 on neither cluster: …`."""
        blue, green = clusters["blue"], clusters["green"]
        sent = (
            f"{counted(self.unsent, 'entry')} of {blue} not on {green} yet"
            if self.unsent
            else f"{green} has every entry"
        )
        parts = [f"{len(self.on_blue)} of {counted(self.clients, 'client')} on {blue}{_first(self.on_blue)}", sent]
        if self.missing:
            wait = "" if self.on_blue else f", waiting {duration(SETTLED_SECONDS - self.left_seconds)} for it"
            parts.append(f"{len(self.missing)} on neither cluster{_first(self.missing)}{wait}")
        if self.on_both:
            parts.append(f"both clusters deliver every message to {', '.join(self.on_both[:_MOST])}")
        return f"{self.namespace}: {'; '.join(parts)}"


def progress_line(namespaces: Iterable[RepointProgress], clusters: Mapping[str, str]) -> str:
    """One line for all namespaces; the first that are not done are named."""
    watched = list(namespaces)
    waiting = [progress for progress in watched if not progress.is_done]
    first = f"{len(watched) - len(waiting)} of {counted(len(watched), 'namespace')} left {clusters['blue']}"
    return " · ".join([first, *(progress.line(clusters) for progress in waiting[:_MOST])])


def _first(clients: tuple[ConnectedClient, ...]) -> str:
    return f": {', '.join(f'{client} on {client.topic}' for client in clients[:_MOST])}" if clients else ""


def _on_both(blue: TopicStats, green: TopicStats) -> Iterable[str]:
    for name, subscription in blue.subscriptions.items():
        other = green.subscriptions.get(name)
        if subscription.consumers and other and other.consumers:
            yield f"{name!r} of {blue.topic}"


log = logging.getLogger(__name__)

NOTHING_TO_WATCH = "no owner has to connect an application: clients are redirected, or they have left it"
_CONCURRENT_PARTITIONS = 16


def read_state(run: Run) -> RepointState:
    """What the last poll stored; empty before the first."""
    document = run.stored(REPOINT_STATE)
    return RepointState.from_json(document) if document else RepointState()


async def repoint_progress(sides: Sides, run: Run, moves: Moves) -> tuple[bool, str]:
    """Poll once: whether every application has left blue, and a line that says who has not.

    It sets cursors on green that no consumer uses. Calls: two for each topic, two for each namespace, four and more for
    each partition with a subscription that has not arrived.
    """
    moves = replace(moves, moves=tuple(move for move in moves.moves if move.strategy is Strategy.REPOINT))
    moves = Reached.of(run).before(moves, Phase.CUT_OVER)
    if not moves.moves:
        return True, NOTHING_TO_WATCH
    await renew_while_waiting(sides, run, moves)
    state = read_state(run)
    async with sides.open() as (blue, green):
        await prepare_deleted(blue, green, run, moves.moves, used=True)
        connected = {move.namespace: await _clients_at_first(blue, run, move) for move in moves.moves}
        try:
            progress = [
                await _watch(blue, green, move, state.namespace(str(move.namespace)), connected[move.namespace])
                for move in moves.moves
            ]
        finally:
            run.artefacts.write_json(run.id, REPOINT_STATE, state.to_json())
    return all(namespace.is_done for namespace in progress), progress_line(progress, moves.names)


async def _clients_at_first(blue: AdminClient, run: Run, move: Move) -> ConnectedClients:
    """The clients that were connected to blue at the first poll, stored for all later ones."""
    name = str(move.namespace)
    if stored := stored_clients(run, Moves("", "", (move,))):
        return stored[name]
    connected = await read_clients(blue, move)
    Checkpoint(run, name).store_clients(connected)
    return connected


async def _watch(
    blue: AdminClient, green: AdminClient, move: Move, watch: NamespaceWatch, before: ConnectedClients
) -> RepointProgress:
    on_blue = await required_stats(blue, move.partitions, precise=False)
    on_green = await required_stats(green, move.partitions, precise=False)
    now = time.time()
    watch.record_clients(on_blue, now)
    for topic, stats in on_green.items():
        watch.partition(topic).record_green(stats)
    transfer, slots = CursorTransfer(blue, green), asyncio.Semaphore(_CONCURRENT_PARTITIONS)

    async def follow(topic: TopicName) -> None:
        async with slots:
            await _follow(transfer, topic, watch.partition(topic), set(on_blue[topic].subscriptions))

    await asyncio.gather(*(follow(topic) for topic in move.partitions))
    return RepointProgress.of(
        str(move.namespace),
        before,
        on_blue,
        on_green,
        cluster=await green.cluster_name(),
        left_seconds=now - watch.left_since if watch.left_since is not None else 0.0,
    )


async def _follow(transfer: CursorTransfer, topic: TopicName, watch: PartitionWatch, names: set[str]) -> None:
    if waiting := names - watch.arrived:
        try:
            watch.followed |= await transfer.follow(topic, waiting, watch.followed, written=watch.written)
        except Conflict as error:
            # A consumer arrived on green in this moment: the next poll sees it.
            log.info("%s", error)
