"""Journals on disk: one append-only file per producer and consumer, and the counters of a running traffic.

A line is tab-separated, its first field says what it is. The first line describes who writes the file. Each line
reaches the operating system at once: an application writes down what it is about to send, and what it has received
before it acknowledges that, so a `kill -9` cannot take away what a broker counts as done.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_sandbox.workload.live import Identity, SubscriptionType
from pulsar_sandbox.workload.traffic.connections import client_log, read_interruptions
from pulsar_sandbox.workload.traffic.counts import tally
from pulsar_sandbox.workload.traffic.records import Ack, ConsumerJournal, Delivery, Interruption, ProducerJournal
from pulsar_sandbox.workload.traffic.tally import Tally

COUNTERS = "counters.json"
_SUFFIX = ".journal"


class Line(StrEnum):
    """What a line records; the fields that follow it in brackets."""

    SENT = "P"
    """[producer, key, number, at]: written before each try to publish the message"""
    ACK = "A"
    """[producer, key, number, sent, at, position]"""
    FAILED = "F"
    """[producer, key, number, at, result]"""
    DELIVERY = "D"
    """[producer, key, number, at, position]"""
    REOPENED = "R"
    """[at, reason]: the application replaced its client object"""
    RESTARTED = "X"
    """[at, reason]: its operator ended the process, since it did not go on by itself; what follows, a new one wrote"""
    STOPPED = "S"
    """[at]: no new messages from here on"""
    END = "E"
    """[at]: its process has ended, and nothing can follow"""


class JournalWriter:
    """Appends lines to one journal; usable from several threads of the one process that writes it at a time.

    A journal that an earlier process has left is continued.
    """

    def __init__(self, folder: Path, name: str, header: JsonObject) -> None:
        path = journal_file(folder, name)
        continued = path.exists()
        if continued:
            _cut_incomplete_line(path)
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._lock = threading.Lock()
        if not continued:
            self._file.write(json.dumps({"name": name, **header}) + "\n")

    def write(self, line: Line, *values: str | int) -> None:
        """Append a line and hand it to the operating system."""
        text = "\t".join((line.value, *map(str, values))) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)

    def close(self) -> None:
        """Close it; what is written afterwards is dropped."""
        with self._lock:
            self._file.close()


class JournalReader:
    """Reads a journal while another process appends to it."""

    def __init__(self, path: Path) -> None:
        self.header: JsonObject = {}
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[list[str]]:
        """The complete lines since the last call; none before the file exists."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                complete, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(complete) + len(end)
        lines = complete.decode().splitlines()
        if lines and not self.header:
            self.header = json.loads(lines.pop(0))
        return [line.split("\t") for line in lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a running traffic has counted so far, about twice a second.

    :param at: when, milliseconds since 1970.
    :param running: whether producers still write.
    :param received: messages of this traffic received per subscription, both topics together, each once.
    :param stalled_producers: producers without an answer for more than two seconds.
    :param publish_pause: milliseconds since the last acknowledged publish of the producer that waits longest.
    :param longest_publish_pause: the longest publish pause so far.
    """

    at: int
    running: bool
    published: int
    failed: int
    in_flight: int
    received: dict[str, int]
    stalled_producers: tuple[str, ...]
    publish_pause: int
    longest_publish_pause: int

    def write(self, folder: Path) -> None:
        """Replace the counters in `folder` at once, so that a reader never sees half of them."""
        draft = folder / f"{COUNTERS}.new"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(folder / COUNTERS)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The latest counters, None before the traffic runs."""
        try:
            document = json.loads((folder / COUNTERS).read_text())
        except FileNotFoundError:
            return None
        return cls(**{**document, "stalled_producers": tuple(document["stalled_producers"])})


def now() -> int:
    """The time in journals: microseconds since 1970."""
    return time.time_ns() // 1000


def journal_file(folder: Path, name: str) -> Path:
    """Where the application of that name writes its journal."""
    return folder / f"{name}{_SUFFIX}"


def identity_of(line: Sequence[str]) -> Identity:
    """The message that a line is about."""
    return line[1], line[2], int(line[3])


def read_tally(folder: Path) -> Tally:
    """Count the journals in `folder`; may be called while the traffic runs or after it was killed."""
    producers: list[ProducerJournal] = []
    consumers: list[ConsumerJournal] = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        reader = JournalReader(path)
        lines = reader.new_lines()
        connections = read_interruptions(client_log(folder, path.stem), _replacements(lines))
        if "subscription" in reader.header:
            consumers.append(_consumer(reader.header, lines, connections))
        elif reader.header:
            producers.append(_producer(reader.header, lines, connections))
    if not producers and not consumers:
        raise NotFound(f"{str(folder)!r} has no journals: no traffic has started there.")
    return tally(producers, consumers)


def _producer(header: JsonObject, lines: list[list[str]], interruptions: tuple[Interruption, ...]) -> ProducerJournal:
    acks = tuple(Ack(identity_of(line), int(line[4]), int(line[5]), line[6]) for line in lines if line[0] == Line.ACK)
    answered = {ack.identity for ack in acks}
    sent = dict.fromkeys(_identities(lines, Line.SENT))
    return ProducerJournal(
        name=header["name"],
        topic=header["topic"],
        acks=acks,
        failures=tuple(_identities(lines, Line.FAILED)),
        unanswered=tuple(identity for identity in sent if identity not in answered),
        reopened=sum(line[0] == Line.REOPENED for line in lines),
        restarted=sum(line[0] == Line.RESTARTED for line in lines),
        interruptions=interruptions,
        stopped=_stopped(lines),
        finished=_finished(lines),
        last_event=_last_event(lines),
    )


def _consumer(header: JsonObject, lines: list[list[str]], interruptions: tuple[Interruption, ...]) -> ConsumerJournal:
    return ConsumerJournal(
        name=header["name"],
        topic=header["topic"],
        subscription=header["subscription"],
        type=SubscriptionType(header["type"]),
        deliveries=tuple(
            Delivery(identity_of(line), int(line[4]), line[5]) for line in lines if line[0] == Line.DELIVERY
        ),
        reopened=sum(line[0] == Line.REOPENED for line in lines),
        restarted=sum(line[0] == Line.RESTARTED for line in lines),
        interruptions=interruptions,
        finished=_finished(lines),
        last_event=_last_event(lines),
    )


def _cut_incomplete_line(path: Path) -> None:
    """A kill may have cut off the last line, and what follows must not be glued to it."""
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)


