"""What every application of the traffic is: a client object, a thread and a journal, in a process of its own."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import security_options
from pulsar_sandbox.workload.schemas import SchemaKind
from pulsar_sandbox.workload.traffic.connections import client_log
from pulsar_sandbox.workload.traffic.journal import JournalReader, JournalWriter, Line, journal_file, now

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
