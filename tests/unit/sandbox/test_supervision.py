"""Which application of the traffic an operator would restart."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_sandbox.workload.traffic.application import Topic
from pulsar_sandbox.workload.traffic.application_process import Received
from pulsar_sandbox.workload.traffic.supervisor import MOST_RESTARTS, Supervisor

TOPIC = Topic(name="persistent://t/n/events")
PATIENCE = 10.0


def ago(seconds: float) -> int:
    return time.time_ns() // 1000 - int(seconds * 1_000_000)


@dataclass
class Writing:
    """What an operator sees of a producer."""

    last_ack: int
    name: str = "checkout"
    topic: Topic = TOPIC
    acked: list[tuple[Any, int]] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    has_ended: bool = False

    def restart(self, reason: str) -> None:
        self.restarts.append(reason)


@dataclass
class Reading:
    """What an operator sees of a consumer."""

    name: str
    last_delivery: int
    restarts: list[str] = field(default_factory=list)
    has_ended: bool = False

    def restart(self, reason: str) -> None:
        self.restarts.append(reason)


def supervise(producer: Writing, *consumers: Reading) -> Supervisor:
    readers: Any = {(TOPIC.name, "billing"): (Received([producer.name]), consumers)}
    producers: Any = [producer]
    return Supervisor(producers, readers, PATIENCE)


def test_a_producer_without_an_answer_is_restarted_while_others_go_on() -> None:
    producer = Writing(last_ack=ago(11))
    supervise(producer, Reading("c-1", ago(0))).restart_stuck(writing=True)
    assert len(producer.restarts) == 1


@pytest.mark.parametrize(("silent", "writing"), [(9, True), (11, False)], ids=["in time", "has stopped"])
def test_a_producer_that_may_be_silent_is_left_alone(silent: float, writing: bool) -> None:
    producer = Writing(last_ack=ago(silent))
    supervise(producer, Reading("c-1", ago(0))).restart_stuck(writing=writing)
    assert producer.restarts == []


def test_nobody_is_restarted_while_the_cluster_serves_nobody() -> None:
    producer, consumer = Writing(ago(60), acked=[(("checkout", "k", 0), ago(60))]), Reading("c-1", ago(60))
    supervise(producer, consumer).restart_stuck(writing=True)
    assert (producer.restarts, consumer.restarts) == ([], [])


@pytest.mark.parametrize(("late", "restarted"), [(5, 0), (11, 1), (25, 2)])
def test_the_silent_consumer_of_an_incomplete_subscription_restarts_later(late: float, restarted: int) -> None:
    producer = Writing(ago(0), acked=[(("checkout", "k", 0), ago(late))])
    consumers = Reading("hangs", ago(late)), Reading("works", ago(0))
    supervise(producer, *consumers).restart_stuck(writing=True)
    assert [bool(consumer.restarts) for consumer in consumers] == [restarted > 0, restarted > 1]


def test_an_idle_consumer_of_a_subscription_that_has_all_is_left_alone() -> None:
    consumer = Reading("standby", ago(100))
    supervise(Writing(ago(0)), consumer).restart_stuck(writing=True)
    assert consumer.restarts == []


def test_an_application_whose_process_has_ended_is_restarted_at_once() -> None:
    producer, consumer = Writing(ago(0), has_ended=True), Reading("c-1", ago(0), has_ended=True)
    supervise(producer, consumer).restart_stuck(writing=True)
    assert (len(producer.restarts), len(consumer.restarts)) == (1, 1)


def test_a_producer_that_was_stopped_is_not_restarted() -> None:
    producer = Writing(ago(0), has_ended=True)
    supervise(producer, Reading("c-1", ago(0))).restart_stuck(writing=False)
    assert producer.restarts == []


def test_an_application_is_not_restarted_for_ever() -> None:
    producer = Writing(last_ack=ago(11))
    supervisor = supervise(producer, Reading("c-1", ago(0)))
    supervisor.restart_seconds = -1.0
    for _ in range(2 * MOST_RESTARTS):
        supervisor.restart_stuck(writing=True)
    assert len(producer.restarts) == MOST_RESTARTS


@given(st.lists(st.booleans(), max_size=12))
def test_the_oldest_missing_message_is_found_whatever_arrives_later(arrived: list[bool]) -> None:
    acked = [(("checkout", "k", number), number) for number in range(len(arrived))]
    received = Received(["checkout"])
    for has, (identity, _) in zip(arrived, acked, strict=True):
        if has:
            received.add(identity)
    missing = [at for has, (_, at) in zip(arrived, acked, strict=True) if not has]
    assert received.oldest_missing([acked]) == min(missing, default=None)
    for identity, _ in acked:
        received.add(identity)
    assert received.oldest_missing([acked]) is None
