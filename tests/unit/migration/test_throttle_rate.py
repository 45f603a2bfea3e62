"""The throttle of brokers that let a producer wait for the time that they computed before its rate was lifted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.runs.overrides import is_throttle
from pulsar_fleet.migration.cutover.namespace_cutover import rate_for

KEEP_ALIVE_SECONDS = 30.0
SIZES = st.lists(st.floats(60, 5_000_000), min_size=1)


def seconds(size: float, partitions: int) -> float:
    """How long a producer waits after one entry of this size."""
    return size / float(rate_for([size], partitions)["publishThrottlingRateInByte"])


@given(SIZES, st.integers(1, 10_000))
def test_the_topic_with_the_smallest_entries_waits_five_seconds_or_more(sizes: list[float], partitions: int) -> None:
    rate = rate_for(sizes, partitions)
    assert is_throttle(rate)
    assert min(sizes) / float(rate["publishThrottlingRateInByte"]) >= 5


@given(st.floats(60, 5_000_000), st.integers(1, 1_000))
def test_a_wait_ends_before_a_client_gives_its_connection_up(size: float, partitions: int) -> None:
    assert seconds(size, partitions) < KEEP_ALIVE_SECONDS


def test_a_larger_namespace_waits_longer_since_its_cut_over_takes_longer() -> None:
    assert [round(seconds(100_000, partitions)) for partitions in (1, 200, 1_000)] == [5, 6, 10]


def test_topics_without_entries_get_the_strictest_rate() -> None:
    assert rate_for([], 3)["publishThrottlingRateInByte"] == 1
