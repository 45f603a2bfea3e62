"""The cutover of one namespace: quiesce, transfer cursors, redirect, flag, wait for termination, lift the throttle.

The order was measured on real clusters: publishes in flight at the termination leave a topic fenced for good, so
producers are throttled first, until none publishes; a higher rate killed consumers, a longer wait only adds to the
publish pause. Each step reads the clusters first, so a cutover that was killed at any line continues when it is called
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import Conflict, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.cutover.checking_brokers import check_periods
from pulsar_fleet.migration.cutover.quiesce import QUIESCE_TIMEOUT_SECONDS, pending_text, throttle_rate, wait_quiesced
from pulsar_fleet.migration.cutover.redirect import (
    ClusterFlag,
    Redirect,
    is_flagged,
    read_clients,
    reconnect_consumers,
    require_green,
    set_flag,
    store_redirect,
)
from pulsar_fleet.migration.cutover.termination import (
    Terminations,
    confirm_termination,
    unterminated_causes,
    wait_producers_left,
)
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.prepare.overrides import OriginalSettings, Throttle
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

_BATCH = "x-pulsar-num-batch-message"
_LEAVE_SECONDS = 5.0
"""Added to a check period, for a busy broker to close its producers."""
_LENIENT_SECONDS = 2.0
"""How long a throttle by usual entry size may take to hold all producers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOverResult(Document):
    """What the cutover of one namespace did.

    :param cursors: subscriptions without consumers, with what green will deliver to them; where `repointed`, every
        subscription, with what both clusters have delivered.
    :param duplicates: partition → messages written on blue after the cursors were transferred: each subscription with
        consumers gets them from both clusters; exact, since the partition is terminated.
    :param throttled_seconds: how long producers were throttled.
    :param late: partition → entries that entered after it was quiesced, before it was terminated: first publishes of
        producers that had been idle. Such a publish may be under way at the termination.
    :param moved_bundles: bundles moved to another broker, because theirs does not check the flag.
    :param repointed: its owners have connected the applications to green; blue redirects none.
    :param unterminated: partition → why blue has not terminated it, or green what its owner had terminated.
    """

    SCHEMA_VERSION = 1

    namespace: str
    cursors: tuple[TransferredCursor, ...]
    duplicates: Mapping[str, int]
    throttled_seconds: float
    late: Mapping[str, int] = field(default_factory=dict)
    moved_bundles: tuple[str, ...] = ()
    repointed: bool = False
    unterminated: Mapping[str, str] = field(default_factory=dict)


async def cut_over_namespace(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    *,
    redirect: Redirect,
    before: OriginalSettings,
    checkpoint: Checkpoint,
    unterminated: Sequence[TopicName],
    cluster_flag: ClusterFlag | None = None,
    quiesce_seconds: float = QUIESCE_SECONDS,
    individually_acknowledged: IndividuallyAcknowledged = IndividuallyAcknowledged.CARRY,
    require_clients: Callable[[ConnectedClients], None] = lambda _: None,
) -> CutOverResult:
    """Move the namespace's clients from blue to green.

    :param unterminated: partitions that are not terminated yet.
    :param before: the publish rates before the run, restored in every case, as soon as every partition is
        terminated and blue has closed its producers.
    :param checkpoint: connected clients and transferred cursors, also of an earlier attempt.
    :param cluster_flag: instead of the flag of the namespace.
    :param individually_acknowledged: what happens to entries acknowledged beyond a mark-delete position.
    :param require_clients: raises an error if the clients that are connected now must not be redirected.
    :raises PreconditionFailed: green cannot take the clients, publishes stayed in flight, or no partition was
        terminated; the message says what to do. With the first terminated one, those that are not are in the result.
        `Conflict`: replication did not catch up, or a cursor cannot be set. `Unavailable`: a cluster did not answer,
        try again.
    """
    if len(unterminated) == len(move.partitions):
        move = await _with_connected_clients(blue, green, move, checkpoint, require_clients)
    await store_redirect(blue, await blue.cluster_name(), redirect)
    transfer = await _cursor_transfer(blue, green, move, individually_acknowledged)
    if transfer:
        await asyncio.gather(*(transfer.transfer_idle(topic, move.partitions[topic]) for topic in unterminated))
    # Everything that can be read before producers are throttled is: they wait for every call from here to the end.
    reading_rate = throttle_rate(blue, _written(move, unterminated))
    periods, rate = await asyncio.gather(check_periods(blue, checkpoint.run), reading_rate)
    loop = asyncio.get_running_loop()
    began = loop.time()
    ends: Mapping[TopicName, Position] = {}
    async with Throttle(blue, move.namespace, before) as throttle:
        if unterminated:
            await throttle.apply(rate)
            await asyncio.sleep(quiesce_seconds)
            if rate != QUIESCED_RATE:
                await _require_strict(blue, move, unterminated, throttle)
            transferred, ends = await _quiesce_and_transfer(blue, move, unterminated, transfer)
            if transferred:
                checkpoint.store_transfers(transferred)
            throttle.require_held()
        if cluster_flag:
            await cluster_flag.set(throttle.require_held)
        else:
            await set_flag(blue, move.namespace, migrated=True)
        confirmed = await confirm_termination(blue, move, periods)
        closing = [topic for topic in _written(move, unterminated) if topic not in confirmed.terminations.waiting]
        await wait_producers_left(blue, closing, periods.longest + _LEAVE_SECONDS)
    seconds, late = loop.time() - began, late_entries(ends, confirmed.terminations)
    left_open = await unterminated_causes(blue, green, confirmed.terminations, periods)
    for topic, cause in left_open.items():
        log.warning("%s: %s", topic, cause)
    if cluster_flag:
        await reconnect_consumers(blue, tuple(move.partitions))
    if late:
        log.warning("%s: %d entries entered after it was quiesced: %s", move.namespace, sum(late.values()), late)
    transfers = checkpoint.stored_transfers()
    duplicates = {str(topic): count for topic, count in (await _duplicates(blue, transfers)).items() if count}
    log.info("%s: cut over after %.1f s, %d duplicates to expect", move.namespace, seconds, sum(duplicates.values()))
    return CutOverResult(
        namespace=str(move.namespace),
        cursors=tuple(cursor for partition in transfers.values() for cursor in partition.cursors),
        duplicates=duplicates,
        throttled_seconds=round(seconds, 2),
        late=late,
        moved_bundles=confirmed.moved_bundles,
        unterminated=left_open,
    )


