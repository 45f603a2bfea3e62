"""Transfer each subscription's cursor from blue to green, so that no entry is skipped and redeliveries are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.cursor_setting import CursorPosition, PartitionCursors, TargetCursor, set_cursors
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, replicated_up_to, subscription_cursors
from pulsar_fleet.migration.model import PartitionClients
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor, TransferredPartition
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged, carries

_CONCURRENT_RUNS = 64
_LOOKED_BACK = 64
_MOST_LOOKED_AT = 2000


class PositionMap:
    """One partition on both clusters; every entry that it is called with must be replicated already.

    Copies keep their order, but the entries may differ: blue may hold entries that are not replicated, green
    markers of its own. Where the distance is the same as before, one call confirms it; otherwise it takes a binary
    search.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._copy = copies.copies
        self._source = copies.originals
        self._shift = len(self._copy) - len(self._source)

    async def count_before(self, number: int) -> int:
        """How many of green's entries lie before the copy of blue's entry `number`, which may be one past the last."""
        if not len(self._source):
            # Every subscription on blue has read what green holds, otherwise blue would hold it too.
            return len(self._copy)
        guess = number + self._shift
        if number < len(self._source) and await self._is_copy(guess, number):
            return guess
        if number:
            return await self._count_through(number - 1)
        first = self._source.at(0)
        return await self._search(number, Position(first.ledger, first.entry - 1))

    async def count_acknowledged(self, number: int, mark_delete: Position) -> int:
        """How many of green's entries lie up to the last copy of blue's first `number` entries, for a cursor there.

        Unlike `count_before` it leaves out what green's producers wrote between that copy and the next one.
        """
        return await self._count_through(number - 1) if number else await self._search(0, mark_delete)

    async def first_written(self, begin: int, end: int) -> int:
        """The first of green's entries in [begin, end) that a producer wrote to green: no cursor may skip it.

        `end` where there is none. It looks at the first 2,000, one call for each, and answers for no more.
        """
        last = min(end, begin + _MOST_LOOKED_AT)
        for start in range(begin, last, _CONCURRENT_RUNS):
            chunk = range(start, min(start + _CONCURRENT_RUNS, last))
            written = await asyncio.gather(*(self._copies.is_original(index) for index in chunk))
            if True in written:
                return start + written.index(True)
        return last

    async def last_original(self, number: int) -> Position:
        """Blue's entry whose copy is the last one among green's first `number` entries; before all where none is.

        Green's producers may have written some of the entries; it looks at the last 64.
        """
        for index in range(number - 1, max(number - 1 - _LOOKED_BACK, -1), -1):
            if (origin := await self._copies.origin(index)) is not None:
                return origin
        return EARLIEST

    async def copies(self, entries: Intervals) -> Intervals:
        """Green's entries from the copy of each run's first entry to that of its last, with all entries in between."""
        runs: list[tuple[int, int]] = []
        for start in range(0, len(entries.runs), _CONCURRENT_RUNS):
            chunk = entries.runs[start : start + _CONCURRENT_RUNS]
            runs += await asyncio.gather(*(self._run(begin, end) for begin, end in chunk))
        return Intervals.of(runs)

    async def _run(self, begin: int, end: int) -> tuple[int, int]:
        return await self.count_before(begin), await self._count_through(end - 1)

    async def _count_through(self, number: int) -> int:
        """How many of green's entries lie up to and including the copy of blue's entry `number`."""
        guess = number + self._shift
        if await self._is_copy(guess, number):
            return guess + 1
        return await self._search(number + 1, self._source.at(number))

    async def _search(self, number: int, last: Position) -> int:
        count = await self._copies.count_up_to(last)
        self._shift = count - number
        return count

    async def _is_copy(self, index: int, number: int) -> bool:
        if not 0 <= index < len(self._copy):
            return False
        return await self._copies.origin(index) == self._source.at(number)


