"""Random cursors on both clusters, made by real consumers, and the expected comparison: from the acknowledgments
that were made and the messages that readers get, never from a broker's report of a cursor."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pulsar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName

FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
TYPES = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.KeyShared,
)
CUMULATIVE = TYPES[:2]
LATE_MS = 4_000_000_000_000


@dataclass(frozen=True)
class Entry:
    """A stored entry as a reader gets it: its position and its messages, by names equal on both clusters."""

    position: Position
    messages: tuple[str, ...]


@dataclass
class Cursor:
    """A subscription as the test makes it: everything before `mark` acknowledged, then individual entries.

    :param reset: the entry number to which it is set back afterwards, which drops the individual acknowledgments.
    """

    mark: int
    alone: set[int] = field(default_factory=set)
    reset: int | None = None

    def unread(self, entries: Sequence[Entry]) -> set[str]:
        """The messages that it would still deliver."""
        mark, alone = (self.mark, self.alone) if self.reset is None else (self.reset, set())
        unread_entries = (entry for number, entry in enumerate(entries) if number >= mark and number not in alone)
        return {message for entry in unread_entries for message in entry.messages}


@dataclass
class Copy:
    """One topic on both clusters with its cursors by name, blue's first.

    :param same_entries: whether entries are identical on both clusters, so that entries are counted.
    """

    topic: TopicName
    entries: tuple[list[Entry], list[Entry]]
    same_entries: bool
    cursors: dict[str, tuple[Cursor, Cursor]] = field(default_factory=dict)

    def expected(self, name: str) -> tuple[set[Position], set[Position], int, int]:
        """Positions redelivered (on green) and skipped (on blue), and how many of each in the unit that is counted."""
        on_blue, on_green = (
            cursor.unread(entries) for cursor, entries in zip(self.cursors[name], self.entries, strict=True)
        )
        again = [_holding(self.entries[1], message) for message in on_green - on_blue]
        lost = [_holding(self.entries[0], message) for message in on_blue - on_green]
        counted = (len(set(again)), len(set(lost))) if self.same_entries else (len(again), len(lost))
        return set(again), set(lost), *counted


def _holding(entries: Sequence[Entry], message: str) -> Position:
    return next(entry.position for entry in entries if message in entry.messages)


def random_cursors(chance: random.Random, count: int, copy: Copy) -> None:
    """Draw `count` pairs of cursors: equal ones, moved ones, with holes, at ledger ends, set back."""
    for number in range(count):
        here = _draw(chance, copy.entries[0])
        on_green = _same(here, copy) if chance.random() < 0.7 else _draw(chance, copy.entries[1])
        if chance.random() < 0.5:
            _disturb(chance, on_green, copy.entries[1])
        copy.cursors[f"sub {number}+é"] = (here, on_green)


def _draw(chance: random.Random, entries: Sequence[Entry]) -> Cursor:
    ends = [number + 1 for number, entry in enumerate(entries[:-1]) if entries[number + 1].position.entry == 0]
    mark = chance.choice([0, len(entries), *ends, *(chance.randrange(len(entries)) for _ in range(4))])
    alone = (
        {number for number in range(mark, len(entries)) if chance.random() < 0.4} if chance.random() < 0.6 else set()
    )
    return Cursor(mark, alone, chance.randrange(len(entries)) if chance.random() < 0.15 else None)


def _same(here: Cursor, copy: Copy) -> Cursor:
    """The cursor on green that leaves the same unread, as far as green's entries allow it."""
    unread = here.unread(copy.entries[0])
    done = [not unread.intersection(entry.messages) for entry in copy.entries[1]]
    mark = done.index(False) if False in done else len(done)
    return Cursor(mark, {number for number in range(mark, len(done)) if done[number]})


def _disturb(chance: random.Random, cursor: Cursor, entries: Sequence[Entry]) -> None:
    """One entry more, or one fewer, as one lost or repeated acknowledgment would leave it."""
    if cursor.alone and chance.random() < 0.5:
        cursor.alone.remove(chance.choice(sorted(cursor.alone)))
    elif cursor.mark < len(entries):
        cursor.alone.add(chance.randrange(cursor.mark, len(entries)))


