"""What each kind of reader gets of a topic: a durable subscription, a reader, a reader of the compacted topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulsar
from tests.support.generated_topics import Compaction, GeneratedNamespace, GeneratedTopic

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName

Message = tuple[str, bytes, int]
"""Key, content, event time."""
CONSUME = pulsar.ConsumerCryptoFailureAction.CONSUME
COMES_MS, NO_MORE_MS, RETRIED_SECONDS = 20_000, 700, 20.0


@dataclass(frozen=True)
class Readable:
    """What can be read of one plain topic or partition.

    :param unread: what each durable subscription gets from its cursor on.
    :param log: what a reader gets from the earliest message on.
    :param values: the last value of each key for a reader of the compacted topic, without deleted keys.
    """

    unread: Mapping[str, tuple[Message, ...]]
    log: tuple[Message, ...]
    values: Mapping[str, bytes]
    is_terminated: bool


async def read_all(
    admin: AdminClient,
    namespace: NamespaceName,
    generated: GeneratedNamespace,
    expected: Mapping[str, Readable] | None = None,
) -> dict[str, Readable]:
    """Read every partition of the namespace without acknowledging anything.

    :param expected: what should come, so that a slow cluster is waited for.
    """
    partitions = {
        partition: topic
        for topic in generated.topics
        for partition in TopicName(namespace, topic.name).partitions(topic.partitions)
    }
    answers = await asyncio.gather(
        *(
            _read(admin, partition, topic, (expected or {}).get(str(partition)))
            for partition, topic in partitions.items()
        )
    )
    return dict(zip(map(str, partitions), answers, strict=True))


async def _read(admin: AdminClient, partition: TopicName, topic: GeneratedTopic, expected: Readable | None) -> Readable:
    """With a client of its own: one that closes its connection would make others read again."""
    backlogs = {
        name: document["msgBacklog"]
        for name, document in (await admin.stats(partition))["subscriptions"].items()
        if name in {subscription.name for subscription in topic.subscriptions}
    }
    counts = {
        name: len(expected.unread.get(name, ())) if expected else 0 for name, backlog in backlogs.items() if backlog
    }
    # An empty topic that was terminated and loaded again refuses readers (4.2.4: NoSuchElementException).
    views = [False] if (await admin.internal_stats(partition))["numberOfEntries"] else []
    views += [True] if topic.compaction is not Compaction.NONE else []
    unread, logs = await asyncio.to_thread(_read_patiently, admin.connection, partition, counts, views)
    values = {
        # A deletion that is encrypted has content for a reader without the key.
        key: b"" if topic.tombstones and (time - 1) % 7 == 6 else content
        for key, content, time in logs.get(True, ())
    }
    return Readable(
        {name: unread.get(name, ()) for name in backlogs},
        logs.get(False, ()),
        {key: content for key, content in values.items() if content},
        "terminatedPosition" in await admin.internal_info(partition),
    )


def _read_patiently(
    connection: ClusterConnection, partition: TopicName, counts: Mapping[str, int], views: Sequence[bool]
) -> tuple[dict[str, tuple[Message, ...]], dict[bool, tuple[Message, ...]]]:
    """Retried where the broker loads the topic again, or has not applied a lifted limit; nothing is acknowledged."""
    end = time.monotonic() + RETRIED_SECONDS
    while True:
        client = open_client(connection)
        try:
            unread = {name: _unread(client, partition, name, count) for name, count in counts.items()}
            return unread, {compacted: _log(client, partition, compacted=compacted) for compacted in views}
        except pulsar.PulsarException:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        finally:
            client.close()


def _unread(client: pulsar.Client, partition: TopicName, subscription: str, count: int) -> tuple[Message, ...]:
    consumer = client.subscribe(str(partition), subscription, crypto_failure_action=CONSUME)
    messages: list[Message] = []
    try:
        while True:
            messages.append(_message(consumer.receive(COMES_MS if len(messages) < count else NO_MORE_MS)))
    except pulsar.Timeout:
        return tuple(messages)
    finally:
        consumer.close()


def _log(client: pulsar.Client, partition: TopicName, *, compacted: bool) -> tuple[Message, ...]:
    reader = client.create_reader(
        str(partition), pulsar.MessageId.earliest, is_read_compacted=compacted, crypto_failure_action=CONSUME
    )
    messages: list[Message] = []
    try:
        # The last entries may be markers of transactions, which no reader gets.
        while reader.has_message_available():
            messages.append(_message(reader.read_next(timeout_millis=2000)))
    except pulsar.Timeout:
        return tuple(messages)
    finally:
        reader.close()
    return tuple(messages)


def _message(message: pulsar.Message) -> Message:
    return message.partition_key(), message.data(), message.event_timestamp()


def differences(before: Mapping[str, Readable], after: Mapping[str, Readable], *, kept: frozenset[str]) -> list[str]:
    """What could be read before and cannot now, and what came that was not there, a sentence for each.

    :param kept: partitions of which every message had to be kept, also what every subscription has read.
    """
    texts: list[str] = []
    for partition, had in before.items():
        has = after[partition]
        for subscription, messages in had.unread.items():
            if subscription not in has.unread:
                texts.append(f"{partition} lacks the subscription {subscription!r}")
            elif has.unread[subscription] != messages:
                change = _change(messages, has.unread[subscription])
                texts.append(f"{partition} · {subscription!r}: {change}")
        if has.log != had.log and (partition in kept or set(has.log) - set(had.log)):
            texts.append(f"{partition}, a reader: {_change(had.log, has.log)}")
        if has.values != had.values:
            texts.append(f"{partition}, a reader of the compacted topic: {dict(had.values)} became {dict(has.values)}")
        if had.is_terminated and not has.is_terminated:
            texts.append(f"{partition} was terminated and is not")
    return texts


def _change(before: tuple[Message, ...], after: tuple[Message, ...]) -> str:
    lost, new = [row for row in before if row not in after], [row for row in after if row not in before]
    return f"{len(before)} messages became {len(after)}; lost {lost[:5]}, new {new[:5]}"
