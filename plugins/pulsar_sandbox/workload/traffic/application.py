"""The applications of the traffic, each with a client object, a thread and a journal, in a process of its own."""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import security_options
from pulsar_sandbox.workload.live import Identity, NumberedMessage, SubscriptionType
from pulsar_sandbox.workload.messages import schema_of
from pulsar_sandbox.workload.schemas import SchemaKind, decode
from pulsar_sandbox.workload.traffic.connections import client_log
from pulsar_sandbox.workload.traffic.journal import JournalReader, JournalWriter, Line, identity_of, journal_file, now

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of an application; `schema` of the payloads, None for plain bytes."""

    name: str
    schema: SchemaKind | None = None
    schema_versions: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """Why and when (microseconds since 1970) the operator ended the process before this one."""

    reason: str
    at: int


class Application(ABC):
    """One client object, one thread, one journal.

    :param folder: where journal and log of the client library are written, or continued after a restart.
    """

    def __init__(
        self, connection: ClusterConnection, topic: Topic, name: str, *, folder: Path, header: Mapping[str, str]
    ) -> None:
        self.topic = topic
        self.name = name
        self.journal = JournalWriter(folder, name, {"topic": topic.name, **header})
        self._folder = folder
        self._connection = connection
        self._client: pulsar.Client | None = None
        self._opened = 0
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self, restart: Restart | None = None) -> None:
        """Connect, then work in a thread.

        The first process raises what the client raises when it cannot connect; one after a restart tries until it can.
        """
        if restart is None:
            self._open()
        else:
            self.journal.write(Line.RESTARTED, restart.at, restart.reason)
            self._resume(JournalReader(journal_file(self._folder, self.name)).new_lines())
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to come to its end."""
        self._stopping.set()

    def finish(self, seconds: float) -> None:
        """Wait for the thread, then close; gives up on a client that hangs."""
        self._thread.join(seconds)
        self._given_up.set()
        closing = threading.Thread(target=_close_quietly, args=(self._client,), daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        self.journal.close()

    @abstractmethod
    def _resume(self, lines: list[list[str]]) -> None:
        """Take over what the process before this one left in the journal."""

    @abstractmethod
    def _attach(self, client: pulsar.Client) -> None:
        """Create the producer or consumer."""

    @abstractmethod
    def _run(self) -> None:
        """Work until stopped."""

    def _work(self) -> None:
        if self._client is None:
            self._open_at_last()
        self._run()

    def _open(self) -> None:
        self._client = pulsar.Client(
            self._connection.require_service_url(),
            operation_timeout_seconds=30,
            io_threads=1,
            message_listener_threads=1,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(client_log(self._folder, self.name))),
            **security_options(self._connection),
        )
        self._attach(self._client)
        self._opened += 1

    def _open_at_last(self) -> None:
        """Connect with a new client object; tries until it works."""
        while not self._given_up.is_set():
            old, self._client = self._client, None
            threading.Thread(target=_close_quietly, args=(old,), daemon=True).start()
            try:
                return self._open()
            except pulsar.PulsarException as error:
                log.warning("%s cannot connect: %s", self.name, error)
                self._given_up.wait(RETRY_SECONDS)

    def _reopen(self, reason: str) -> None:
        """Replace the client object, which serves no more."""
        self.journal.write(Line.REOPENED, now(), reason)
        self._open_at_last()


def position(stored: pulsar.MessageId) -> str:
    """Position of a message: `partition:ledger:entry:batch index`, -1 for a plain topic and an unbatched message."""
    return f"{stored.partition()}:{stored.ledger_id()}:{stored.entry_id()}:{stored.batch_index()}"


def _close_quietly(client: pulsar.Client | None) -> None:
    try:
        if client:
            client.close()
    except pulsar.PulsarException as error:
        log.warning("closing a client: %s", error)


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


_RECEIVE_MS = 500


class ConsumerApplication(Application):
    """Receives and acknowledges for one subscription, and writes down every delivery before it acknowledges it."""

    def __init__(
        self,
        connection: ClusterConnection,
        topic: Topic,
        name: str,
        *,
        folder: Path,
        subscription: str,
        type: SubscriptionType,
    ) -> None:
        super().__init__(
            connection, topic, name, folder=folder, header={"subscription": subscription, "type": type.value}
        )
        self.subscription = subscription
        self._type = type

    def stop(self) -> None:
        """Stop receiving; a consumer has nothing to bring to an end."""
        super().stop()
        self._given_up.set()

    def _resume(self, lines: list[list[str]]) -> None:
        """Nothing: the broker delivers again what was not acknowledged."""

    def _attach(self, client: pulsar.Client) -> None:
        self._consumer = client.subscribe(
            self.topic.name,
            self.subscription,
            consumer_type=getattr(pulsar.ConsumerType, self._type.client_name),
            consumer_name=self.name,
            receiver_queue_size=500,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            consumer = self._consumer
            try:
                message = consumer.receive(_RECEIVE_MS)
                self._record(message)
                consumer.acknowledge(message)
            except pulsar.Timeout:
                continue
            except pulsar.AlreadyClosed as error:
                self._reopen(type(error).__name__)
            except pulsar.PulsarException as error:
                log.warning("%s: %s", self.name, error)
                self._stopping.wait(RETRY_SECONDS)

    def _record(self, message: pulsar.Message) -> None:
        try:
            numbered = decode(message.data())
        except ValueError as error:
            log.warning("%s received from another application: %s", self.name, error)
            return
        self.journal.write(Line.DELIVERY, *numbered.identity, now(), position(message.message_id()))
