"""Journals on disk: one append-only file per producer and consumer, and the counters of a running traffic.

A line is tab-separated, its first field says what it is. The first line describes who writes the file. Lines reach
the operating system at every `flush`, so that a `kill -9` of the writer loses at most what came after the last one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_sandbox.workload.counts import tally
from pulsar_sandbox.workload.live import Identity, SubscriptionType
from pulsar_sandbox.workload.records import Ack, ConsumerJournal, Delivery, ProducerJournal
from pulsar_sandbox.workload.tally import Tally

COUNTERS = "counters.json"
_SUFFIX = ".journal"


class Line(StrEnum):
    """What a line records; the fields that follow it in brackets."""

    ACK = "A"
    """[producer, key, number, sent, at, position]"""
    FAILED = "F"
    """[producer, key, number, at, result]"""
    UNANSWERED = "U"
    """[producer, key, number, at]"""
    DELIVERY = "D"
    """[producer, key, number, at, position]"""
    REOPENED = "R"
    """[at, reason]: the application replaced its client object"""
    RESTARTED = "X"
    """[at, reason]: its operator restarted it, since it did not go on by itself"""
    STOPPED = "S"
    """[at]: no new messages from here on"""
    END = "E"
    """[at]: closed as planned"""


class JournalWriter:
    """Appends lines to one journal; usable from several threads."""

    def __init__(self, folder: Path, name: str, header: JsonObject) -> None:
        self._file = (folder / f"{name}{_SUFFIX}").open("x", encoding="utf-8")
        self._lock = threading.Lock()
        self._file.write(json.dumps({"name": name, **header}) + "\n")

    def write(self, line: Line, *values: str | int) -> None:
        """Append a line; it is safe after the next flush."""
        text = "\t".join((line.value, *map(str, values))) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        """Flush and close; what is written afterwards is dropped."""
        with self._lock:
            self._file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a running traffic has counted so far, about twice a second.

    :param at: when, milliseconds since 1970.
    :param running: whether producers still write.
    :param received: messages of this traffic received per subscription, both topics together, each once.
    :param quiet_producers: producers without an answer for more than two seconds.
    :param silence: milliseconds since the last acknowledged publish of the most silent producer.
    :param longest_silence: the longest such time so far.
    """

    at: int
    running: bool
    published: int
    failed: int
    in_flight: int
    received: dict[str, int]
    quiet_producers: tuple[str, ...]
    silence: int
    longest_silence: int

    def write(self, folder: Path) -> None:
        """Replace the counters in `folder` at once, so that a reader never sees half of them."""
        draft = folder / f"{COUNTERS}.new"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(folder / COUNTERS)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The latest counters, None before the traffic runs."""
        try:
            found = json.loads((folder / COUNTERS).read_text())
        except FileNotFoundError:
            return None
        return cls(**{**found, "quiet_producers": tuple(found["quiet_producers"])})


def now() -> int:
    """The time in journals: microseconds since 1970."""
    return time.time_ns() // 1000


def read_tally(folder: Path) -> Tally:
    """Count the journals in `folder`; may be called while the traffic runs or after it was killed."""
    producers: list[ProducerJournal] = []
    consumers: list[ConsumerJournal] = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        header, lines = _read(path)
        if "subscription" in header:
            consumers.append(_consumer(header, lines))
        elif header:
            producers.append(_producer(header, lines))
    if not producers and not consumers:
        raise NotFound(f"{str(folder)!r} holds no journals: no traffic has started there.")
    return tally(producers, consumers)


def _read(path: Path) -> tuple[JsonObject, list[list[str]]]:
    """The header and the complete lines; a last line without its end is one that a kill cut off."""
    complete = path.read_text(encoding="utf-8").rpartition("\n")[0].split("\n")
    header: JsonObject = json.loads(complete[0]) if complete[0] else {}
    return header, [line.split("\t") for line in complete[1:]]


def _producer(header: JsonObject, lines: list[list[str]]) -> ProducerJournal:
    stops = [int(line[1]) for line in lines if line[0] == Line.STOPPED]
    return ProducerJournal(
        name=header["name"],
        topic=header["topic"],
        acks=tuple(Ack(_identity(line), int(line[4]), int(line[5]), line[6]) for line in lines if line[0] == Line.ACK),
        failures=tuple(_identities(lines, Line.FAILED)),
        unanswered=tuple(_identities(lines, Line.UNANSWERED)),
        reopened=sum(line[0] == Line.REOPENED for line in lines),
        restarted=sum(line[0] == Line.RESTARTED for line in lines),
        stopped=stops[0] if stops else None,
        finished=_finished(lines),
        last_event=_last_event(lines),
    )


def _consumer(header: JsonObject, lines: list[list[str]]) -> ConsumerJournal:
    return ConsumerJournal(
        name=header["name"],
        topic=header["topic"],
        subscription=header["subscription"],
        type=SubscriptionType(header["type"]),
        deliveries=tuple(
            Delivery(_identity(line), int(line[4]), line[5]) for line in lines if line[0] == Line.DELIVERY
        ),
        reopened=sum(line[0] == Line.REOPENED for line in lines),
        restarted=sum(line[0] == Line.RESTARTED for line in lines),
        finished=_finished(lines),
        last_event=_last_event(lines),
    )


def _identity(line: list[str]) -> Identity:
    return line[1], line[2], int(line[3])


def _identities(lines: list[list[str]], kind: Line) -> Iterator[Identity]:
    return (_identity(line) for line in lines if line[0] == kind)


def _finished(lines: list[list[str]]) -> bool:
    return bool(lines) and lines[-1][0] == Line.END


def _last_event(lines: list[list[str]]) -> int:
    at = {Line.ACK: 5, Line.FAILED: 4, Line.UNANSWERED: 4, Line.DELIVERY: 4}
    return int(lines[-1][at.get(Line(lines[-1][0]), 1)]) if lines else 0
