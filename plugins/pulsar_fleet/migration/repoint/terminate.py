"""End a namespace on blue whose applications were connected to green: from then on blue refuses producers.

Either every one has left, or blue redirects those that have not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.clients.store import publications, require_led_from
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.links.cluster_lists import end_replication
from pulsar_fleet.links.partition_stats import required_internal_stats, required_stats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.migration.artefacts import RETURN_ENDED
from pulsar_fleet.migration.cutover.namespace_cutover import (
    LEAVE_SECONDS,
    CutOverResult,
    NamespaceCutOver,
    wait_quiesced,
)
from pulsar_fleet.migration.cutover.redirect import (
    Redirect,
    is_flagged,
    read_clients,
    require_green,
    set_flag,
    store_redirect,
)
from pulsar_fleet.migration.cutover.termination import (
    check_periods,
    confirm_termination,
    read_terminations,
    source_of,
    terminate,
    unterminated_causes,
    wait_producers_left,
)
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Phase, Strategy
from pulsar_fleet.migration.prepare.overrides import Throttle
from pulsar_fleet.migration.repoint.steps import NamespaceWatch, PartitionWatch
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor, TransferredPartition
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer
from pulsar_fleet.snapshot.resources import read_partition_counts

log = logging.getLogger(__name__)

_ENDED_SECONDS = 30.0
_READ_SECONDS, _SETTLED_SECONDS, _POLL_SECONDS = 5.0, 1.0, 0.2
_CARRY_SECONDS = 10.0
"""Of the forty for which producers may be held."""

CarryLeft = Callable[[NamespaceName, Mapping[TopicName, Position]], Awaitable[Sequence[TransferredCursor]]]
"""Carries to green the positions of subscriptions that nobody has used there since the move; told what blue had
confirmed of green's topics when green replicated to it last. Raises an error where messages would be lost."""


async def terminate_namespace(cut_over: NamespaceCutOver, watch: NamespaceWatch) -> CutOverResult:
    """Set the cursors that nobody uses, and terminate every partition on blue; an interrupted call can be repeated.

    A producer that returns meanwhile is throttled, and what it publishes is replicated before its topic is terminated.

    :param watch: the last poll of `repoint.steps`.
    :raises PreconditionFailed: a client is connected to blue, green lacks a topic, or a partition is still open.
        `Conflict`: replication did not catch up. Nothing was terminated then, or the message says so.
    """
    blue, green, move, unterminated = cut_over.blue, cut_over.green, cut_over.move, cut_over.unterminated
    loop, checkpoint = asyncio.get_running_loop(), cut_over.checkpoint
    began = loop.time()
    if unterminated:
        await require_green(green, move)
        await _require_left(cut_over)
        async with Throttle(blue, move.namespace, cut_over.before) as throttle:
            transfer = CursorTransfer(blue, green)
            # Also what green replicates back: a termination in full flow can meet a new ledger, and cut its entries.
            await throttle.apply()
            await asyncio.sleep(cut_over.quiesce_seconds)
            if move.strategy.is_moved_before:
                moved = await asyncio.gather(*(_sent(blue, transfer, topic) for topic in unterminated))
                await _require_left(cut_over)
            else:
                await _require_quiesced(cut_over, throttle)
                await _require_left(cut_over)
                moved = await asyncio.gather(
                    *(_transfer(blue, green, transfer, topic, watch.partition(topic)) for topic in unterminated)
                )
            done = checkpoint.stored_transfers()
            checkpoint.store_transfers({**done, **dict(zip(unterminated, moved, strict=True))})
            await throttle.require_held()
            # All end before an error is raised: with the first terminated partition the run goes on.
            await asyncio.gather(*(terminate(blue, topic) for topic in unterminated), return_exceptions=True)
    terminations = await read_terminations(blue, move)
    if terminations.waiting and not terminations.by_migration:
        raise PreconditionFailed(
            f"{len(terminations.waiting)} of {counted(len(move.partitions), 'partition')} of {move.namespace} still "
            f"take producers on {blue.connection.name}, first {terminations.waiting[0]}. Run again.",
            cluster=blue.connection.name,
        )
    if move.strategy.is_moved_before:
        await _end_return(cut_over)
    periods = await check_periods(blue, checkpoint.run)
    left_open = await unterminated_causes(blue, green, move, terminations, periods)
    stored = {} if move.strategy.is_moved_before else checkpoint.stored_transfers()
    cursors = tuple(cursor for partition in stored.values() for cursor in partition.cursors)
    repeated = sum(cursor.redelivered for cursor in cursors)
    log.info(
        "%s: terminated on %s, %s delivered twice", move.namespace, blue.connection.name, counted(repeated, "entry")
    )
    return CutOverResult(
        namespace=str(move.namespace),
        cursors=cursors,
        duplicates={},
        throttled_seconds=round(loop.time() - began, 2),
        repointed=True,
        unterminated=left_open,
    )


