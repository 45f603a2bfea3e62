"""The progress of a drain, and the forecast of its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drain_states import EVENTS, FIRST, SECOND, move_of, seen, stats

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.drain.forecast import MAX_SAMPLES, Forecast, Sample, forecast, forecast_error, keep
from pulsar_fleet.migration.drain.monitor import (
    DrainProgress,
    drain_progress,
    has_arrived,
    is_drained,
    summary,
)
from pulsar_fleet.migration.drain.state import (
    REREAD_SECONDS,
    SCHEDULE,
    DrainState,
    Entrance,
    NamespaceState,
    SideState,
)
from pulsar_fleet.migration.facts import Absence, read_loaded
from pulsar_fleet.migration.model import Strategy

CLUSTERS = {"blue": "east", "green": "west"}
BEFORE = stats("p-1", "p-2", billing=(7, ["c-1"]))
READERS = st.lists(st.integers(0, 9), min_size=1, max_size=3)


def state(blue: dict[str, Any] | Absence, green: dict[str, Any]) -> DrainProgress:
    """A namespace of one partition, read individually on both clusters."""
    move = move_of(first=BEFORE)
    on_blue, on_green = seen(blue), seen(green)
    done = is_drained(move, FIRST, on_blue) and has_arrived(FIRST, move.partitions[FIRST], on_green)
    return drain_progress(move, CLUSTERS, {FIRST: on_blue}, {FIRST: on_green}, {FIRST} if done else set())


def test_a_move_is_done_without_backlog_and_with_all_clients_on_green() -> None:
    assert state(stats(), stats("p-1", "p-2", billing=(3, ["c-1"]))).is_done


@pytest.mark.parametrize(
    ("blue", "green", "words"),
    [
        (stats(billing=(4, [])), BEFORE, "4 entries left on east"),
        (stats(), stats("p-1", billing=(0, ["c-1"])), "1 producer of"),
        (stats(), stats("p-1", "p-2"), "1 consumer of 'billing'"),
        (stats("p-1"), BEFORE, 'still on east: producer "p-1" (10.0.0.1:3, Pulsar-Java-v4.2.4)'),
    ],
    ids=["backlog", "producer", "consumer", "straggler"],
)
def test_a_move_is_not_done_while_something_is_missing(blue: dict[str, Any], green: dict[str, Any], words: str) -> None:
    progress = state(blue, green)
    assert (progress.is_done, words in progress.line()) == (False, True)


@pytest.mark.parametrize("absence", list(Absence))
def test_a_partition_without_statistics_is_never_drained(absence: Absence) -> None:
    assert not state(absence, BEFORE).is_done


def test_a_brokers_list_never_confirms_a_partition() -> None:
    move = move_of(first=BEFORE)
    assert not is_drained(move, FIRST, seen(stats(), close=False))
    assert not has_arrived(FIRST, move.partitions[FIRST], seen(BEFORE, close=False))


@pytest.mark.parametrize(("strategy", "remaining"), [(Strategy.REPLICATE, 0), (Strategy.REDIRECT, 7)])
def test_an_idle_subscription_is_awaited_unless_its_cursor_was_transferred(strategy: Strategy, remaining: int) -> None:
    move = move_of(strategy, first=stats(archive=(7, [])))
    progress = drain_progress(move, CLUSTERS, {FIRST: seen(stats(archive=(7, [])))}, {}, set())
    assert progress.remaining == remaining


def test_entries_that_are_still_to_be_replicated_are_waited_for() -> None:
    linked = {**stats(), "replication": {"green": {"replicationBacklog": 3, "outboundConnection": "x"}}}
    assert not is_drained(move_of(first=BEFORE), FIRST, seen(linked))


@given(READERS, READERS)
def test_backlogs_are_summed_by_topic_and_subscription_the_largest_first(first: list[int], second: list[int]) -> None:
    documents = [
        stats(**{f"s{n}": (backlog, ["c"]) for n, backlog in enumerate(backlogs)}) for backlogs in (first, second)
    ]
    move = move_of(first=documents[0], second=documents[1])
    progress = drain_progress(move, CLUSTERS, {FIRST: seen(documents[0]), SECOND: seen(documents[1])}, {}, set())
    assert sum(backlog.entries for backlog in progress.backlogs) == progress.remaining == sum(first) + sum(second)
    entries = [backlog.entries for backlog in progress.backlogs]
    assert entries == sorted(entries, reverse=True)
    assert {backlog.topic for backlog in progress.backlogs} <= {str(EVENTS)}


def test_the_line_of_a_wave_says_how_much_is_left_and_until_when() -> None:
    drain = forecast([Sample(float(at), 1000 - 100 * at) for at in range(5)])
    line = summary([replace(state(stats(billing=(600, ["c-1"])), BEFORE), forecast=drain)])
    assert line.startswith("0 of 1 namespace done; 600 entries left on east, 100/s, done in about 6 s")


@given(st.floats(0.5, 1e4), st.integers(1_000, 10**9), st.integers(3, 30))
def test_a_steady_drain_is_forecast_to_the_second(rate: float, backlog: int, count: int) -> None:
    samples = [Sample(1.7e9 + at, max(0, round(backlog - rate * at))) for at in range(count)]
    drain = forecast(samples)
    if samples[-1].entries and samples[0].entries - samples[-1].entries > 100:
        assert drain is not None
        assert drain.rate == pytest.approx(rate, rel=0.1)
        assert drain.end == pytest.approx(1.7e9 + backlog / rate, abs=max(2.0, backlog / rate * 0.1))


@pytest.mark.parametrize("lefts", [[5], [9, 5], [5, 5, 5], [5, 6, 9], [9, 5, 0]])
def test_nothing_is_forecast_from_too_little_or_while_nothing_shrinks(lefts: list[int]) -> None:
    assert forecast([Sample(float(at), entries) for at, entries in enumerate(lefts)]) is None


def test_the_error_of_the_forecasts_is_reported_afterwards() -> None:
    forecasts = [Forecast(at=0, rate=1, seconds=100, margin=30), Forecast(at=60, rate=1, seconds=50, margin=20)]
    error = forecast_error(forecasts, 120)
    assert error is not None
    assert (error.first, error.middle, error.last, error.within) == (20, 10, 10, 1.0)
    assert forecast_error([], 120) is None


@given(st.integers(1, 3 * MAX_SAMPLES))
def test_samples_are_bounded_and_the_first_and_the_newest_are_kept(count: int) -> None:
    kept: tuple[Sample, ...] = ()
    for at in range(count):
        kept = keep(kept, Sample(float(at), at))
    assert len(kept) <= MAX_SAMPLES
    assert (kept[0].at, kept[-1].at) == (0, count - 1)
    assert [sample.at for sample in kept] == sorted(sample.at for sample in kept)


def test_a_long_drain_costs_only_the_scheduled_reads_of_each_partition() -> None:
    side, reads = SideState(), 0
    busy = seen(stats(billing=(9, ["c-1"])))
    for now in range(0, 3600, 5):
        due = side.due([FIRST], float(now), lambda _topic, state: not state.clients)
        reads += len(due)
        side.add_read({topic: busy for topic in due}, float(now))
        side.add_listed({FIRST: seen(stats(billing=(9, ["c-1"])), at=float(now), close=False)})
    assert reads == len(SCHEDULE)


def test_a_partition_drained_in_its_brokers_list_is_read_individually() -> None:
    side = SideState(reads={FIRST: len(SCHEDULE)}, read_at={FIRST: 0.0})
    side.add_listed({FIRST: seen(stats(), at=100.0, close=False)})
    assert side.due([FIRST], 100.0, lambda _topic, state: not state.clients) == [FIRST]
    assert side.due([FIRST], REREAD_SECONDS - 1, lambda _topic, state: not state.clients) == []


def test_a_partition_in_no_brokers_list_is_read_individually() -> None:
    side = SideState(reads={FIRST: len(SCHEDULE)}, read_at={FIRST: 0.0}, partitions={FIRST: seen(BEFORE)})
    assert side.due([FIRST], 1000.0, lambda *_: False) == [FIRST]


def test_the_state_of_the_monitor_survives_its_process() -> None:
    namespace = NamespaceState.begin(5.0)
    namespace.blue.add_read({FIRST: seen(BEFORE, at=6.0), SECOND: seen(Absence.UNLOADED)}, 6.0)
    namespace.green.confirmed.add(FIRST)
    namespace.owners[FIRST] = ("b:1", "0x0_0x1")
    namespace.fenced.add(SECOND)
    for at in range(4):
        namespace.add_sample(100 - at, float(at), {"billing": 100 - 2 * at})
    assert namespace.rates == {"billing": 2.0}
    watch = DrainState(namespaces={"acme/orders": namespace}, outages={"blue b:1": 3.0}, restarted={"b:2"})
    assert DrainState.from_json(watch.to_json()) == watch


@pytest.mark.parametrize(
    ("entrance", "fenced"),
    [(Entrance.OPEN, set()), (Entrance.FENCED, {FIRST, SECOND}), (Entrance.UNKNOWN, {FIRST})],
)
def test_a_probe_that_learned_nothing_leaves_a_topic_what_it_was(entrance: Entrance, fenced: set[TopicName]) -> None:
    namespace = NamespaceState.begin(0.0)
    namespace.fenced = {FIRST}
    namespace.add_probe([FIRST, SECOND], {FIRST: entrance, SECOND: entrance}, 60.0)
    assert (namespace.fenced, namespace.probed) == (fenced, 60.0)


def test_a_topic_that_was_not_probed_stays_fenced_while_it_is_suspect() -> None:
    namespace = NamespaceState.begin(0.0)
    namespace.fenced = {FIRST, SECOND}
    namespace.add_probe([FIRST], {}, 60.0)
    assert namespace.fenced == {FIRST}


def test_a_brokers_list_is_read_for_the_wanted_topics_alone() -> None:
    text = (
        '{"acme/orders": {"0x0_0x1": {"persistent": {"persistent://acme/orders/events-partition-0": '
        '{"publishers": [], "subscriptions": {"billing": {"msgBacklog": 4, "consumers": []}}}, '
        '"persistent://acme/orders/__change_events": {}}}}, "acme/audit": {}}'
    )
    states = read_loaded("b:1", text, {FIRST.namespace: frozenset({FIRST, SECOND})}, 9.0)
    assert list(states) == [FIRST]
    assert (states[FIRST].backlog, states[FIRST].broker, states[FIRST].bundle) == ({"billing": 4}, "b:1", "0x0_0x1")
