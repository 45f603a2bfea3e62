"""What is read back from journals, whole and cut off."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import NotFound
from pulsar_sandbox.workload.traffic.connections import client_log
from pulsar_sandbox.workload.traffic.journal import Counters, JournalReader, JournalWriter, Line, read_tally
from pulsar_sandbox.workload.traffic.tally import Duplicates

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
    tally = read_tally(tmp_path)
    assert (tally.finished, tally.published, tally.failed, tally.received, tally.lost) == (True, 2, 1, 2, 0)
    assert (tally.began, tally.ended) == (1005, 2100)


def test_journals_without_their_ends_are_counted_as_unfinished(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    tally = read_tally(tmp_path)
    assert (tally.finished, tally.published, tally.lost) == (False, 2, None)


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    path = tmp_path / "c.journal"
    path.write_text(path.read_text()[:-9])
    assert read_tally(tmp_path).unreceived == 1


def test_each_line_reaches_the_file_at_once(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "p", {"topic": TOPIC})
    journal.write(Line.ACK, "p", "k", 0, 1, 2, "-1:3:0:-1")
    published = read_tally(tmp_path).published
    journal.close()
    assert published == 1


def test_a_restarted_process_goes_on_behind_the_last_complete_line(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    path = tmp_path / "p.journal"
    path.write_text(path.read_text()[:-9])
    journal = JournalWriter(tmp_path, "p", {"topic": TOPIC})
    journal.write(Line.RESTARTED, 1_400_000, "no answer")
    journal.write(Line.ACK, "p", "k", 1, 1_000_000, 1_500_000, "-1:3:1:-1")
    journal.close()
    result = read_tally(tmp_path)
    assert (result.published, result.unreceived, result.restarted) == (2, 0, ("p",))


def test_a_message_that_was_sent_and_never_acknowledged_is_unanswered(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    journal = JournalWriter(tmp_path, "p", {"topic": TOPIC})
    for number in (0, 1, 2):
        journal.write(Line.SENT, "p", "k", number, 1_000_000)
    journal.close()
    assert read_tally(tmp_path).producers[0].unanswered == 1


def test_a_producer_that_a_restart_ended_has_not_stopped(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "p", {"topic": TOPIC})
    journal.write(Line.ACK, "p", "k", 0, 1_000_000, 1_005_000, "-1:3:0:-1")
    journal.write(Line.STOPPED, 2_000_000)
    journal.write(Line.RESTARTED, 2_000_000, "no answer")
    journal.write(Line.ACK, "p", "k", 1, 1_000_000, 9_005_000, "-1:3:1:-1")
    journal.close()
    gap = read_tally(tmp_path).producers[0].gap
    assert gap is not None
    assert gap.milliseconds == 8_000


def test_a_reader_gets_each_complete_line_once(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "p.journal")
    assert reader.new_lines() == []
    journal = JournalWriter(tmp_path, "p", {"topic": TOPIC})
    journal.write(Line.STOPPED, 1)
    journal.close()
    with (tmp_path / "p.journal").open("a") as file:
        file.write("E\t")
    assert [reader.new_lines(), reader.new_lines()] == [[["S", "1"]], []]
    with (tmp_path / "p.journal").open("a") as file:
        file.write("2\n")
    assert (reader.header["topic"], reader.new_lines()) == (TOPIC, [["E", "2"]])


def test_a_folder_without_journals_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no journals"):
        read_tally(tmp_path)


def test_counters_survive_the_way_through_their_file(tmp_path: Path) -> None:
    counters = Counters(
        at=1,
        running=True,
        published=2,
        failed=0,
        in_flight=1,
        received={"mail": 2},
        stalled_producers=("p",),
        publish_pause=3,
        longest_publish_pause=4,
    )
    counters.write(tmp_path)
    assert Counters.read(tmp_path) == counters


def test_there_are_no_counters_before_the_traffic_runs(tmp_path: Path) -> None:
    assert Counters.read(tmp_path) is None


def test_a_redelivery_after_a_process_died_counts_from_its_last_line(tmp_path: Path) -> None:
    write_run(tmp_path, ended=False)
    died = JournalWriter(tmp_path, "c", {})
    died.write(Line.RESTARTED, 3_000_000, "its process ended")
    died.close()
    standby = JournalWriter(tmp_path, "d", {"topic": TOPIC, "subscription": "mail", "type": "Exclusive"})
    standby.write(Line.DELIVERY, "p", "k", 1, 1_500_000, "-1:3:1:-1")
    standby.close()
    stamp = datetime.fromtimestamp(0.5).strftime("%Y-%m-%d %H:%M:%S.000")
    created = f"{stamp} INFO  [1] ConsumerImpl:336 | [{TOPIC}, mail, 0] Created consumer on broker [a -> b] \n"
    client_log(tmp_path, "c").write_text(created)
    assert read_tally(tmp_path).subscriptions[0].duplicates == Duplicates(restarted=1)
