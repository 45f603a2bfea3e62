"""What reading costs by engine, in CPU-seconds of this process, beside bare loops that compare nothing."""

from __future__ import annotations

import asyncio
import socket
import statistics
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pulsar
import pytest
from tests.bench.test_reading import make_topic, topic_bounds

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.digests import ALL, BUCKETS
from pulsar_fleet.messages.engines.engines import Engines
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.ranges import EngineName, Range, cut
from pulsar_fleet.messages.scan import sum_up

BATCH = 100
ROUNDS = 3


@pytest.mark.parametrize(("size", "messages"), [(100, 1_000_000), (1024, 200_000)])
def test_engines(blue: ClusterConnection, new_namespace: Callable[[], NamespaceName], size: int, messages: int) -> None:
    topic = TopicName(new_namespace(), "events")
    asyncio.run(make_topic(blue, topic))
    _fill(blue, topic, size, messages)
    bounds = asyncio.run(topic_bounds(blue, topic))
    (whole,) = cut(bounds, pair=0, publish_time=True, entries_per_range=messages)
    readers: dict[str, Callable[[], int]] = {
        "bytes": lambda: _bytes_alone(blue, whole, messages),
        "frames": lambda: sum(count for _, _, count in _frames(blue, whole, messages)),
        "entry": lambda: _digests(blue, replace(whole, engine=EngineName.ENTRY)),
        "read_next": lambda: _bare(blue, topic, messages),
        "message": lambda: _digests(blue, whole),
    }
    # In turns, so that what else runs on the machine hits all of them; the first round warms up.
    rounds = [{name: _cost(read, messages) for name, read in readers.items()} for _ in range(ROUNDS + 1)][1:]
    cost = {name: statistics.median(costs[name] for costs in rounds) for name in readers}
    print(f"\n{messages:,} messages of {size} B, {BATCH} in an entry (CPU-s per million messages, median of {ROUNDS})")
    for name, text in _LINES.items():
        print(f"  {text:58s} {cost[name] / messages * 1e6:8.3f}")
    print(f"  entry is {cost['message'] / cost['entry']:.1f} × message")
    print(
        f"  entry is {cost['frames'] / cost['entry']:.2f} of bare frames, {cost['bytes'] / cost['entry']:.2f} of bytes"
    )
    print(f"  message is {cost['read_next'] / cost['message']:.2f} of bare read_next")


_LINES = {
    "bytes": "socket alone: bytes received, frames counted by their size",
    "frames": "bare frames: with the place and the messages of each",
    "entry": "entry engine, digests and order",
    "read_next": "pulsar-client, bare read_next(timeout)",
    "message": "message engine, digests and order",
}


def _cost(read: Callable[[], int], messages: int) -> float:
    began = time.process_time()
    assert read() == messages
    return time.process_time() - began


def _digests(connection: ClusterConnection, part: Range) -> int:
    with Engines(connection) as engines:
        return sum(row.sums.count for row in sum_up(engines, part, BUCKETS) if row.bucket == ALL)


def _bare(connection: ClusterConnection, topic: TopicName, messages: int) -> int:
    client = open_client(connection)
    reader = client.create_reader(str(topic), pulsar.MessageId.earliest)
    for _ in range(messages):
        reader.read_next(30_000)
    client.close()
    return messages


def _bytes_alone(connection: ClusterConnection, part: Range, messages: int) -> int:
    entries = sum(kind == api.MESSAGE for kind, _, _ in _stream(connection, part, messages))
    return messages if entries == part.entries else 0


def _frames(connection: ClusterConnection, part: Range, messages: int) -> Iterator[tuple[int, int, int]]:
    """Ledger, entry and number of messages of each: what flow control and going on after a break need."""
    for kind, buffer, (begin, end) in _stream(connection, part, messages):
        if kind == api.MESSAGE:
            _, ledger, entry = wire.read_message(buffer, begin)
            yield ledger, entry, _messages_in(buffer, end + 6 if buffer[end : end + 2] == b"\x0e\x01" else end)


def _messages_in(buffer: bytearray, at: int) -> int:
    end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
    at += 4
    while at < end:
        tag, at = wire.read_varint(buffer, at)
        value, at = wire.read_varint(buffer, at)
        if tag >> 3 == 11:
            return value
        at += value if tag & 7 == 2 else 0
    return 1


def _stream(
    connection: ClusterConnection, part: Range, messages: int
) -> Iterator[tuple[int, bytearray, tuple[int, int]]]:
    """Kind of each frame, and where its command lies, until all entries came; permits are given for all at once."""
    place = urlsplit(connection.require_service_url())
    subscribe = wire.subscribe(2, 1, part.topic, f"bare-{uuid.uuid4().hex}", part.first)
    with socket.create_connection((place.hostname, place.port)) as broker:
        for frame in (
            wire.connect(method=None, credentials=None, broker_url=None),
            wire.lookup(1, part.topic, authoritative=False),
            subscribe,
        ):
            broker.sendall(frame)
            broker.recv(65_536)
        broker.sendall(wire.flow(1, messages))
        buffer, begin, end, entries = bytearray(1 << 20), 0, 0, 0
        view = memoryview(buffer)
        while entries < part.entries:
            if begin == end:
                begin = end = 0
            elif len(buffer) - begin < 1 << 18:
                rest = buffer[begin:end]
                buffer[: len(rest)] = rest
                begin, end = 0, len(rest)
            end += broker.recv_into(view[end:])
            while end - begin >= 8:
                size, command = struct.unpack_from(">II", buffer, begin)
                if end - begin < size + 4:
                    break
                kind = buffer[begin + 9]
                entries += kind == api.MESSAGE
                yield kind, buffer, (begin + 8, begin + 8 + command)
                begin += size + 4


def _fill(connection: ClusterConnection, topic: TopicName, size: int, messages: int) -> None:
    client = open_client(connection)
    producer = client.create_producer(
        str(topic),
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_allowed_size_in_bytes=1 << 20,
        batching_max_publish_delay_ms=10_000,
        block_if_queue_full=True,
    )
    for number in range(messages):
        payload = b"%016d" % number
        producer.send_async(payload * (size // 16), None, partition_key=f"key-{number % 100}", properties={"n": "1"})
    producer.flush()
    client.close()
