"""Which duplicates the demo accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.names import Position
from pulsar_sandbox.demo.judgement import Line, judge
from pulsar_sandbox.demo.story import Outcome, Window
from pulsar_sandbox.workload.live import SubscriptionType
from pulsar_sandbox.workload.traffic.counts import tally
from pulsar_sandbox.workload.traffic.records import Ack, ConsumerJournal, Delivery, Interruption, ProducerJournal

TOPIC = "persistent://acme/orders/audit"
START = 1_700_000_000_000_000


def judged(*positions: str, windows: dict[str, Window], interrupted: bool = False) -> Line:
    """What the demo says of one message with these deliveries, a second apart."""
    lost = (Interruption(TOPIC, START, START + 9_000_000, restarted=True),) if interrupted else ()
    writer = ProducerJournal(name="p", topic=TOPIC, acks=(Ack(("p", "k", 0), START, START + 5_000, positions[0]),))
    deliveries = tuple(
        Delivery(("p", "k", 0), START + number * 1_000_000, position) for number, position in enumerate(positions)
    )
    reader = ConsumerJournal(
        name="c",
        topic=TOPIC,
        subscription="mail",
        type=SubscriptionType.EXCLUSIVE,
        deliveries=deliveries,
        restarted=int(interrupted),
        interruptions=lost,
    )
    lines = judge(Outcome(tally=tally([writer], [reader]), windows=windows, artefacts=Path("/artefacts")))
    return next(line for line in lines if line.word == "duplicates")


def test_a_message_behind_the_place_of_its_subscription_was_predicted() -> None:
    line = judged("-1:7:5:-1", "-1:3:9:-1", windows={TOPIC: Window(Position(7, 4), 1)})
    assert (line.passed, line.sentence.startswith("1 as the cut-over predicted")) == (True, True)


def test_a_message_after_the_restart_of_its_consumer_names_that() -> None:
    line = judged("-1:7:5:-1", "-1:7:5:-1", windows={}, interrupted=True)
    assert (line.passed, line.sentence) == (True, "1 delivered again after a restart of c")


@pytest.mark.parametrize(
    "windows",
    [{}, {TOPIC: Window(Position(7, 5), 1)}, {f"{TOPIC}-partition-1": Window(Position(7, 4), 1)}],
    ids=["no window", "before the window", "another partition"],
)
def test_a_duplicate_that_nothing_explains_fails_the_demo(windows: dict[str, Window]) -> None:
    line = judged("-1:7:5:-1", "-1:3:9:-1", windows=windows)
    assert line.passed is False
    assert "1 without a known reason (p/k/0 of" in line.sentence


def test_the_switch_predicts_no_more_repetitions_than_it_counted() -> None:
    line = judged("-1:7:5:-1", "-1:8:9:-1", "-1:8:10:-1", windows={TOPIC: Window(Position(7, 4), 1)})
    assert (line.passed, line.sentence.startswith("1 as the cut-over predicted")) == (False, True)
