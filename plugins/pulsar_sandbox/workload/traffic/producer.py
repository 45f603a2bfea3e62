"""A producer of the traffic: numbered messages at a steady rate, none of them given up."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_sandbox.workload.live import Identity, NumberedMessage
from pulsar_sandbox.workload.messages import schema_of
from pulsar_sandbox.workload.traffic.application import RETRY_SECONDS, Application, Topic, position
from pulsar_sandbox.workload.traffic.journal import Line, identity_of, now

_TICK_SECONDS = 0.05
_MAX_IN_FLIGHT = 4000
_OVER = frozenset({pulsar.Result.TopicTerminated, pulsar.Result.AlreadyClosed, pulsar.Result.ProducerFenced})
"""Answers after which a producer object accepts nothing any more."""


class ProducerApplication(Application):
    """Publishes numbered messages at a steady rate, and sends a failed one again, with its number, before others."""

    def __init__(
        self, connection: ClusterConnection, topic: Topic, name: str, *, folder: Path, keys: Sequence[str], rate: float
    ) -> None:
        super().__init__(connection, topic, name, folder=folder, header={})
        self._keys = keys
        self._rate = rate
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._in_flight: dict[Identity, NumberedMessage] = {}
        self._failed: list[NumberedMessage] = []
        self._over: str | None = None

    @property
    def settled(self) -> bool:
        """Whether every message sent has been acknowledged."""
        return not self._in_flight and not self._failed

    def _resume(self, lines: list[list[str]]) -> None:
        """Go on with the next numbers; what has no answer is sent again, with its number."""
        unanswered: dict[Identity, NumberedMessage] = {}
        for line in lines:
            if line[0] == Line.SENT:
                producer, key, number = identity = identity_of(line)
                self._numbers[key] = max(self._numbers[key], number + 1)
                unanswered.setdefault(identity, NumberedMessage(producer, key, number, int(line[4]) // 1000))
        for line in lines:
            if line[0] == Line.ACK:
                unanswered.pop(identity_of(line), None)
        self._failed = list(unanswered.values())
        for identity in unanswered:
            self.journal.write(Line.FAILED, *identity, now(), "Restarted")

    def _attach(self, client: pulsar.Client) -> None:
        # A broker may still have the previous producer under its name, so every new producer gets a new name.
        self._producer = client.create_producer(
            self.topic.name,
            producer_name=f"{self.name}-{os.getpid()}-{self._opened}",
            schema=schema_of(self.topic.schema, self.topic.schema_versions),
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=_MAX_IN_FLIGHT * 2,
            batching_enabled=True,
            batching_type=pulsar.BatchingType.KeyBased,
            batching_max_publish_delay_ms=5,
        )

    def _run(self) -> None:
        sent, began = 0, time.monotonic()
        while not self._stopping.is_set():
            self._recover()
            due = int((time.monotonic() - began) * self._rate) - sent
            # What an outage kept from being sent is not made up for: a burst would hide the broker's own speed.
            sent += due
            for _ in range(min(due, max(2, int(self._rate * 4 * _TICK_SECONDS)))):
                if len(self._in_flight) < _MAX_IN_FLIGHT:
                    self._send(self._next())
            self._stopping.wait(_TICK_SECONDS)
        self.journal.write(Line.STOPPED, now())
        while not self.settled and not self._given_up.is_set():
            self._recover()
            time.sleep(_TICK_SECONDS)

    def _next(self) -> NumberedMessage:
        key = self._keys[sum(self._numbers.values()) % len(self._keys)]
        message = NumberedMessage(self.name, key, self._numbers[key], now() // 1000)
        self._numbers[key] += 1
        return message

    def _send(self, message: NumberedMessage) -> None:
        with self._lock:
            self._in_flight[message.identity] = message
        self.journal.write(Line.SENT, *message.identity, now())

        def answered(result: pulsar.Result, stored: pulsar.MessageId) -> None:
            self._answered(message, result, stored)

        self._producer.send_async(message.to_bytes(), answered, partition_key=message.key, event_timestamp=message.at)

    def _answered(self, message: NumberedMessage, result: pulsar.Result, stored: pulsar.MessageId) -> None:
        # Called by the client library's thread: an exception here would end the process.
        at = now()
        if result == pulsar.Result.Ok:
            self.journal.write(Line.ACK, *message.identity, message.at * 1000, at, position(stored))
        else:
            self.journal.write(Line.FAILED, *message.identity, at, result.name)
        with self._lock:
            self._in_flight.pop(message.identity, None)
            if result != pulsar.Result.Ok:
                self._failed.append(message)
                self._over = result.name if result in _OVER else self._over

    def _recover(self) -> None:
        """After a failure: wait for the answers to all that is in flight, then send the failed ones in their order."""
        if not self._failed:
            return
        while self._in_flight and not self._given_up.is_set():
            time.sleep(_TICK_SECONDS)
        if self._over:
            self._reopen(self._over)
            self._over = None
        with self._lock:
            again, self._failed = sorted(self._failed, key=lambda message: message.number), []
        time.sleep(RETRY_SECONDS)
        for message in again:
            self._send(message)
