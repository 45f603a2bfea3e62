"""The applications of `Applications.java`, with Pulsar's Python client: same input, same events."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pulsar

from pulsar_fleet.clients.provider import DocumentProvider

RUN, KEYS = 8, 10
TICK_SECONDS = 0.004
EVENTS: list[str] = []


class Writing:
    """A producer that keeps its rate."""

    def __init__(self, producer: pulsar.Producer, index: str, rate: int) -> None:
        self._producer, self._index, self._rate = producer, index, rate
        self._began, self._sent = time.monotonic(), 0

    def send(self) -> None:
        """Send what is due."""
        due = int((time.monotonic() - self._began) * self._rate)
        while self._sent < due:
            number, self._sent = self._sent, self._sent + 1
            payload = f"{self._index} {number}".encode()
            self._producer.send_async(payload, self._answered(number), partition_key=f"k{number // RUN % KEYS}")

    def _answered(self, number: int) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        def note(result: pulsar.Result, _id: pulsar.MessageId) -> None:
            kind = "A" if result == pulsar.Result.Ok else "E"
            EVENTS.append(f"{kind} {self._index} {number} {time.time_ns() // 1000}")

        return note


def connect(url: str, document: str) -> pulsar.Client:
    """A client that says nothing; it follows the document at a URL if there is one."""
    where = DocumentProvider(document, default=url) if document else url
    return pulsar.Client(where, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))


def note(index: str, message: pulsar.Message) -> None:
    """A message has arrived."""
    EVENTS.append(f"R {index} {message.data().decode()} {time.time_ns() // 1000}")


def consume(receive: Callable[[int], pulsar.Message], acknowledge: Callable[[pulsar.Message], None], name: str) -> None:
    """Receive without an end."""
    while True:
        try:
            message = receive(500)
        except pulsar.Timeout:
            continue
        except pulsar.PulsarException:
            time.sleep(0.2)
            continue
        note(name, message)
        acknowledge(message)


def start(client: pulsar.Client, words: list[str], writers: list[Writing], kept: list[object]) -> None:
    """Start the application of a line."""
    kind, index, topic = words[:3]
    if kind == "producer":
        producer = client.create_producer(
            topic,
            send_timeout_millis=0,
            max_pending_messages=50_000,
            batching_enabled=True,
            batching_max_publish_delay_ms=20,
            batching_type=pulsar.BatchingType.KeyBased,
        )
        writers.append(Writing(producer, index, int(words[3])))
        return
    if kind == "reader":
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        kept.append(reader)
        work = (reader.read_next, lambda _message: None, index)
    else:
        consumer = subscribe(client, words)
        kept.append(consumer)
        work = (consumer.receive, consumer.acknowledge, index)
    threading.Thread(target=consume, args=work, daemon=True).start()


def subscribe(client: pulsar.Client, words: list[str]) -> pulsar.Consumer:
    """One consumer, of a topic or by pattern."""
    if words[0] == "pattern":
        import re

        return client.subscribe(
            re.compile(words[2]), words[3], consumer_type=pulsar.ConsumerType.Shared, pattern_auto_discovery_period=2
        )
    kind = getattr(pulsar.ConsumerType, words[4].replace("_", ""))
    return client.subscribe(words[2], words[3], consumer_type=kind)


def main() -> None:
    """Until `end`, or until whoever started it is gone."""
    url, file, *document = sys.argv[1:]
    writers: list[Writing] = []
    kept: list[object] = []
    client = None
    while line := sys.stdin.readline().strip():
        if line == "client":
            client = connect(url, *document or [""])
            kept.append(client)
        else:
            start(client, line.split(), writers, kept)
    running = threading.Event()
    running.set()

    def pace() -> None:
        while running.is_set():
            for writer in writers:
                writer.send()
            time.sleep(TICK_SECONDS)

    threading.Thread(target=pace, daemon=True).start()
    Path(file).touch()
    if sys.stdin.readline().strip() == "stop":
        running.clear()
        if sys.stdin.readline().strip() == "end":
            Path(file).write_text("\n".join([*EVENTS, ""]))
    # A client that hangs would keep the interpreter from ending.
    os._exit(0)


if __name__ == "__main__":
    main()
