"""What is read back from journals, whole and cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import NotFound
from pulsar_sandbox.workload.journal import Counters, JournalWriter, Line, read_tally

TOPIC = "persistent://acme/orders/audit"


def write_run(folder: Path, *, ended: bool) -> None:
    """One producer and one consumer, two messages."""
    producer = JournalWriter(folder, "p", {"topic": TOPIC})
    consumer = JournalWriter(folder, "c", {"topic": TOPIC, "subscription": "mail", "type": "Exclusive"})
    producer.write(Line.FAILED, "p", "k", 0, 900_000, "Timeout")
    for number in (0, 1):
        producer.write(Line.ACK, "p", "k", number, 1_000_000, 1_005_000 + number, f"-1:3:{number}:-1")
        consumer.write(Line.DELIVERY, "p", "k", number, 1_006_000 + number, f"-1:3:{number}:-1")
    if ended:
        producer.write(Line.STOPPED, 2_000_000)
        producer.write(Line.END, 2_000_000)
        consumer.write(Line.END, 2_100_000)
    producer.close()
    consumer.close()


def test_a_tally_is_read_from_the_journals(tmp_path: Path) -> None:
    write_run(tmp_path, ended=True)
    found = read_tally(tmp_path)
    assert (found.finished, found.published, found.failed, found.received, found.lost) == (True, 2, 1, 2, 0)
    assert (found.began, found.ended) == (1005, 2100)


def test_journals_without_their_ends_are_counted_as_unfinished(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    found = read_tally(tmp_path)
    assert (found.finished, found.published, found.lost) == (False, 2, None)


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    path = tmp_path / "c.journal"
    path.write_text(path.read_text()[:-9])
    assert read_tally(tmp_path).unreceived == 1


def test_unflushed_lines_reach_the_file_at_the_next_flush(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "p", {"topic": TOPIC})
    journal.write(Line.ACK, "p", "k", 0, 1, 2, "-1:3:0:-1")
    journal.flush()
    found = read_tally(tmp_path).published
    journal.close()
    assert found == 1


def test_a_folder_without_journals_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no journals"):
        read_tally(tmp_path)


def test_counters_survive_the_way_through_their_file(tmp_path: Path) -> None:
    counters = Counters(
        at=1,
        running=True,
        published=2,
        failed=0,
        in_flight=1,
        received={"mail": 2},
        quiet_producers=("p",),
        silence=3,
        longest_silence=4,
    )
    counters.write(tmp_path)
    assert Counters.read(tmp_path) == counters


def test_there_are_no_counters_before_the_traffic_runs(tmp_path: Path) -> None:
    assert Counters.read(tmp_path) is None