async def _require_strict(blue: AdminClient, move: Move, unterminated: Sequence[TopicName], throttle: Throttle) -> None:
    """Hold all producers where a throttle by the usual size of entries lets smaller ones pass."""
    if (await wait_quiesced(blue, _written(move, unterminated), _LENIENT_SECONDS)).waiting:
        log.info("%s: entries smaller than usual pass its throttle, which becomes stricter", move.namespace)
        await throttle.apply()


async def _quiesce_and_transfer(
    blue: AdminClient, move: Move, unterminated: Sequence[TopicName], transfer: CursorTransfer | None
) -> tuple[TransferredPartitions, Mapping[TopicName, Position]]:
    """Wait until nothing is in flight, and set every cursor; returns the last entry of each quiesced partition too.

    Both at once: a publish that is stored behind a cursor is replicated like all others, and counted as a duplicate.
    """
    transferred: dict[TopicName, TransferredPartition] = {}
    ends: dict[TopicName, Position] = {}

    async def set_cursors(transfer: CursorTransfer, topic: TopicName) -> None:
        transferred[topic] = await transfer.transfer(topic, move.partitions[topic])

    async def quiesce() -> None:
        ends.update(await _quiesce(blue, move, unterminated))

    transfers = [set_cursors(transfer, topic) for topic in unterminated] if transfer else []
    # All end before an error is raised: the caller closes the clients after it.
    results = await asyncio.gather(quiesce(), *transfers, return_exceptions=True)
    for error in filter(None, results):
        raise error
    return transferred, ends


async def _quiesce(blue: AdminClient, move: Move, unterminated: Sequence[TopicName]) -> Mapping[TopicName, Position]:
    """Wait until nothing is in flight to a partition with a producer; returns the last entry of each."""
    loop = asyncio.get_running_loop()
    began, written = loop.time(), _written(move, unterminated)
    result = await wait_quiesced(blue, written)
    if result.waiting:
        raise PreconditionFailed(
            f"{move.namespace} was not quiesced within {QUIESCE_TIMEOUT_SECONDS:.0f} s after its producers were "
            f"throttled: {pending_text(result.waiting)}. A topic that is terminated now may stay fenced to its "
            "producers for good, so nothing was flagged. Check the write latency of the bookies, and which clients "
            "publish past the throttle; then run again.",
            cluster=blue.connection.name,
        )
    log.info("%s: %d written partitions quiesced in %.1f s", move.namespace, len(written), loop.time() - began)
    return result.ends


def _written(move: Move, partitions: Sequence[TopicName]) -> list[TopicName]:
    return [partition for partition in partitions if move.partitions[partition].producers]


def late_entries(ends: Mapping[TopicName, Position], terminations: Terminations) -> dict[str, int]:
    """Partition → entries between its last one when it was quiesced and its last one, where there are any."""
    late = {
        str(partition): last.entry - end.entry
        for partition, end in ends.items()
        # In another ledger, after the bundle was moved, the number is not known without a further call.
        if (last := terminations.ends.get(partition)) and last.ledger == end.ledger
    }
    return {partition: count for partition, count in late.items() if count > 0}


async def _with_connected_clients(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    checkpoint: Checkpoint,
    require_clients: Callable[[ConnectedClients], None],
) -> Move:
    """The move with the clients connected now; only before the first client can have left blue."""
    await require_green(green, move)
    connected = await read_clients(blue, move)
    require_clients(connected)
    checkpoint.store_clients(connected)
    return with_clients(move, {str(move.namespace): connected})


async def _cursor_transfer(
    blue: AdminClient, green: AdminClient, move: Move, individually_acknowledged: IndividuallyAcknowledged
) -> CursorTransfer | None:
    """The transfer for a replicated namespace.

    None under the flag: an earlier attempt has transferred the cursors, and consumers may be on green already.
    """
    if not move.strategy.copies or await is_flagged(blue, move):
        return None
    return CursorTransfer(blue, green, individually_acknowledged=individually_acknowledged)


async def _duplicates(blue: AdminClient, transferred: TransferredPartitions) -> dict[TopicName, int]:
    counts: dict[TopicName, int] = {}
    for topic, partition in transferred.items():
        try:
            counts[topic] = await messages_after(blue, topic, partition.end)
        except (Conflict, NotFound):
            # Unloaded under the flag, which is an incident of the drain, or deleted: no reason to repeat the cutover.
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