async def redirect_left(
    cut_over: NamespaceCutOver,
    redirect: Redirect,
    require_clients: Callable[[ConnectedClients], None],
    carry_left: CarryLeft,
) -> CutOverResult:
    """Redirect the clients that are on blue still, where the others were moved before; a second call goes on.

    :param require_clients: raises an error if the clients that are connected now must not be redirected.
    :raises PreconditionFailed: as `terminate_namespace`, but for connected clients.
    """
    blue, green, move, unterminated = cut_over.blue, cut_over.green, cut_over.move, cut_over.unterminated
    loop, checkpoint = asyncio.get_running_loop(), cut_over.checkpoint
    began, cluster = loop.time(), await blue.cluster_name()
    if not await is_flagged(blue, move):
        await require_green(green, move)
        require_led_from(cluster, [str(move.namespace)], publications())
        connected = await read_clients(blue, move)
        require_clients(connected)
        checkpoint.store_clients(connected)
        if not checkpoint.run.ledger.entered(checkpoint.run.id, str(move.namespace), Phase.RETURN_ENDED):
            await _require_ready(cut_over, carry_left)
            await _store_confirmed(cut_over)
        checkpoint.run.ledger.enter_phase(checkpoint.run.id, str(move.namespace), Phase.RETURN_ENDED)
        # A replicator follows a redirect as any client (observed): green would publish to itself. So it ends before;
        # under the throttle it would not end (observed: not in 30 s). From here on the run only goes forward: what is
        # written on green now does not come to blue.
        await _end_return(cut_over)
    await store_redirect(blue, cluster, redirect)
    periods = await check_periods(blue, checkpoint.run)
    async with Throttle(blue, move.namespace, cut_over.before) as throttle:
        if unterminated:
            await throttle.apply()
            await asyncio.sleep(cut_over.quiesce_seconds)
            await _require_quiesced(cut_over, throttle)
            if not await is_flagged(blue, move):
                await _hand_over(cut_over, carry_left)
            await throttle.require_held()
        await set_flag(blue, move.namespace, migrated=True)
        confirmed = await confirm_termination(blue, move, periods)
        closing = [topic for topic in unterminated if topic not in confirmed.terminations.waiting]
        await wait_producers_left(blue, closing, periods.longest + LEAVE_SECONDS)
    left_open = await unterminated_causes(blue, green, move, confirmed.terminations, periods)
    cursors = (cursor for partition in checkpoint.stored_transfers().values() for cursor in partition.cursors)
    log.info("%s: %s redirects to %s who is there still", move.namespace, cluster, green.connection.name)
    return CutOverResult(
        namespace=str(move.namespace),
        cursors=tuple(cursor for cursor in cursors if cursor.unread or cursor.redelivered),
        duplicates={},
        throttled_seconds=round(loop.time() - began, 2),
        moved_bundles=confirmed.moved_bundles,
        unterminated=left_open,
    )


async def _require_ready(cut_over: NamespaceCutOver, carry_left: CarryLeft) -> None:
    """Refuse, while applications can return, what would keep the cut-over from its end."""
    blue, move = cut_over.blue, cut_over.move
    existing = await read_partition_counts(blue, move.namespace)
    created = [topic for topic in existing if topic.persistent and topic not in move.topics]
    # A shadow topic stays, as a gate has said.
    if unknown := [topic for topic in created if not await source_of(blue, topic.partitions(existing[topic])[0])]:
        raise PreconditionFailed(
            f"{listed(unknown)}: made on {blue.connection.name} since the gates. No client was redirected. Abort "
            "this run, and start it again.",
            cluster=blue.connection.name,
        )
    began = time.monotonic()
    await carry_left(move.namespace, {})
    if (seconds := time.monotonic() - began) > _CARRY_SECONDS:
        raise PreconditionFailed(
            f"The positions of {move.namespace} took {seconds:.0f} s to carry, and producers would be held as long: "
            f"{_CARRY_SECONDS:.0f} s are the most. No client was redirected. Let subscriptions that lag on "
            f"{blue.connection.name} be read, then clear this task; or move the namespace with {Strategy.COMPLETE}.",
            cluster=blue.connection.name,
        )


