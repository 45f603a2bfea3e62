"""The cutover of one namespace: quiesce, transfer cursors, redirect, flag, wait for termination, lift the throttle.

The order was measured on real clusters: publishes in flight at the termination leave a topic fenced for good, so
producers are throttled first, until none publishes; a higher rate killed consumers, a longer wait only adds to the
publish pause. Each step reads the clusters first, so a cutover that was killed at any line continues when it is called
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import Conflict, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.polling import all_ended
from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE, byte_throttle
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.cluster.versions import UNTHROTTLES_AT_ONCE
from pulsar_fleet.links.partition_stats import required_internal_stats
from pulsar_fleet.messages.positions import Ledgers
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
    check_periods,
    confirm_termination,
    unterminated_causes,
    wait_producers_left,
)
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.prepare.overrides import OriginalSettings, Throttle
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
LEAVE_SECONDS = 5.0
"""Added to a check period, for a busy broker to close its producers."""
_WAIT_SECONDS = 5.0
_PARTITIONS_PER_SECOND = 200
"""With more partitions the cut-over takes longer (`tests/bench/test_pause_by_size.py`)."""

QUIESCE_TIMEOUT_SECONDS = 15.0
_POLL_SECONDS = 0.2
_LOG_SECONDS = 5.0
_AGAIN_SECONDS = (2.0, 6.0)
"""When a throttle is stored once more that producers publish past: each time lets one more entry of each through."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCutOver:
    """The cutover of one namespace: `redirect` here, or `repoint.terminate` where its owners connect the applications.

    :param before: the publish rates before the run, restored in every case.
    :param checkpoint: connected clients and transferred cursors, also of an earlier attempt.
    :param unterminated: partitions that are not terminated yet.
    """

    blue: AdminClient
    green: AdminClient
    move: Move
    before: OriginalSettings
    checkpoint: Checkpoint
    unterminated: Sequence[TopicName]
    quiesce_seconds: float

    async def redirect(
        self,
        redirect: Redirect,
        *,
        cluster_flag: ClusterFlag | None,
        individually_acknowledged: IndividuallyAcknowledged,
        require_clients: Callable[[ConnectedClients], None],
    ) -> CutOverResult:
        """Move the namespace's clients from blue to green. The throttle is lifted as soon as every partition is
        terminated and blue has closed its producers.

        :param cluster_flag: instead of the flag of the namespace.
        :param individually_acknowledged: what happens to entries acknowledged beyond a mark-delete position.
        :param require_clients: raises an error if the clients that are connected now must not be redirected.
        :raises PreconditionFailed: green cannot take the clients, publishes stayed in flight, or no partition was
            terminated; the message says what to do. With the first terminated one, those that are not are in the
            result. `Conflict`: replication did not catch up, or a cursor cannot be set. `Unavailable`: a cluster did
            not answer, try again.
        """
        # Only before the first client can have left blue.
        first = len(self.unterminated) == len(self.move.partitions)
        moving = await self._with_connected_clients(require_clients) if first else self
        return await moving._redirect(redirect, cluster_flag, individually_acknowledged)

    async def _redirect(
        self,
        redirect: Redirect,
        cluster_flag: ClusterFlag | None,
        individually_acknowledged: IndividuallyAcknowledged,
    ) -> CutOverResult:
        blue, move = self.blue, self.move
        await store_redirect(blue, await blue.cluster_name(), redirect)
        transfer = await self._cursor_transfer(individually_acknowledged)
        if transfer:
            await asyncio.gather(
                *(transfer.transfer_idle(topic, move.partitions[topic]) for topic in self.unterminated)
            )
        # Everything that can be read before producers are throttled is: they wait for every call from here to the end.
        reading_rate = throttle_rate(blue, self._written())
        periods, rate = await asyncio.gather(check_periods(blue, self.checkpoint.run), reading_rate)
        loop = asyncio.get_running_loop()
        began = loop.time()
        ends: Mapping[TopicName, Position] = {}
        async with Throttle(blue, move.namespace, self.before) as throttle:
            if self.unterminated:
                await throttle.apply(rate)
                await asyncio.sleep(self.quiesce_seconds)
                if rate != QUIESCED_RATE:
                    await self._require_strict(throttle)
                transferred, ends = await self._quiesce_and_transfer(transfer, throttle)
                if transferred:
                    self.checkpoint.store_transfers(transferred)
                await throttle.require_held()
            if cluster_flag:
                await cluster_flag.set(throttle.require_held)
            else:
                await set_flag(blue, move.namespace, migrated=True)
            confirmed = await confirm_termination(blue, move, periods)
            closing = [topic for topic in self._written() if topic not in confirmed.terminations.waiting]
            await wait_producers_left(blue, closing, periods.longest + LEAVE_SECONDS)
        seconds, late = loop.time() - began, late_entries(ends, confirmed.terminations)
        left_open = await unterminated_causes(blue, self.green, move, confirmed.terminations, periods)
        for topic, cause in left_open.items():
            log.warning("%s: %s", topic, cause)
        if cluster_flag:
            await reconnect_consumers(blue, tuple(move.partitions))
        if late:
            log.warning("%s: %d entries entered after it was quiesced: %s", move.namespace, sum(late.values()), late)
        transfers = self.checkpoint.stored_transfers()
        duplicates = {str(topic): count for topic, count in (await _duplicates(blue, transfers)).items() if count}
        log.info(
            "%s: cut over after %.1f s, %d duplicates to expect", move.namespace, seconds, sum(duplicates.values())
        )
        return CutOverResult(
            namespace=str(move.namespace),
            cursors=tuple(cursor for partition in transfers.values() for cursor in partition.cursors),
            duplicates=duplicates,
            throttled_seconds=round(seconds, 2),
            late=late,
            moved_bundles=confirmed.moved_bundles,
            unterminated=left_open,
        )

    async def _with_connected_clients(self, require_clients: Callable[[ConnectedClients], None]) -> NamespaceCutOver:
        await require_green(self.green, self.move)
        connected = await read_clients(self.blue, self.move)
        require_clients(connected)
        self.checkpoint.store_clients(connected)
        return replace(self, move=with_clients(self.move, {str(self.move.namespace): connected}))

    async def _cursor_transfer(self, individually_acknowledged: IndividuallyAcknowledged) -> CursorTransfer | None:
        """The transfer for a replicated namespace.

        None under the flag: an earlier attempt has transferred the cursors, and consumers may be on green already.
        """
        if not self.move.strategy.copies or await is_flagged(self.blue, self.move):
            return None
        return CursorTransfer(self.blue, self.green, individually_acknowledged=individually_acknowledged)

    def _written(self) -> list[TopicName]:
        """The partitions with a producer."""
        return [topic for topic in self.unterminated if self.move.partitions[topic].producers]

    async def _require_strict(self, throttle: Throttle) -> None:
        """Hold all producers where a throttle by the usual size of entries lets smaller ones pass."""
        if (await wait_quiesced(self.blue, self._written(), _LENIENT_SECONDS)).waiting:
            log.info("%s: entries smaller than usual pass its throttle, which becomes stricter", self.move.namespace)
            await throttle.apply()

    async def _quiesce_and_transfer(
        self, transfer: CursorTransfer | None, throttle: Throttle
    ) -> tuple[TransferredPartitions, Mapping[TopicName, Position]]:
        """Wait until nothing is in flight, and set every cursor; returns the last entry of each quiesced partition too.

        Both at once: a publish that is stored behind a cursor is replicated like all others, and counted as a
        duplicate.
        """
        transferred: dict[TopicName, TransferredPartition] = {}
        ends: dict[TopicName, Position] = {}

        async def set_cursors(transfer: CursorTransfer, topic: TopicName) -> None:
            transferred[topic] = await transfer.transfer(topic, self.move.partitions[topic])

        async def quiesce() -> None:
            ends.update(await self._quiesce(throttle))

        transfers = [set_cursors(transfer, topic) for topic in self.unterminated] if transfer else []
        # All end before an error is raised: the caller closes the clients after it.
        await all_ended(quiesce(), *transfers)
        return transferred, ends

    async def _quiesce(self, throttle: Throttle) -> Mapping[TopicName, Position]:
        """Wait until nothing is in flight to a partition with a producer; returns the last entry of each."""
        loop = asyncio.get_running_loop()
        began, written = loop.time(), self._written()
        result = await wait_quiesced(self.blue, written, again=throttle.store_again)
        if result.waiting:
            raise PreconditionFailed(
                f"{self.move.namespace} was not quiesced within {QUIESCE_TIMEOUT_SECONDS:.0f} s after its producers "
                f"were throttled: {result.text()}. A topic that is terminated now may stay fenced to "
                "its producers for good, so nothing was flagged. Check the write latency of the bookies, and which "
                "clients publish past the throttle; then run again.",
                cluster=self.blue.connection.name,
            )
        log.info("%s: %d written partitions quiesced in %.1f s", self.move.namespace, len(written), loop.time() - began)
        return result.ends


