"""Limits of a reading: bytes per second, and what a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.checkpoints import Checkpoints, Recorder
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import ALL, DigestRow, RangeDigester, Sums, TopicDigest
from pulsar_fleet.messages.engines.base import Throttle, Throttled
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.protocol.stored_entry import StoredEntry
from pulsar_fleet.messages.ranges import LOOKBACK_ENTRIES, EngineName, Range, TopicBounds, cut


class Time:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50))
def test_a_throttle_never_lets_more_through_than_its_rate_and_one_burst(sizes: list[int]) -> None:
    time = Time()
    throttle = Throttle(1000, clock=lambda: time.now, sleep=time.sleep)
    for size in sizes:
        throttle.spend(size)
    assert sum(sizes) <= 1000 * time.now + 250 + 1e-6


def test_a_throttle_does_not_hold_up_who_stays_below_its_rate() -> None:
    time = Time()
    throttle = Throttle(1000, clock=lambda: time.now, sleep=time.sleep)
    for _ in range(10):
        throttle.spend(100)
        before = time.now
        time.now += 0.1
    assert time.now == pytest.approx(before + 0.1)


class Stored:
    """An engine that gives what it was given."""

    def __init__(self, *lists: list[StoredEntry]) -> None:
        self._lists = lists

    def read(self, part: Range) -> Iterator[list[StoredEntry]]:
        yield from self._lists


def test_whole_entries_are_read_as_slowly_as_messages() -> None:
    time = Time()
    entries = [StoredEntry(5, number, 0, 7, 500, b"0" * 16) for number in range(4)]
    throttled = Throttled(Stored(entries[:2], entries[2:]), Throttle(1000, clock=lambda: time.now, sleep=time.sleep))
    part = Range(0, 0, "t", Position(5, 0), Position(5, 3), 4, True, engine=EngineName.ENTRY)
    assert list(throttled.read(part)) == [entries[:2], entries[2:]]
    assert time.now == pytest.approx(1.75)


@pytest.fixture(params=["file", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> UPath:
    """An artefact store on disk, and one that only universal-pathlib reaches."""
    return UPath(tmp_path) if request.param == "file" else UPath(f"memory://{tmp_path.name}")


ROWS = {
    (3, 7): [DigestRow(3, 7, 5, Sums(2, (1, 2, 3, 4))), DigestRow(3, 7, ALL, Sums(2, (1, 2, 3, 4)), (1 << 64) - 1)],
    (3, 8): [DigestRow(3, 8, ALL)],
}


def test_finished_ranges_are_found_again_by_the_same_request_alone(folder: UPath) -> None:
    result = str(folder / "result.json")
    Checkpoints.next_to(result, b"request").write(Side.SOURCE, ROWS)
    assert Checkpoints.next_to(result, b"request").load(Side.SOURCE) == ROWS
    assert Checkpoints.next_to(result, b"request").load(Side.TARGET) == {}
    assert Checkpoints.next_to(result, b"another").load(Side.SOURCE) == {}


def test_a_task_finds_the_files_that_an_earlier_try_of_it_wrote(folder: UPath) -> None:
    kept = Checkpoints.next_to(str(folder / "result.json"), b"request")
    kept.write(Side.SOURCE, ROWS)
    assert kept.load(Side.SOURCE, [(3, 6), (3, 7)]) == ROWS
    assert kept.load(Side.SOURCE, [(4, 7)]) == {}


def test_checkpoints_are_gone_once_they_are_not_needed(folder: UPath) -> None:
    kept = Checkpoints.next_to(str(folder / "result.json"), b"request")
    kept.write(Side.SOURCE, ROWS)
    kept.remove()
    kept.remove()
    assert kept.load(Side.SOURCE) == {}


def test_a_range_that_could_not_be_read_is_read_again_by_the_next_try(folder: UPath) -> None:
    kept = Checkpoints.next_to(str(folder / "result.json"), b"request")
    recorder = Recorder(kept, Side.SOURCE)
    for index, problem in enumerate(("", "the broker did not answer")):
        part = Range(3, index, "t", Position(5, 0), Position(5, 3), 4, True)
        recorder.add(part, [DigestRow(3, index, ALL, problem=problem)])
    recorder.flush()
    assert kept.load(Side.SOURCE).keys() == {(3, 0)}


def test_a_range_without_messages_says_that_it_was_read() -> None:
    (row,) = RangeDigester().rows(1, 2)
    assert (row.bucket, row.sums.count) == (ALL, 0)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=20), st.integers(0, 20))
def test_a_proof_that_continues_another_is_that_of_both_parts_in_one(digests: list[bytes], at: int) -> None:
    whole, first, second = (_summed(part) for part in (digests, digests[:at], digests[at:]))
    assert second.following(first.to_json()).to_json() == whole.to_json()


def _summed(digests: list[bytes]) -> TopicDigest:
    digester = RangeDigester()
    if digests:
        digester.add(digests)
    return TopicDigest.fold(digester.rows(0, 0))


def test_a_range_may_look_back_as_far_as_what_is_compared_reaches() -> None:
    ranges = list(
        cut(TopicBounds("t", Ledgers(((5, 9000),)), 100, 9000), pair=0, publish_time=True, entries_per_range=800)
    )
    assert [part.lookback for part in ranges[:3]] == [None, Position(5, 100), Position(5, 1700 - LOOKBACK_ENTRIES)]
    assert [part.from_lookback().tolerant for part in ranges[:3]] == [True, True, False]


def test_pieces_of_a_topic_are_cut_each_by_itself() -> None:
    pieces = TopicBounds("t", Ledgers(((5, 100),)), 0, 100, spans=((0, 10), (50, 65)))
    ranges = list(cut(pieces, pair=0, publish_time=True, entries_per_range=10))
    assert [(part.index, str(part.first), str(part.last)) for part in ranges] == [
        (0, "5:0", "5:9"),
        (1, "5:50", "5:59"),
        (2, "5:60", "5:64"),
    ]
    assert len(pieces) == 25
    assert TopicBounds.from_json(pieces.to_json()) == pieces
