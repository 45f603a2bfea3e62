"""An application that writes and reads a topic all the time, and counts what it has lost."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import pulsar

from pulsar_fleet.cluster.names import TopicName


class Canary:
    """A producer and a consumer of one topic, from `with` to its end; both wait for a broker that is slow."""

    def __init__(self, service_url: str, topic: TopicName) -> None:
        self._service_url, self._topic = service_url, str(topic)
        self._stop = threading.Event()
        self.sent: set[bytes] = set()
        self.received: set[bytes] = set()

    def __enter__(self) -> Self:
        self._client = pulsar.Client(self._service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._consumer = self._client.subscribe(self._topic, "canary")
        self._producer = self._client.create_producer(self._topic)
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    @property
    def lost(self) -> int:
        """Messages that were sent and not received, after the end."""
        return len(self.sent - self.received)

    def _write(self) -> None:
        while not self._stop.is_set():
            payload = str(len(self.sent)).encode()
            self._producer.send(payload)
            self.sent.add(payload)
            self._stop.wait(0.02)

    def _read(self) -> None:
        end = None
        while end is None or (self.sent - self.received and time.monotonic() < end):
            if end is None and self._stop.is_set():
                end = time.monotonic() + 20
            try:
                message = self._consumer.receive(timeout_millis=500)
            except pulsar.Timeout:
                continue
            self.received.add(message.data())
            self._consumer.acknowledge(message)