async def _store_confirmed(cut_over: NamespaceCutOver) -> None:
    """Store what blue has confirmed of green's topics: afterwards nothing says what blue has had and removed."""
    green, move, run = cut_over.green, cut_over.move, cut_over.checkpoint.run
    name = replicator_cursor(await cut_over.blue.cluster_name())
    cursors = {
        str(topic): cursors_in_stats(internal).get(name)
        for topic, internal in (await required_internal_stats(green, move.partitions)).items()
    }
    confirmed = {topic: str(cursor.mark_delete) for topic, cursor in cursors.items() if cursor}
    run.artefacts.write_json(run.id, RETURN_ENDED, {**(run.stored(RETURN_ENDED) or {}), str(move.namespace): confirmed})


async def _hand_over(cut_over: NamespaceCutOver, carry_left: CarryLeft) -> None:
    """While nothing enters blue: green gets everything, and the positions of who is on blue."""
    blue, green, move = cut_over.blue, cut_over.green, cut_over.move
    transfer = CursorTransfer(blue, green)
    sent = await asyncio.gather(*(_sent(blue, transfer, topic) for topic in cut_over.unterminated))
    unread = await wait_read(blue, cut_over.unterminated)
    stored = (cut_over.checkpoint.run.stored(RETURN_ENDED) or {}).get(str(move.namespace)) or {}
    confirmed = {TopicName.parse(topic): Position.parse(position) for topic, position in stored.items()}
    carried = dict[tuple[str, str], TransferredCursor]()
    for cursor in await carry_left(move.namespace, confirmed):
        key = cursor.topic, cursor.subscription
        carried[key] = replace(cursor, redelivered=cursor.redelivered + unread.get(key, 0))
    moved = {
        topic: replace(
            partition,
            cursors=tuple(carried.get((cursor.topic, cursor.subscription), cursor) for cursor in partition.cursors),
        )
        for topic, partition in zip(cut_over.unterminated, sent, strict=True)
    }
    cut_over.checkpoint.store_transfers({**cut_over.checkpoint.stored_transfers(), **moved})


async def wait_read(blue: AdminClient, topics: Sequence[TopicName]) -> dict[tuple[str, str], int]:
    """Wait while consumers on blue acknowledge what they have not; returns what is left of (topic, subscription).

    They get that on both clusters. A broker reads no acknowledgment from a connection whose producers it holds
    (observed, 4.2.4): after a second without one nobody waits any longer, nor after five.
    """
    end, changed, before = time.monotonic() + _READ_SECONDS, time.monotonic(), -1
    while True:
        read = await required_stats(blue, topics)
        unread = {
            (str(topic), name): subscription.backlog
            for topic, stats in read.items()
            for name, subscription in stats.subscriptions.items()
            if subscription.consumers and subscription.backlog
        }
        total, now = sum(unread.values()), time.monotonic()
        if before < 0 or total < before:
            before, changed = total, now
        if not unread or now > end or now - changed > _SETTLED_SECONDS:
            return unread
        await asyncio.sleep(_POLL_SECONDS)


async def _sent(blue: AdminClient, transfer: CursorTransfer, topic: TopicName) -> TransferredPartition:
    """Wait until green has what blue's producers have written. Positions on green are those of its consumers."""
    await transfer.wait_sent(topic)
    stats, internal = await asyncio.gather(blue.stats(topic, precise=False), blue.internal_stats(topic))
    ledgers = Ledgers.of(internal)
    return TransferredPartition(
        tuple(
            TransferredCursor(topic=str(topic), subscription=name, unread=0, carried=0, redelivered=0)
            for name in sorted(subscription_cursors(ledgers, TopicStats.of(topic, stats), internal))
        ),
        ledgers.at(len(ledgers) - 1) if len(ledgers) else None,
    )