def _replacements(lines: list[list[str]]) -> dict[int, bool]:
    """When a client object or its process was replaced, and whether it was the process.

    No line records when a process ended or began to hang, so its last line is the last time of its connection.
    """
    replaced = {int(line[1]): False for line in lines if line[0] == Line.REOPENED}
    for number, line in enumerate(lines):
        if line[0] == Line.RESTARTED:
            replaced[min(int(line[1]), _last_event(lines[:number]) or int(line[1]))] = True
    return replaced


def _identities(lines: list[list[str]], kind: Line) -> Iterator[Identity]:
    return (identity_of(line) for line in lines if line[0] == kind)


def _stopped(lines: list[list[str]]) -> int | None:
    """A process that is ended for a restart stops writing too: only a stop that no restart follows counts."""
    last = next((line for line in reversed(lines) if line[0] in (Line.STOPPED, Line.RESTARTED)), None)
    return int(last[1]) if last and last[0] == Line.STOPPED else None


def _finished(lines: list[list[str]]) -> bool:
    return bool(lines) and lines[-1][0] == Line.END


def _last_event(lines: list[list[str]]) -> int:
    at = {Line.SENT: 4, Line.ACK: 5, Line.FAILED: 4, Line.DELIVERY: 4}
    return int(lines[-1][at.get(Line(lines[-1][0]), 1)]) if lines else 0
