"""What every application of the traffic is: a client object of its own, a thread and a journal.

A shared client may dead-lock for ever when a broker redirects it, and takes all that it serves with it.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass

import pulsar

from pulsar_sandbox.workload.journal import JournalWriter, Line, now
from pulsar_sandbox.workload.schemas import SchemaKind

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as an application knows it; `schema` of the payloads, None for plain bytes."""

    name: str
    schema: SchemaKind | None = None
    schema_versions: int = 0


class Application(ABC):
    """One client object, one thread, one journal."""

    def __init__(self, service_url: str, topic: Topic, name: str, journal: JournalWriter) -> None:
        self.topic = topic
        self.name = name
        self.journal = journal
        self._service_url = service_url
        self._client: pulsar.Client | None = None
        self._opened = 0
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Connect, then work in a thread; raises what the client raises when it cannot connect."""
        self._open()
        self._thread.start()

    def restart(self, reason: str) -> None:
        """Work with a new client object in a new thread, whatever the old ones hang in; returns at once."""
        self.journal.write(Line.RESTARTED, now(), reason)
        self._thread = threading.Thread(target=self._run_again, args=(reason,), name=self.name, daemon=True)
        self._abandon()
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to come to its end."""
        self._stopping.set()

    def finish(self, seconds: float) -> None:
        """Wait for the thread, then close; gives up on a client that hangs, the journal then lacks its end."""
        self._thread.join(seconds)
        self._given_up.set()
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
        if not self._thread.is_alive() and not closing.is_alive():
            self.journal.write(Line.END, now())
        self.journal.close()

    @abstractmethod
    def _abandon(self) -> None:
        """Take back what only the old client object could still bring to an end."""

    @abstractmethod
    def _attach(self, client: pulsar.Client) -> None:
        """Create the producer or consumer."""

    @abstractmethod
    def _run(self) -> None:
        """Work until stopped."""

    @property
    def _replaced(self) -> bool:
        """Whether the asking thread is one that a restart has given up."""
        return threading.current_thread() is not self._thread

    def _run_again(self, reason: str) -> None:
        self._reopen(reason)
        self._run()

    def _open(self) -> None:
        self._client = pulsar.Client(
            self._service_url,
            operation_timeout_seconds=30,
            io_threads=1,
            message_listener_threads=1,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn),
        )
        self._attach(self._client)
        self._opened += 1

    def _reopen(self, reason: str) -> None:
        """Replace the client object, as a restart of the application would; tries until it works."""
        self.journal.write(Line.REOPENED, now(), reason)
        while not self._given_up.is_set():
            old, self._client = self._client, None
            threading.Thread(target=_close_quietly, args=(old,), daemon=True).start()
            try:
                return self._open()
            except pulsar.PulsarException as error:
                log.warning("%s cannot connect: %s", self.name, error)
                self._given_up.wait(RETRY_SECONDS)

    def _close(self) -> None:
        _close_quietly(self._client)


def position(stored: pulsar.MessageId) -> str:
    """Where a message lies: `partition:ledger:entry:batch index`, -1 for a plain topic and an unbatched message."""
    return f"{stored.partition()}:{stored.ledger_id()}:{stored.entry_id()}:{stored.batch_index()}"


def _close_quietly(client: pulsar.Client | None) -> None:
    try:
        if client:
            client.close()
    except pulsar.PulsarException as error:
        log.warning("closing a client: %s", error)
