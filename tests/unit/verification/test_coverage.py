"""How much is compared: windows, and samples that keep their promise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.verification.coverage import Coverage, Mode, Sample, coverage_of

PARAMS = {
    "mode": "full",
    "compacted": "auto",
    "window_from": None,
    "window_to": None,
    "sample_one_in": 1000,
    "sample_probability": 0.9,
    "sample_seed": 7,
}


def read(spans: tuple[tuple[int, int], ...]) -> set[int]:
    return {entry for begin, end in spans for entry in range(begin, end)}


def test_a_sample_finds_scattered_differences_as_often_as_it_says() -> None:
    chance = random.Random(5)
    hits = 0
    for seed in range(400):
        sample = Sample(one_in=1000, probability=0.9, seed=seed)
        chosen = read(sample.choose("t", 0, 50_000))
        hits += any(chance.randrange(50_000) in chosen for _ in range(50))
    assert 0.85 <= hits / 400 <= 0.97


def test_a_sample_reads_a_small_part_of_a_large_topic() -> None:
    assert Sample(one_in=10_000, probability=0.99).entries(10_000_000) == 45_946


def test_a_small_topic_is_read_whole() -> None:
    assert Sample(one_in=10_000, probability=0.99).choose("t", 0, 900) == ()


@given(st.integers(0, 50), st.integers(1000, 30_000), st.integers(0, 5))
def test_pieces_ascend_within_the_bounds_and_no_entry_is_read_twice(begin: int, size: int, seed: int) -> None:
    sample = Sample(one_in=100, probability=0.9, seed=seed)
    spans = sample.choose("t", begin, begin + size)
    assert list(spans) == sorted(spans)
    assert sum(end - first for first, end in spans) == len(read(spans)) >= (sample.entries(size) if spans else 0)
    assert all(begin <= first < end <= begin + size for first, end in spans)


def test_every_entry_is_as_likely_to_be_read_as_any_other() -> None:
    counted = [0] * 4
    for seed in range(400):
        for begin, end in Sample(one_in=100, probability=0.9, seed=seed).choose("t", 0, 4000):
            counted[begin // 1000] += end - begin
    assert max(counted) < 1.3 * min(counted)


def test_the_same_seed_chooses_the_same_pieces_and_another_topic_others() -> None:
    sample = Sample(one_in=1000, probability=0.9)
    assert sample.choose("a", 0, 50_000) == sample.choose("a", 0, 50_000) != sample.choose("b", 0, 50_000)


def test_an_equality_says_what_it_is_restricted_to() -> None:
    sample_pair = coverage_of({**PARAMS, "mode": "sample"})
    assert sample_pair.restriction == (
        "in the sample: it detects differences in 1 of 1,000 messages of a topic with probability 0.9"
    )
    assert coverage_of(PARAMS).restriction == ""


def test_a_window_is_given_by_two_times() -> None:
    params = {
        **PARAMS,
        "mode": "window",
        "window_from": "2026-11-21T08:00:00Z",
        "window_to": "2026-11-21T09:00:00+01:00",
    }
    with pytest.raises(InvalidRequest, match="is empty"):
        coverage_of(params)
    later = coverage_of({**params, "window_to": "2026-11-21T08:00:01Z"})
    assert later.window == (1_795_248_000_000, 1_795_248_001_000)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mode": "window"}, "is not a valid time"),
        ({"mode": "window", "window_from": "yesterday", "window_to": "2026-11-21"}, "'yesterday'"),
        ({"window_from": "2026-11-21"}, "use mode 'window'"),
    ],
)
def test_what_cannot_be_meant_is_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        coverage_of({**PARAMS, **changed})


@pytest.mark.parametrize("mode", [mode.value for mode in Mode if mode is not Mode.WINDOW])
def test_coverages_survive_json(mode: str) -> None:
    coverage = coverage_of({**PARAMS, "mode": mode})
    assert Coverage.from_json(coverage.to_json()) == coverage