def late_entries(ends: Mapping[TopicName, Position], terminations: Terminations) -> dict[str, int]:
    """Partition → entries between its last one when it was quiesced and its last one, where there are any."""
    late = {
        str(partition): last.entry - end.entry
        for partition, end in ends.items()
        # In another ledger, after the bundle was moved, the number is not known without a further call.
        if (last := terminations.ends.get(partition)) and last.ledger == end.ledger
    }
    return {partition: count for partition, count in late.items() if count > 0}


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


async def throttle_rate(blue: AdminClient, partitions: Sequence[TopicName]) -> JsonObject:
    """The publish rate for a namespace whose producers write to these partitions.

    Brokers that end a producer's wait when the rate is lifted get the strictest one. Others let it wait for the time
    that they computed before: with one byte per second that is as many seconds as its last entry has bytes, and its
    client closes the connection before. They get a rate at which an entry of usual size is a wait of some seconds.

    Calls: one, and for brokers of the second kind the statistics of the partitions.
    """
    if UNTHROTTLES_AT_ONCE.holds(await blue.version()):
        return QUIESCED_RATE
    documents = await required_internal_stats(blue, partitions)
    return rate_for(filter(None, map(_entry_bytes, documents.values())), len(partitions))


def rate_for(entry_bytes: Iterable[float], partitions: int) -> JsonObject:
    """The rate at which the smallest of these usual entries is a wait of 5 s, or longer with many partitions."""
    smallest = min(entry_bytes, default=0.0)
    return byte_throttle(max(1, int(smallest / (_WAIT_SECONDS + partitions / _PARTITIONS_PER_SECOND))))