COPIED_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition on both clusters at one time; green holds blue's entries below `replicated`.

    :param linked: its replicator is connected. Without one an empty partition lacks nothing, but nothing that is
        written now would reach green.
    """

    blue: Ledgers
    green: PartitionCursors
    cursors: Mapping[str, SubscriptionCursor]
    replicated: int
    linked: bool

    def is_copied_up_to(self, end: Position | None) -> bool:
        """Green has every entry up to this one, or every one, and gets new ones."""
        return self.linked and self.replicated >= (len(self.blue) if end is None else self.blue.index_after(end))


class CursorTransfer:
    """Transfers the cursors of replicated partitions; a cursor that is at its target already is not changed.

    A subscription with consumers starts at the end on green: its backlog stays on blue, whose broker lets its
    consumers read it before it redirects them. A subscription without consumers starts at its mark-delete position;
    that does not move, so most of the work is done by `transfer_idle` while producers publish.
    """

    def __init__(
        self,
        blue: AdminClient,
        green: AdminClient,
        *,
        individually_acknowledged: IndividuallyAcknowledged = IndividuallyAcknowledged.CARRY,
    ) -> None:
        self._blue = blue
        self._green = green
        self._policy = individually_acknowledged
        self._mapped: dict[tuple[TopicName, str], tuple[SubscriptionCursor, CursorPosition]] = {}

    async def transfer_idle(self, topic: TopicName, clients: PartitionClients) -> None:
        """Set the cursors of subscriptions without consumers whose entries are on green; `transfer` does the rest."""
        partition = await self._read(topic)
        targets = {
            name: await self._target(topic, name, cursor, partition)
            for name, cursor in partition.cursors.items()
            if not _is_consumed(name, cursor, clients) and _required_entries(cursor) <= partition.replicated
        }
        await set_cursors(self._green, topic, targets, partition.green)

    async def follow(
        self, topic: TopicName, names: Collection[str], earlier: Mapping[str, Position], *, written: bool
    ) -> dict[str, Position]:
        """Move green's cursors up to the mark-delete positions that subscriptions have on blue now.

        For consumers that will connect to green by themselves: what they acknowledged on blue until then, green does
        not deliver again. A cursor with consumers on green is left, and none is set back after the first time, nor
        beyond a message that a producer wrote to green.

        :param earlier: the result of an earlier call.
        :param written: producers have been connected to green.
        :returns: subscription → position on blue up to which green delivers nothing, for each that was moved.
        """
        partition = await self._read(topic)
        position_map = self._position_map(topic, partition)
        targets: dict[str, TargetCursor] = {}
        followed: dict[str, Position] = {}
        for name in names:
            cursor, present = partition.cursors.get(name), partition.green.cursors.get(name)
            if cursor is None or (present and present.consumers) or cursor.mark_delete_index > partition.replicated:
                continue
            number = await position_map.count_acknowledged(cursor.mark_delete_index, cursor.cursor.mark_delete)
            begin, originals = 0, cursor.mark_delete_index
            if present and name in earlier:
                begin = present.mark_delete_index
                originals -= partition.blue.index_after(earlier[name])
            if written or number - begin != originals:
                number = await position_map.first_written(begin, number)
            if number > begin or name not in earlier:
                targets[name] = TargetCursor(cursor, CursorPosition(number, Intervals()))
                followed[name] = await position_map.last_original(number)
        await set_cursors(self._green, topic, targets, partition.green)
        return followed

    async def wait_copied(self, topic: TopicName) -> None:
        """Wait until green has every entry of this partition; `Conflict` after 15 s."""
        await self._copied(topic)

    async def wait_sent(self, topic: TopicName) -> None:
        """As `wait_copied`, for what is stored now: a topic into which green replicates never stands still."""
        stored = (await self._read(topic)).blue
        await self._copied(topic, stored.at(len(stored) - 1) if len(stored) else EARLIEST)

    async def transfer(self, topic: TopicName, clients: PartitionClients) -> TransferredPartition:
        """Set every cursor of one partition. Producers must be throttled, and green must have no consumer.

        :param clients: those that were connected to blue when they were counted.
        :raises Conflict: green lacks entries or has a consumer, or a consumer has connected to blue. The cutover was
            not made; run again.
        """
        partition = await self._copied(topic)
        idle = {name: cursor for name, cursor in partition.cursors.items() if not _is_consumed(name, cursor, clients)}
        targets = {name: await self._target(topic, name, cursor, partition) for name, cursor in idle.items()}
        if consumed := partition.cursors.keys() - idle.keys():
            count = await self._position_map(topic, partition).count_before(len(partition.blue))
            for name in sorted(consumed):
                self._refuse_new_consumers(topic, name, partition.cursors[name], clients)
                targets[name] = TargetCursor(partition.cursors[name], CursorPosition(count, Intervals()))
        await set_cursors(self._green, topic, targets, partition.green)
        cursors = tuple(self._transferred(topic, name, cursor) for name, cursor in idle.items())
        end = partition.blue.at(len(partition.blue) - 1) if len(partition.blue) else None
        return TransferredPartition(cursors, end)

    async def _target(
        self, topic: TopicName, name: str, cursor: SubscriptionCursor, partition: _Partition
    ) -> TargetCursor:
        mapped = self._mapped.get((topic, name))
        if mapped is None or mapped[0].cursor != cursor.cursor:
            mapped = self._mapped[topic, name] = (cursor, await self._position(topic, name, cursor, partition))
        return TargetCursor(cursor, mapped[1])

    def _transferred(self, topic: TopicName, name: str, cursor: SubscriptionCursor) -> TransferredCursor:
        carried = carries(self._policy, cursor)
        return TransferredCursor(
            topic=str(topic),
            subscription=name,
            unread=len(cursor.unread) + (0 if carried else len(cursor.individually_acknowledged)),
            carried=len(cursor.individually_acknowledged) if carried else 0,
            redelivered=0 if carried else len(cursor.individually_acknowledged),
        )

    async def _position(
        self, topic: TopicName, name: str, cursor: SubscriptionCursor, partition: _Partition
    ) -> CursorPosition:
        position_map = self._position_map(topic, partition)
        mark_delete = await position_map.count_before(cursor.mark_delete_index)
        copied = await position_map.count_before(partition.replicated) - mark_delete
        expected = partition.replicated - cursor.mark_delete_index
        # Snapshots of replicated subscriptions are entries of one cluster only: their copies cannot be counted.
        if copied != expected and not any(other.replicated for other in partition.cursors.values()):
            raise Conflict(
                f"Subscription {name!r} of {topic} has {expected} entries behind its mark-delete position, but "
                f"{self._green.connection.name} holds {copied} of them; no client was moved. Check the "
                "replication of that topic, then run again."
            )
        carried = (
            await position_map.copies(cursor.individually_acknowledged)
            if carries(self._policy, cursor)
            else Intervals()
        )
        return CursorPosition(mark_delete, carried)

    def _refuse_new_consumers(
        self, topic: TopicName, name: str, cursor: SubscriptionCursor, clients: PartitionClients
    ) -> None:
        if cursor.consumers and not clients.consumers.get(name):
            raise Conflict(
                f"A consumer of subscription {name!r} of {topic} connected to {self._blue.connection.name} during the "
                "cutover, which was not made; run again."
            )

    def _position_map(self, topic: TopicName, partition: _Partition) -> PositionMap:
        return PositionMap(Copies(self._blue, self._green, topic, partition.blue, partition.green.ledgers))

    async def _copied(self, topic: TopicName, end_of_blue: Position | None = None) -> _Partition:
        """The partition once blue's entries are on green, up to a position or all. Producers are throttled, not
        stopped: it may take a few reads."""
        loop = asyncio.get_running_loop()
        end = loop.time() + COPIED_SECONDS
        while not (partition := await self._read(topic)).is_copied_up_to(end_of_blue):
            if loop.time() > end:
                link = "connected" if partition.linked else "not connected"
                raise Conflict(
                    f"{len(partition.blue) - partition.replicated} entries of {topic} are not on "
                    f"{self._green.connection.name} after {COPIED_SECONDS:.0f} s of throttled producers, its "
                    f"replicator is {link}; no client was moved. Check the replication in the stats of that "
                    "topic, then run again."
                )
            await asyncio.sleep(0.1)
        return partition

    async def _read(self, topic: TopicName) -> _Partition:
        # Blue first: what it reports as confirmed by green is in green's answer afterwards.
        document, internal = await asyncio.gather(
            self._blue.stats(topic, precise=False), self._blue.internal_stats(topic)
        )
        stats = TopicStats.of(topic, document)
        blue, cluster = Ledgers.of(internal), await self._green.cluster_name()
        return _Partition(
            blue=blue,
            green=await PartitionCursors.read(self._green, topic),
            cursors=subscription_cursors(blue, stats, internal),
            replicated=replicated_up_to(blue, internal, cluster) or 0,
            linked=stats.replication_connected.get(cluster, False),
        )


def _is_consumed(name: str, cursor: SubscriptionCursor, clients: PartitionClients) -> bool:
    return bool(cursor.consumers or clients.consumers.get(name))


def _required_entries(cursor: SubscriptionCursor) -> int:
    """How many of blue's entries green must have before the cursor can be set."""
    return (
        (cursor.individually_acknowledged.last or 0) + 1
        if cursor.individually_acknowledged
        else cursor.mark_delete_index
    )