class Side:
    """One cluster while cursors are made on it."""

    def __init__(self, connection: ClusterConnection, admin: AdminClient) -> None:
        self.connection = connection
        self.admin = admin
        self.client = open_client(connection)

    async def make_namespace(self, namespace: NamespaceName, clusters: Sequence[str]) -> None:
        """A namespace with infinite retention, in a tenant that both clusters may have."""
        if await self.admin.tenant(namespace.tenant) is None:
            allowed = {"adminRoles": [], "allowedClusters": ["blue", "green"]}
            await self.admin.put(f"/tenants/{namespace.tenant}", allowed)
        policies = {"replication_clusters": list(clusters), "retention_policies": FOREVER}
        await self.admin.put_namespace(namespace, policies)

    def write(
        self, topic: TopicName, names: Sequence[str], *, batch: int, local: bool = False, late: bool = False
    ) -> None:
        """Messages in batches of `batch`; `local` ones are not replicated, `late` ones are not delivered yet."""
        producer = self.client.create_producer(
            str(topic),
            batching_enabled=batch > 1,
            batching_max_messages=max(2, batch),
            batching_max_publish_delay_ms=10_000,
        )
        for number, name in enumerate(names):
            producer.send_async(
                name.encode(),
                None,
                partition_key=f"key-{number % 3}",
                disable_replication=local,
                deliver_at=LATE_MS if late else None,
            )
            if (number + 1) % batch == 0:
                producer.flush()
        producer.flush()
        producer.close()

    def read(self, topic: TopicName, *, by_index: bool) -> list[Entry]:
        """All entries; messages named by their payload, or by their index where payloads repeat."""
        reader = self.client.create_reader(str(topic), pulsar.MessageId.earliest)
        payloads: dict[Position, list[str]] = {}
        index = 0
        while reader.has_message_available():
            message = reader.read_next(10_000)
            lies = message.message_id()
            name = f"{index}" if by_index else message.data().decode()
            payloads.setdefault(Position(lies.ledger_id(), lies.entry_id()), []).append(name)
            index += 1
        reader.close()
        return [Entry(position, tuple(names)) for position, names in payloads.items()]

    async def set_cursors(self, chance: random.Random, copy: Copy, side: int) -> None:
        """Set the cursors: by individual or cumulative acknowledgments, by creation at a position, by a reset."""
        entries = copy.entries[side]
        for number, (name, pair) in enumerate(copy.cursors.items()):
            cursor, kind = pair[side], TYPES[number % len(TYPES)]
            mark = 0
            if kind not in CUMULATIVE and cursor.mark < len(entries) and chance.random() < 0.5:
                await self.admin.create_subscription(copy.topic, name, entries[cursor.mark].position)
                mark = cursor.mark
            await asyncio.to_thread(self._consume, copy.topic, name, kind, entries, cursor, mark)
            if cursor.reset is not None:
                at = entries[cursor.reset].position
                body = {"ledgerId": at.ledger, "entryId": at.entry, "excluded": False}
                await self.admin.post(f"{copy.topic.subscription_path(name)}/resetcursor", body)

    def _consume(
        self,
        topic: TopicName,
        name: str,
        kind: pulsar.ConsumerType,
        entries: Sequence[Entry],
        cursor: Cursor,
        mark: int,
    ) -> None:
        consumer = self.client.subscribe(
            str(topic),
            name,
            consumer_type=kind,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1,
        )
        if kind in CUMULATIVE and cursor.mark:
            consumer.acknowledge_cumulative(_id(entries[cursor.mark - 1]))
            mark = cursor.mark
        for number in [*range(mark, cursor.mark), *sorted(cursor.alone)]:
            consumer.acknowledge(_id(entries[number]))
        consumer.close()


def _id(entry: Entry) -> pulsar.MessageId:
    return pulsar.MessageId(-1, entry.position.ledger, entry.position.entry, -1)


async def no_cursor_is_left(admin: AdminClient, topic: TopicName) -> None:
    """The broker removes a reader's cursor a moment after it was closed."""
    async with asyncio.timeout(10):
        while (await admin.internal_stats(topic))["cursors"]:
            await asyncio.sleep(0.05)
