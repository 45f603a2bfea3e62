"""When an application had no connection, as the log of its client library says."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pulsar_sandbox.workload.traffic.connections import client_log, read_interruptions
from pulsar_sandbox.workload.traffic.records import Interruption

TOPIC = "persistent://acme/orders/audit"
DAY = datetime(2026, 11, 22, 15, 15)
CREATED = "ConsumerImpl:336 | [{topic}, mail, 0] Created consumer on broker [127.0.0.1:34512 -> 127.0.0.1:20524] "
LOST = "HandlerBase:186 | [{topic}, mail, 0] Schedule reconnection in 0.1 s"
PRODUCER = "ProducerImpl:218 | [{topic}, auditor-1-0] Created producer on broker [127.0.0.1:1 -> 127.0.0.1:2] "
OTHER = "HandlerBase:112 | [{topic}, mail, 0] Getting connection from pool"


def at(seconds: float) -> int:
    """Microseconds since 1970 of a time in the log."""
    return int((DAY.timestamp() + seconds) * 1_000_000)


def log(folder: Path, *lines: tuple[int, str], topic: str = TOPIC) -> Path:
    """A log with these lines, by seconds."""
    file = client_log(folder, "mail-1")
    text = [f"2026-11-22 15:15:{second:02}.000 INFO  [14050] {line.format(topic=topic)}" for second, line in lines]
    file.write_text("\n".join(text) + "\n")
    return file


def test_a_first_connection_has_no_beginning(tmp_path: Path) -> None:
    file = log(tmp_path, (0, OTHER), (1, CREATED))
    assert read_interruptions(file, {}) == (Interruption(TOPIC, None, at(1)),)


def test_an_interruption_lasts_from_the_first_loss_to_the_next_connection(tmp_path: Path) -> None:
    file = log(tmp_path, (1, CREATED), (5, LOST), (6, LOST), (7, CREATED))
    assert read_interruptions(file, {})[1:] == (Interruption(TOPIC, at(5), at(7)),)


def test_a_connection_that_does_not_return_is_an_endless_interruption(tmp_path: Path) -> None:
    file = log(tmp_path, (1, CREATED), (5, LOST))
    assert read_interruptions(file, {})[1:] == (Interruption(TOPIC, at(5), None),)


def test_a_restart_interrupts_although_the_library_does_not_say_so(tmp_path: Path) -> None:
    file = log(tmp_path, (1, CREATED), (7, CREATED))
    assert read_interruptions(file, {at(5): True})[1:] == (Interruption(TOPIC, at(5), at(7), restarted=True),)


def test_producers_and_partitions_are_told_apart_by_their_names(tmp_path: Path) -> None:
    file = log(tmp_path, (1, PRODUCER), topic=f"{TOPIC}-partition-3")
    assert [interruption.partition for interruption in read_interruptions(file, {})] == [f"{TOPIC}-partition-3"]


def test_an_application_without_a_log_has_no_known_interruption(tmp_path: Path) -> None:
    assert read_interruptions(client_log(tmp_path, "mail-1"), {}) == ()
