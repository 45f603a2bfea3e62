"""The processes of the applications, as their operator sees them: what the journals say, and a way to restart them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue

import pulsar

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_sandbox.workload.live import Identity
from pulsar_sandbox.workload.traffic.application import CLOSE_SECONDS, Application, Restart, Topic
from pulsar_sandbox.workload.traffic.journal import JournalReader, JournalWriter, Line, identity_of, journal_file, now

log = logging.getLogger(__name__)

# A copy of the operator's process: an interpreter of its own would cost half a second of CPU for each application.
# The operator has one thread and no client, so nothing that a copy lacks is in use.
_FORK = multiprocessing.get_context("fork")
_OWNER_CHECK_SECONDS = 0.5
_POLL_SECONDS = 0.05
TERMINATE_SECONDS = 1.0
"""How long an application may take to end in good order when it is restarted; then it is killed."""


class ApplicationProcess(ABC):
    """One application in a process of its own, and what its journal has said so far.

    :param build: makes the application, in its process.
    :param seconds: how long the application may take to come to its end when it is stopped.
    """

    def __init__(
        self, build: Callable[[], Application], topic: Topic, name: str, *, folder: Path, seconds: float
    ) -> None:
        self.topic = topic
        self.name = name
        self._build = build
        self._folder = folder
        self._seconds = seconds
        self._journal = JournalReader(journal_file(folder, name))
        self._restart: Restart | None = None
        self._deadline = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether the process ended unexpectedly."""
        return self._restart is None and not self._process.is_alive()

    def start(self) -> None:
        """Start the process; `wait_connected` waits."""
        self._ready = self._spawn(None)

    def wait_connected(self, seconds: float) -> None:
        """Return when it is connected. `PreconditionFailed` with the client's words if it cannot connect."""
        try:
            answer = self._ready.recv() if self._ready.poll(seconds) else f"no answer within {seconds:g} s"
        except EOFError:
            answer = "its process ended"
        if answer:
            raise PreconditionFailed(f"Application {self.name} cannot connect: {answer}")

    def restart(self, reason: str) -> None:
        """End the process, by force if it does not end by itself, and start another; `tick` brings it to its end."""
        if self._restart is None:
            self._restart = Restart(reason, now())
            self._end_within(TERMINATE_SECONDS)

    def tick(self) -> None:
        """Read what is new in the journal, and go on with a restart."""
        for line in self._journal.new_lines():
            self._take(line)
        if self._restart and not self._process.is_alive():
            self._spawn(self._restart).close()
            self._restart = None
        elif self._restart and time.monotonic() > self._deadline:
            self._process.kill()

    def stop(self) -> None:
        """Ask it to come to its end; a restart that is under way is brought to its end first."""
        while self._restart:
            self.tick()
            time.sleep(_POLL_SECONDS)
        self._end_within(self._seconds + CLOSE_SECONDS)

    def finish(self) -> None:
        """Wait for its end, which is forced in the end; the journal is complete then."""
        self._process.join(max(0.0, self._deadline - time.monotonic()))
        if self._process.is_alive():
            log.warning("application %s hangs and is killed", self.name)
            self._process.kill()
            self._process.join()
        journal = JournalWriter(self._folder, self.name, {})
        journal.write(Line.END, now())
        journal.close()
        self.tick()

    @abstractmethod
    def _take(self, line: list[str]) -> None:
        """A new line of the journal."""

    def _end_within(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._process.terminate()

    def _spawn(self, restart: Restart | None) -> Connection:
        receiver, sender = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(
            target=_serve, args=(self._build, sender, restart, os.getpid(), self._seconds), name=self.name, daemon=True
        )
        # The new process inherits the mask: it gets a SIGTERM that comes at once when it can answer it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        sender.close()
        return receiver


class WritingProcess(ApplicationProcess):
    """A producer application: what it has sent and what was answered."""

    def __init__(
        self, build: Callable[[], Application], topic: Topic, name: str, *, folder: Path, seconds: float
    ) -> None:
        super().__init__(build, topic, name, folder=folder, seconds=seconds)
        self.acked: list[tuple[Identity, int]] = []
        self.failures = 0
        self.last_ack = now()
        self.longest_publish_pause = 0
        self._unanswered: set[Identity] = set()

    @property
    def published(self) -> int:
        """Messages that a broker acknowledged."""
        return len(self.acked)

    @property
    def in_flight(self) -> int:
        """Messages without an answer."""
        return len(self._unanswered)

    def _take(self, line: list[str]) -> None:
        if line[0] == Line.SENT:
            self._unanswered.add(identity_of(line))
        elif line[0] == Line.FAILED:
            self.failures += 1
            self._unanswered.discard(identity_of(line))
        elif line[0] == Line.ACK:
            at = int(line[5])
            self._unanswered.discard(identity_of(line))
            self.longest_publish_pause = max(self.longest_publish_pause, (at - self.last_ack) // 1000)
            self.last_ack = at
            self.acked.append((identity_of(line), at))


class ReadingProcess(ApplicationProcess):
    """A consumer application: what it has received.

    :param received: shared by the consumers of one subscription.
    """

    def __init__(
        self,
        build: Callable[[], Application],
        topic: Topic,
        name: str,
        *,
        folder: Path,
        seconds: float,
        received: Received,
    ) -> None:
        super().__init__(build, topic, name, folder=folder, seconds=seconds)
        self.last_delivery = now()
        self._received = received

    def _take(self, line: list[str]) -> None:
        if line[0] == Line.DELIVERY:
            self._received.add(identity_of(line))
            self.last_delivery = int(line[4])


def _serve(
    build: Callable[[], Application], ready: Connection, restart: Restart | None, owner: int, seconds: float
) -> None:
    """Run an application's process until SIGTERM, or until its owner ends."""
    ending: SimpleQueue[int] = SimpleQueue()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: ending.put(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    application = build()
    try:
        application.start(restart)
        answer = None
    except pulsar.PulsarException as error:
        answer = f"{type(error).__name__}: {error}"
    if restart is None:
        ready.send(answer)
    while answer is None and os.getppid() == owner:
        try:
            ending.get(timeout=_OWNER_CHECK_SECONDS)
        except Empty:
            continue
        application.stop()
        application.finish(seconds)
        break
    # A client library that hangs would keep the interpreter from ending.
    os._exit(0)


class Received:
    """The messages of some producers that one subscription has received, each once."""

    def __init__(self, producers: Iterable[str]) -> None:
        self._producers = frozenset(producers)
        self._messages: set[Identity] = set()
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def oldest_missing(self, acked: Iterable[Sequence[tuple[Identity, int]]]) -> int | None:
        """When the oldest message was acknowledged to its producer that has not arrived here; None if all have.

        :param acked: for each producer, its messages with that time, in the order of the acknowledgements.
        """
        oldest = []
        for number, messages in enumerate(acked):
            place = self._places.get(number, 0)
            while place < len(messages) and messages[place][0] in self._messages:
                place += 1
            self._places[number] = place
            if place < len(messages):
                oldest.append(messages[place][1])
        return min(oldest, default=None)

    def add(self, message: Identity) -> None:
        """Count the message, unless it was counted before or is of another producer."""
        if message[0] in self._producers:
            self._messages.add(message)