def _entry_bytes(internal_stats: JsonObject) -> float:
    """The mean size of the stored entries; 0 if there is none."""
    entries = int(internal_stats["numberOfEntries"])
    return int(internal_stats["totalSize"]) / entries if entries else 0.0


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """The writes of one partition at one time.

    :param added: entries stored since it was loaded.
    :param pending: entries on their way to the bookies.
    :param last: the last stored entry.
    """

    added: int
    pending: int
    last: Position

    @classmethod
    def of(cls, internal_stats: JsonObject) -> PendingWrites:
        """Read `internalStats`."""
        return cls(
            int(internal_stats["entriesAddedCounter"]),
            int(internal_stats["pendingAddEntriesCount"]),
            Position.parse(internal_stats["lastConfirmedEntry"]),
        )


@dataclass(frozen=True, slots=True)
class QuiesceResult:
    """What waiting for the writes of partitions ended with.

    :param ends: quiesced partition → its last entry then; one behind it entered later.
    :param waiting: the writes of those that were not quiesced in time.
    :param stored: entries that these have stored since the wait began.
    """

    ends: Mapping[TopicName, Position]
    waiting: Mapping[TopicName, PendingWrites]
    stored: int = 0

    def text(self) -> str:
        """`2 partitions stored 812 entries since, 7 more are pending, most on persistent://…`."""
        worst = max(self.waiting, key=lambda topic: self.waiting[topic].pending)
        pending = sum(writes.pending for writes in self.waiting.values())
        return (
            f"{counted(len(self.waiting), 'partition')} stored {counted(self.stored, 'entry')} since, {pending:,} more "
            f"are pending, most on {worst}"
        )


def is_quiesced(before: PendingWrites, now: PendingWrites) -> bool:
    """Nothing is pending, and nothing was added between two reads.

    The pending count alone is 0 now and then while producers publish, and what a broker has read from a connection
    before the throttle reached it arrives all at once.
    """
    return now.pending == 0 and now.added == before.added


async def wait_quiesced(
    admin: AdminClient,
    partitions: Sequence[TopicName],
    seconds: float = QUIESCE_TIMEOUT_SECONDS,
    again: Callable[[], Awaitable[object]] | None = None,
) -> QuiesceResult:
    """Wait until each of these partitions was quiesced once, at most `seconds`.

    Producers must be throttled. Calls: two for each topic, and one more for each read of those not quiesced.

    :param again: stores the throttle once more. A broker applies two updates of a namespace's policies on two threads:
        the earlier one, without the throttle, may come last (observed, 4.2.4, in 3 of 12 moves on two busy cores).
    """
    loop, due = asyncio.get_running_loop(), [*_AGAIN_SECONDS] if again else []
    logged = began = loop.time()
    ends: dict[TopicName, Position] = {}
    first = waiting = await _read(admin, partitions)
    while waiting and loop.time() < began + seconds:
        await asyncio.sleep(_POLL_SECONDS)
        before, waiting = waiting, await _read(admin, tuple(waiting))
        ends |= {topic: writes.last for topic, writes in waiting.items() if is_quiesced(before[topic], writes)}
        waiting = {topic: writes for topic, writes in waiting.items() if topic not in ends}
        result = QuiesceResult(ends, waiting, _stored(first, waiting))
        if again and due and loop.time() > began + due[0]:
            due.pop(0)
            if _stored(before, waiting):
                log.info("%s: the throttle is stored once more", result.text())
                await again()
                # What it lets through may be on its way to any of them.
                ends, waiting = {}, await _read(admin, partitions)
        elif waiting and loop.time() > logged + _LOG_SECONDS:
            logged = loop.time()
            log.info("publishes still in flight after %.0f s: %s", logged - began, result.text())
    return QuiesceResult(ends, waiting, _stored(first, waiting))


def _stored(first: Mapping[TopicName, PendingWrites], now: Mapping[TopicName, PendingWrites]) -> int:
    # A topic that was loaded again counts from 0.
    return sum(max(0, writes.added - first[topic].added) for topic, writes in now.items())


async def _read(admin: AdminClient, partitions: Sequence[TopicName]) -> dict[TopicName, PendingWrites]:
    documents = await required_internal_stats(admin, partitions)
    return {topic: PendingWrites.of(stats) for topic, stats in documents.items()}
