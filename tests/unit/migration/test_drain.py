"""How far a drain is, and when it will end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drain_states import EVENTS, FIRST, SECOND, move_of, seen, stats

from pulsar_fleet.migration.drain.forecast import KEPT, Forecast, Sample, forecast, forecast_error, keep
from pulsar_fleet.migration.drain.progress import Progress, duration, has_arrived, is_drained, progress, summary
from pulsar_fleet.migration.drain.state import AGAIN_SECONDS, SCHEDULE, NamespaceWatch, SideWatch, WatchState
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.stats.partition_state import Absence, read_loaded

BEFORE = stats("p-1", "p-2", billing=(7, ["c-1"]))
READERS = st.lists(st.integers(0, 9), min_size=1, max_size=3)


def state(blue: dict[str, Any] | Absence, green: dict[str, Any]) -> Progress:
    """A namespace of one partition, asked by itself on both sides."""
    move = move_of(first=BEFORE)
    on_blue, on_green = seen(blue), seen(green)
    done = is_drained(move, FIRST, on_blue) and has_arrived(FIRST, move.partitions[FIRST], on_green)
    return progress(move, {FIRST: on_blue}, {FIRST: on_green}, {FIRST} if done else set())


def test_a_move_is_done_when_all_is_read_and_everybody_has_arrived() -> None:
    assert state(stats(), stats("p-1", "p-2", billing=(3, ["c-1"]))).is_done


@pytest.mark.parametrize(
    ("blue", "green", "words"),
    [
        (stats(billing=(4, [])), BEFORE, "4 entries left on blue"),
        (stats(), stats("p-1", billing=(0, ["c-1"])), "1 producers of"),
        (stats(), stats("p-1", "p-2"), "1 consumers of 'billing'"),
        (stats("p-1"), BEFORE, 'still on blue: producer "p-1" (10.0.0.1:3, Pulsar-Java-v4.2.4)'),
    ],
    ids=["backlog", "producer", "consumer", "straggler"],
)
def test_a_move_is_not_done_while_something_is_missing(blue: dict[str, Any], green: dict[str, Any], words: str) -> None:
    found = state(blue, green)
    assert (found.is_done, words in found.line()) == (False, True)


@pytest.mark.parametrize("absence", list(Absence))
def test_a_partition_without_statistics_is_never_taken_for_drained(absence: Absence) -> None:
    assert not state(absence, BEFORE).is_done


def test_what_a_broker_lists_is_never_taken_for_the_end() -> None:
    move = move_of(first=BEFORE)
    assert not is_drained(move, FIRST, seen(stats(), close=False))
    assert not has_arrived(FIRST, move.partitions[FIRST], seen(BEFORE, close=False))


@pytest.mark.parametrize(("strategy", "left"), [(Strategy.REPLICATE, 0), (Strategy.REDIRECT, 7)])
def test_an_idle_subscription_is_waited_for_unless_it_was_carried_over(strategy: Strategy, left: int) -> None:
    move = move_of(strategy, first=stats(archive=(7, [])))
    found = progress(move, {FIRST: seen(stats(archive=(7, [])))}, {}, set())
    assert found.remaining == left


def test_entries_that_are_still_to_be_replicated_are_waited_for() -> None:
    linked = {**stats(), "replication": {"green": {"replicationBacklog": 3, "outboundConnection": "x"}}}
    assert not is_drained(move_of(first=BEFORE), FIRST, seen(linked))


@given(READERS, READERS)
def test_backlogs_are_summed_by_topic_and_subscription_the_largest_first(first: list[int], second: list[int]) -> None:
    documents = [stats(**{f"s{n}": (left, ["c"]) for n, left in enumerate(lefts)}) for lefts in (first, second)]
    move = move_of(first=documents[0], second=documents[1])
    found = progress(move, {FIRST: seen(documents[0]), SECOND: seen(documents[1])}, {}, set())
    assert sum(backlog.left for backlog in found.backlogs) == found.remaining == sum(first) + sum(second)
    assert [one.left for one in found.backlogs] == sorted((one.left for one in found.backlogs), reverse=True)
    assert {one.topic for one in found.backlogs} <= {str(EVENTS)}


def test_the_line_of_a_wave_says_how_much_is_left_and_until_when() -> None:
    drain = forecast([Sample(float(at), 1000 - 100 * at) for at in range(5)])
    line = summary([replace(state(stats(billing=(600, ["c-1"])), BEFORE), forecast=drain)])
    assert line.startswith("0 of 1 namespaces done; 600 entries left on blue, 100/s, done in about 6 s")


@given(st.floats(0.5, 1e4), st.integers(1_000, 10**9), st.integers(3, 30))
def test_a_steady_drain_is_forecast_to_the_second(rate: float, left: int, count: int) -> None:
    samples = [Sample(1.7e9 + at, max(0, round(left - rate * at))) for at in range(count)]
    found = forecast(samples)
    if samples[-1].left and samples[0].left - samples[-1].left > 100:
        assert found is not None
        assert found.rate == pytest.approx(rate, rel=0.1)
        assert found.end == pytest.approx(1.7e9 + left / rate, abs=max(2.0, left / rate * 0.1))


@pytest.mark.parametrize("lefts", [[5], [9, 5], [5, 5, 5], [5, 6, 9], [9, 5, 0]])
def test_nothing_is_forecast_from_too_little_or_while_nothing_shrinks(lefts: list[int]) -> None:
    assert forecast([Sample(float(at), left) for at, left in enumerate(lefts)]) is None


def test_the_error_of_the_forecasts_is_told_afterwards() -> None:
    made = [Forecast(at=0, rate=1, seconds=100, margin=30), Forecast(at=60, rate=1, seconds=50, margin=20)]
    found = forecast_error(made, 120)
    assert found is not None
    assert (found.first, found.middle, found.last, found.within) == (20, 10, 10, 1.0)
    assert forecast_error([], 120) is None


@given(st.integers(1, 3 * KEPT))
def test_samples_are_bounded_and_the_first_and_the_newest_are_kept(count: int) -> None:
    kept: tuple[Sample, ...] = ()
    for at in range(count):
        kept = keep(kept, Sample(float(at), at))
    assert len(kept) <= KEPT
    assert (kept[0].at, kept[-1].at) == (0, count - 1)
    assert [one.at for one in kept] == sorted(one.at for one in kept)


@pytest.mark.parametrize(("seconds", "words"), [(20, "20 s"), (140, "2 min 20 s"), (2280, "38 min"), (9000, "2.5 h")])
def test_a_duration_is_said_as_a_person_says_it(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_long_drain_costs_no_more_than_the_first_looks_for_each_partition() -> None:
    side, asked = SideWatch(), 0
    busy = seen(stats(billing=(9, ["c-1"])))
    for now in range(0, 3600, 5):
        due = side.due([FIRST], float(now), lambda _topic, state: not state.clients)
        asked += len(due)
        side.asked({topic: busy for topic in due}, float(now))
        side.listed({FIRST: seen(stats(billing=(9, ["c-1"])), at=float(now), close=False)})
    assert asked == len(SCHEDULE)


def test_a_partition_that_looks_drained_in_its_brokers_list_is_asked_by_itself() -> None:
    side = SideWatch(looks={FIRST: len(SCHEDULE)}, looked={FIRST: 0.0})
    side.listed({FIRST: seen(stats(), at=100.0, close=False)})
    assert side.due([FIRST], 100.0, lambda _topic, state: not state.clients) == [FIRST]
    assert side.due([FIRST], AGAIN_SECONDS - 1, lambda _topic, state: not state.clients) == []


def test_a_partition_in_nobodys_list_is_asked_by_itself() -> None:
    side = SideWatch(looks={FIRST: len(SCHEDULE)}, looked={FIRST: 0.0}, known={FIRST: seen(BEFORE)})
    assert side.due([FIRST], 1000.0, lambda *_: False) == [FIRST]


def test_what_a_watch_knows_survives_the_process_that_looks() -> None:
    one = NamespaceWatch.begin(5.0)
    one.blue.asked({FIRST: seen(BEFORE, at=6.0), SECOND: seen(Absence.UNLOADED)}, 6.0)
    one.green.confirmed.add(FIRST)
    one.places[FIRST] = ("b:1", "0x0_0x1")
    one.closed.add(SECOND)
    for at in range(4):
        one.note(100 - at, float(at), {"billing": 100 - 2 * at})
    assert one.rates == {"billing": 2.0}
    watch = WatchState(namespaces={"acme/orders": one}, silent={"blue b:1": 3.0}, restarted={"b:2"})
    assert WatchState.from_json(watch.to_json()) == watch


def test_a_brokers_list_is_read_for_the_wanted_topics_alone() -> None:
    text = (
        '{"acme/orders": {"0x0_0x1": {"persistent": {"persistent://acme/orders/events-partition-0": '
        '{"publishers": [], "subscriptions": {"billing": {"msgBacklog": 4, "consumers": []}}}, '
        '"persistent://acme/orders/__change_events": {}}}}, "acme/audit": {}}'
    )
    found = read_loaded("b:1", text, {FIRST.namespace: frozenset({FIRST, SECOND})}, 9.0)
    assert list(found) == [FIRST]
    assert (found[FIRST].backlog, found[FIRST].broker, found[FIRST].bundle) == ({"billing": 4}, "b:1", "0x0_0x1")
