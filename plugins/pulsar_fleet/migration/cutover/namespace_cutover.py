"""The cutover of one namespace: quiesce, transfer cursors, redirect, flag, wait for termination, lift the throttle.

The order was measured on real clusters: publishes in flight at the termination leave a topic fenced for good, so
producers are throttled to 1 message/s first; a higher rate killed consumers, a longer wait only adds to the publish
pause. Each step reads the clusters first, so a cutover that was killed at any line continues when it is called again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.cutover.quiesce import QUIESCE_TIMEOUT_SECONDS, pending_text, wait_quiesced
from pulsar_fleet.migration.cutover.redirect import Redirect, read_clients, require_green, set_flag, store_redirect
from pulsar_fleet.migration.cutover.termination import check_periods, move_to_checking_brokers, wait_terminated
from pulsar_fleet.migration.model import Move, Strategy
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
from pulsar_fleet.migration.prepare.overrides import restore_publish_rates, throttle_producers
from pulsar_fleet.migration.request import QUIESCE_SECONDS
from pulsar_fleet.migration.subscriptions.checkpoint import (
    Checkpoint,
    TransferredCursor,
    TransferredPartition,
    TransferredPartitions,
    with_clients,
)
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged

log = logging.getLogger(__name__)

_SLACK_SECONDS = 5.0
"""Added to two check periods, for a busy broker."""
_BATCH = "x-pulsar-num-batch-message"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOverResult(Document):
    """What the cutover of one namespace did.

    :param cursors: subscriptions without consumers, with what green will deliver to them.
    :param duplicates: partition → messages written on blue after the cursors were transferred: each subscription with
        consumers gets them from both clusters; exact, since the partition is terminated.
    :param throttled_seconds: how long producers were throttled to 1 message/s for each partition.
    :param moved_bundles: bundles moved to another broker, because theirs does not check the flag.
    """

    SCHEMA_VERSION = 1

    namespace: str
    cursors: tuple[TransferredCursor, ...]
    duplicates: Mapping[str, int]
    throttled_seconds: float
    moved_bundles: tuple[str, ...] = ()


async def cut_over_namespace(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    *,
    redirect: Redirect,
    before: OriginalSettings,
    checkpoint: Checkpoint,
    unterminated: Sequence[TopicName],
    quiesce_seconds: float = QUIESCE_SECONDS,
    individually_acknowledged: IndividuallyAcknowledged = IndividuallyAcknowledged.CARRY,
) -> CutOverResult:
    """Move the namespace's clients from blue to green.

    :param unterminated: partitions that are not terminated yet.
    :param before: the publish rates before the run, restored in every case, as soon as every partition is terminated.
    :param checkpoint: connected clients and transferred cursors, also of an earlier attempt.
    :param individually_acknowledged: what happens to entries acknowledged beyond a mark-delete position.
    :raises PreconditionFailed: green cannot take the clients, publishes stayed in flight, or a partition was not
        terminated; the message says what to do. `Conflict`: replication did not catch up, or a cursor cannot be set.
        `Unavailable`: a cluster did not answer, try again.
    """
    if len(unterminated) == len(move.partitions):
        move = await _with_connected_clients(blue, green, move, checkpoint)
    await store_redirect(blue, await blue.cluster_name(), redirect)
    transfer = await _cursor_transfer(blue, green, move, individually_acknowledged)
    if transfer:
        await asyncio.gather(*(transfer.transfer_idle(topic, move.partitions[topic]) for topic in unterminated))
    # Everything that can be read before producers are throttled is: they wait for every call from here to the end.
    periods = await check_periods(blue)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        if unterminated:
            await throttle_producers(blue, move.namespace, before)
            await asyncio.sleep(quiesce_seconds)
            if transferred := await _quiesce_and_transfer(blue, move, unterminated, transfer):
                checkpoint.store_transfers(transferred)
        await set_flag(blue, move.namespace, migrated=True)
        moved = await _confirm_termination(blue, move, periods)
    finally:
        await restore_publish_rates(blue, move.namespace, before)
    return await _result(blue, move, checkpoint.stored_transfers(), loop.time() - began, moved)


async def _quiesce_and_transfer(
    blue: AdminClient, move: Move, unterminated: Sequence[TopicName], transfer: CursorTransfer | None
) -> TransferredPartitions:
    """Wait until nothing is in flight, and set every cursor.

    Both at once: a publish that is stored behind a cursor is replicated like all others, and counted as a duplicate.
    """
    transferred: dict[TopicName, TransferredPartition] = {}

    async def set_cursors(transfer: CursorTransfer, topic: TopicName) -> None:
        transferred[topic] = await transfer.transfer(topic, move.partitions[topic])

    transfers = [set_cursors(transfer, topic) for topic in unterminated] if transfer else []
    # All end before an error is raised: the caller closes the clients after it.
    results = await asyncio.gather(_quiesce(blue, move, unterminated), *transfers, return_exceptions=True)
    for error in filter(None, results):
        raise error
    return transferred


async def _quiesce(blue: AdminClient, move: Move, unterminated: Sequence[TopicName]) -> None:
    """Wait until nothing is in flight to a partition with a producer; throttled ones send only 1 message/s."""
    loop = asyncio.get_running_loop()
    began, written = loop.time(), [topic for topic in unterminated if move.partitions[topic].producers]
    if waiting := await wait_quiesced(blue, written):
        raise PreconditionFailed(
            f"{move.namespace} was not quiesced within {QUIESCE_TIMEOUT_SECONDS:.0f} s of 1 message/s: "
            f"{pending_text(waiting)}. A topic that is terminated now may stay fenced to its producers for good, so "
            "nothing was flagged. Check the write latency of the bookies, and which clients publish past the throttle; "
            "then run again.",
            cluster=blue.connection.name,
        )
    log.info("%s: %d written partitions quiesced in %.1f s", move.namespace, len(written), loop.time() - began)


async def _with_connected_clients(blue: AdminClient, green: AdminClient, move: Move, checkpoint: Checkpoint) -> Move:
    """The move with the clients connected now; only before the first client can have left blue."""
    await require_green(green, move)
    connected = await read_clients(blue, move)
    checkpoint.store_clients(connected)
    return with_clients(move, {str(move.namespace): connected})


async def _result(
    blue: AdminClient, move: Move, transferred: TransferredPartitions, seconds: float, moved: tuple[str, ...]
) -> CutOverResult:
    duplicates = {str(topic): count for topic, count in (await _duplicates(blue, transferred)).items() if count}
    log.info("%s: cut over after %.1f s, %d duplicates to expect", move.namespace, seconds, sum(duplicates.values()))
    return CutOverResult(
        namespace=str(move.namespace),
        cursors=tuple(cursor for partition in transferred.values() for cursor in partition.cursors),
        duplicates=duplicates,
        throttled_seconds=round(seconds, 2),
        moved_bundles=moved,
    )


async def _cursor_transfer(
    blue: AdminClient, green: AdminClient, move: Move, individually_acknowledged: IndividuallyAcknowledged
) -> CursorTransfer | None:
    """The transfer for a replicated namespace.

    None under the flag: an earlier attempt has transferred the cursors, and consumers may be on green already.
    """
    flagged = (await blue.namespace(move.namespace) or {}).get("migrated")
    if move.strategy is not Strategy.REPLICATE or flagged:
        return None
    return CursorTransfer(blue, green, individually_acknowledged=individually_acknowledged)


async def _duplicates(blue: AdminClient, transferred: TransferredPartitions) -> dict[TopicName, int]:
    counts: dict[TopicName, int] = {}
    for topic, partition in transferred.items():
        try:
            counts[topic] = await messages_after(blue, topic, partition.end)
        except Conflict:
            # Unloaded under the flag: an incident of the drain, and no reason to repeat the cutover.
            log.warning("%s is no longer served: its duplicates cannot be counted", topic)
    return counts


async def messages_after(admin: AdminClient, topic: TopicName, end: Position | None) -> int:
    """Messages behind `end` of a terminated partition, one call for each entry; all of them with None."""
    ledgers = Ledgers.of(await admin.internal_stats(topic))
    begin = ledgers.index_after(end) if end else 0
    numbers = range(begin, len(ledgers))
    return sum(await asyncio.gather(*(_messages_in(admin, topic, ledgers.at(number)) for number in numbers)))


async def _messages_in(admin: AdminClient, topic: TopicName, entry: Position) -> int:
    return int((await admin.entry_properties(topic, entry)).get(_BATCH, 1))


async def _confirm_termination(blue: AdminClient, move: Move, periods: Mapping[str, float]) -> tuple[str, ...]:
    """Wait until every partition is terminated: two check periods, and again after moving bundles if needed.

    Returns the moved bundles.
    """
    seconds = 2 * max(periods.values()) + _SLACK_SECONDS
    waiting = await wait_terminated(blue, move, seconds)
    moved = await move_to_checking_brokers(blue, move, waiting, periods) if waiting else ()
    if moved:
        waiting = await wait_terminated(blue, move, seconds)
    if waiting:
        raise PreconditionFailed(
            f"{len(waiting)} of {len(move.partitions)} partitions of {move.namespace} were not terminated within "
            f"{seconds:.0f} s, for example {waiting[0]}: its broker's migration check may be off, or the topic was not "
            "loaded, and its producers may write to blue and green. The flag is set; clear it to keep those partitions "
            "on blue, or fix that broker and run again."
        )
    return moved
