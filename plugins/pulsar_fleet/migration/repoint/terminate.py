"""Terminate the topics of a namespace that every application has left on blue: from then on it refuses producers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from pulsar_fleet.clients.store import publications, require_led_from
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.links.cluster_lists import end_replication
from pulsar_fleet.links.partition_stats import required_stats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.migration.cutover.namespace_cutover import (
    CutOverResult,
    NamespaceCutOver,
    wait_quiesced,
)
from pulsar_fleet.migration.cutover.redirect import read_clients, require_green
from pulsar_fleet.migration.cutover.termination import (
    check_periods,
    read_terminations,
    terminate,
    unterminated_causes,
)
from pulsar_fleet.migration.prepare.overrides import Throttle
from pulsar_fleet.migration.repoint.steps import NamespaceWatch, PartitionWatch
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor, TransferredPartition
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer
from pulsar_fleet.snapshot.resources import read_partition_counts

log = logging.getLogger(__name__)

_ENDED_SECONDS = 30.0


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