async def _end_return(cut_over: NamespaceCutOver) -> None:
    """Let green replicate to blue no more, whose topics take nothing: green would keep for it what is published.

    After the termination: until then an abort leaves blue with everything that clients need to return.

    :raises PreconditionFailed: a topic of green still keeps messages for blue.
    """
    green, namespace, cluster = cut_over.green, cut_over.move.namespace, await cut_over.blue.cluster_name()
    topics = await read_partition_counts(green, namespace)
    await end_replication(green, await green.cluster_name(), namespace, cluster, (), topics)
    end = time.monotonic() + _ENDED_SECONDS
    stored = [partition for topic, count in topics.items() if topic.persistent for partition in topic.partitions(count)]
    while kept := await _keeping(green, stored, cluster):
        if time.monotonic() > end:
            raise PreconditionFailed(
                f"{green.connection.name} lists {cluster} no more for {namespace}, and still keeps messages: the "
                f"cursor {replicator_cursor(cluster)!r} of {listed(kept)}. Unload these topics there, then clear this "
                "task.",
                cluster=green.connection.name,
            )
        await asyncio.sleep(0.5)


async def _keeping(green: AdminClient, topics: Collection[TopicName], cluster: str) -> list[TopicName]:
    """The topics with a cursor of the replicator to a cluster; of those that exist. A call for each."""

    async def keeps(topic: TopicName) -> bool:
        try:
            return replicator_cursor(cluster) in cursors_in_stats(await green.internal_stats(topic))
        except NotFound:
            return False

    found = await asyncio.gather(*map(keeps, topics))
    return [topic for topic, kept in zip(topics, found, strict=True) if kept]


async def _require_left(cut_over: NamespaceCutOver) -> None:
    blue, green, move = cut_over.blue, cut_over.green, cut_over.move
    if move.strategy.is_moved_before:
        require_led_from(await blue.cluster_name(), [str(move.namespace)], publications())
    connected = await read_clients(blue, move)
    clients = [client for topic in cut_over.unterminated for client in connected[topic]]
    if clients:
        raise PreconditionFailed(
            f"{counted(len(clients), 'client')} of {move.namespace} connected to {blue.connection.name} again, first "
            f"{clients[0]} on {clients[0].topic}: nothing was terminated. Connect the application to "
            f"{green.connection.name}; then clear the task wait_repointed.",
            cluster=blue.connection.name,
        )


async def _require_quiesced(cut_over: NamespaceCutOver, throttle: Throttle) -> None:
    blue = cut_over.blue
    result = await wait_quiesced(blue, cut_over.unterminated, again=throttle.store_again)
    if result.waiting:
        raise PreconditionFailed(
            f"Something is still published to {cut_over.move.namespace} on {blue.connection.name}: "
            f"{result.text()}. Nothing was terminated. Find the producer, then run again.",
            cluster=blue.connection.name,
        )


async def _transfer(
    blue: AdminClient, green: AdminClient, transfer: CursorTransfer, topic: TopicName, watch: PartitionWatch
) -> TransferredPartition:
    """Set the cursors of subscriptions that nobody has used on green, and count what each gets twice."""
    await transfer.wait_copied(topic)
    watch.record_green((await required_stats(green, [topic], precise=False))[topic])
    stats, internal = await asyncio.gather(blue.stats(topic, precise=False), blue.internal_stats(topic))
    ledgers = Ledgers.of(internal)
    cursors = subscription_cursors(ledgers, TopicStats.of(topic, stats), internal)
    waiting = cursors.keys() - watch.arrived
    watch.followed |= await transfer.follow(topic, waiting, watch.followed, written=watch.written)
    end = ledgers.at(len(ledgers) - 1) if len(ledgers) else None
    return TransferredPartition(
        tuple(
            TransferredCursor(
                topic=str(topic),
                subscription=name,
                unread=len(cursor.unread),
                carried=0,
                redelivered=_acknowledged_after(watch.followed.get(name, EARLIEST), cursor, ledgers),
            )
            for name, cursor in sorted(cursors.items())
        ),
        end,
    )


def _acknowledged_after(position: Position, cursor: SubscriptionCursor, ledgers: Ledgers) -> int:
    """Entries behind this position that the subscription has acknowledged on blue: green delivers them again."""
    begin = ledgers.index_after(position)
    return max(0, cursor.mark_delete_index - begin) + len(cursor.individually_acknowledged)
