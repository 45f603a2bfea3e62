"""What a tally says about journals that were written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pulsar_sandbox.workload.live import SubscriptionType
from pulsar_sandbox.workload.traffic.counts import longest_gap, tally
from pulsar_sandbox.workload.traffic.records import Ack, ConsumerJournal, Delivery, Interruption, ProducerJournal
from pulsar_sandbox.workload.traffic.tally import Duplicates, Gap, Repetition, SubscriptionTally

TOPIC = "persistent://acme/orders/events"
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def ack(number: int, *, at: int | None = None, took: int = 5_000, partition: int = -1) -> Ack:
    """Message `number` of key k, acknowledged `number` seconds after the start."""
    answered = START + number * SECOND if at is None else at
    return Ack(("p", "k", number), answered - took, answered, f"{partition}:1:{number}:-1")


def delivery(number: int, *, at: int | None = None, position: str | None = None, key: str = "k") -> Delivery:
    """The same message, delivered ten milliseconds after its acknowledgement."""
    arrived = START + number * SECOND + 10_000 if at is None else at
    return Delivery(("p", key, number), arrived, position or f"-1:1:{number}:-1")


def producer(acks: Sequence[Ack], **more: object) -> ProducerJournal:
    """A producer that ended as planned."""
    fields = {"name": "p", "topic": TOPIC, "acks": tuple(acks), "last_event": max(entry.at for entry in acks), **more}
    return ProducerJournal(**fields)  # type: ignore[arg-type]


def consumer(
    deliveries: Sequence[Delivery], *, kind: SubscriptionType = SubscriptionType.EXCLUSIVE, **more: object
) -> ConsumerJournal:
    """A consumer that ended as planned."""
    fields = {"name": "c", "topic": TOPIC, "subscription": "mail", "type": kind, "deliveries": tuple(deliveries)}
    return ConsumerJournal(**{**fields, **more})  # type: ignore[arg-type]


def subscription(
    acks: Sequence[Ack],
    deliveries: Sequence[Delivery],
    *,
    kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
    **more: object,
) -> SubscriptionTally:
    """The one subscription of a run with one producer and one consumer."""
    return tally([producer(acks, **more)], [consumer(deliveries, kind=kind)]).subscriptions[0]


def test_a_run_without_fault_has_nothing_to_report() -> None:
    result = tally([producer([ack(n) for n in range(5)])], [consumer([delivery(n) for n in range(5)])])
    assert (result.published, result.received, result.lost, result.duplicates, result.order_breaks) == (5, 5, 0, 0, 0)


def test_an_acknowledged_message_that_never_arrives_is_lost() -> None:
    result = tally([producer([ack(n) for n in range(5)])], [consumer([delivery(n) for n in (0, 1, 3, 4)])])
    assert (result.lost, result.subscriptions[0].missing) == (1, (("p", "k", 2),))


def test_a_message_lost_to_one_subscription_is_lost_though_another_has_it() -> None:
    complete = consumer([delivery(n) for n in range(3)])
    partial = consumer([delivery(n) for n in range(2)], subscription="ledger", name="d")
    assert tally([producer([ack(n) for n in range(3)])], [complete, partial]).lost == 1


def test_two_consumers_of_a_subscription_receive_for_each_other() -> None:
    halves = [consumer([delivery(n) for n in range(part, 6, 2)], name=f"c{part}") for part in (0, 1)]
    assert tally([producer([ack(n) for n in range(6)])], halves).lost == 0


def test_a_subscription_is_not_blamed_for_messages_of_another_topic() -> None:
    elsewhere = producer([ack(7)], topic="persistent://acme/orders/audit", name="q")
    assert tally([producer([ack(0)]), elsewhere], [consumer([delivery(0)])]).lost == 0


def test_a_message_whose_publish_was_never_acknowledged_cannot_be_lost() -> None:
    result = tally([producer([ack(0)], unanswered=(("p", "k", 1),))], [consumer([delivery(0)])])
    assert (result.lost, result.producers[0].unanswered) == (0, 1)


def test_nothing_is_called_lost_while_a_journal_has_no_end() -> None:
    result = tally([producer([ack(0), ack(1)])], [consumer([delivery(0)], finished=False)])
    assert (result.lost, result.unreceived, result.finished) == (None, 1, False)
    assert "1 not received yet" in result.text()


def test_a_message_of_another_run_counts_as_earlier() -> None:
    result = subscription([ack(0)], [Delivery(("history", "k", 0), START, "-1:0:0:-1"), delivery(0)])
    assert (result.received, result.earlier, result.duplicates.total) == (1, 1, 0)


@pytest.mark.parametrize(("restarted", "cause"), [(True, "restarted"), (False, "reconnected")])
def test_a_stored_message_delivered_after_an_interruption_is_redelivered(restarted: bool, cause: str) -> None:
    lost = Interruption(TOPIC, START + 50_000, START + 60_000, restarted)
    again = [delivery(0), delivery(0, at=START + SECOND)]
    result = tally([producer([ack(0)])], [consumer(again, interruptions=(lost,))]).subscriptions[0]
    assert (getattr(result.duplicates, cause), result.duplicates.total) == (1, 1)


def test_the_interruption_of_one_consumer_explains_a_redelivery_to_another() -> None:
    lost = Interruption(TOPIC, START + 50_000, None, restarted=True)
    first = consumer([delivery(0)], kind=SubscriptionType.SHARED, interruptions=(lost,))
    second = consumer([delivery(0, at=START + SECOND)], kind=SubscriptionType.SHARED, name="d")
    assert tally([producer([ack(0)])], [first, second]).subscriptions[0].duplicates == Duplicates(restarted=1)


@pytest.mark.parametrize(
    "interruption",
    [
        Interruption(TOPIC, START + 9 * SECOND, START + 10 * SECOND),
        Interruption(TOPIC, START - 10 * SECOND, START - 9 * SECOND),
        Interruption(f"{TOPIC}-partition-1", START + 50_000, START + 60_000),
    ],
    ids=["later", "earlier", "of another partition"],
)
def test_an_interruption_at_another_time_or_place_explains_no_redelivery(interruption: Interruption) -> None:
    again = [delivery(0), delivery(0, at=START + SECOND)]
    result = tally([producer([ack(0)])], [consumer(again, interruptions=(interruption,))]).subscriptions[0]
    assert len(result.duplicates.unexplained) == 1


def test_a_repetition_to_another_consumer_is_a_duplicate_too() -> None:
    twice = [consumer([delivery(0)]), consumer([delivery(0, at=START + SECOND)], name="d")]
    assert tally([producer([ack(0)])], twice).duplicates == 1


def test_a_message_stored_twice_after_a_failed_publish_was_sent_again() -> None:
    stored_again = delivery(0, at=START + SECOND, position="-1:2:0:-1")
    result = subscription([ack(0)], [delivery(0), stored_again], failures=(("p", "k", 0),))
    assert result.duplicates == Duplicates(resent=1)


def test_a_message_stored_twice_around_a_reconnection_was_in_flight() -> None:
    lost = Interruption(TOPIC, START - SECOND, START - 10_000)
    stored_again = delivery(0, at=START + SECOND, position="-1:2:0:-1")
    result = subscription([ack(0, took=2 * SECOND)], [delivery(0), stored_again], interruptions=(lost,))
    assert result.duplicates == Duplicates(in_flight=1)


@pytest.mark.parametrize(
    "interruptions",
    [(), (Interruption(TOPIC, START - 3 * SECOND, START - SECOND),), (Interruption(TOPIC, None, START - SECOND),)],
    ids=["none", "before the publish", "the first connection"],
)
def test_a_slow_publish_alone_does_not_explain_a_second_stored_message(
    interruptions: tuple[Interruption, ...],
) -> None:
    stored_again = delivery(0, at=START + SECOND, position="-1:2:0:-1")
    result = subscription([ack(0, took=2 * SECOND)], [delivery(0), stored_again], interruptions=interruptions)
    assert result.duplicates == Duplicates(unexplained=(Repetition(("p", "k", 0), TOPIC, ("-1:1:0:-1", "-1:2:0:-1")),))


def test_a_publish_repeated_once_explains_one_more_copy_and_not_two() -> None:
    copies = [delivery(0, at=START + n, position=f"-1:{n}:0:-1") for n in (1, 2, 3)]
    result = subscription([ack(0)], copies, failures=(("p", "k", 0),))
    assert (result.duplicates.resent, len(result.duplicates.unexplained)) == (1, 1)


def test_a_later_message_of_a_key_before_an_earlier_one_is_an_order_break() -> None:
    swapped = [delivery(0), delivery(2, at=START + 20_000), delivery(1, at=START + 30_000)]
    assert subscription([ack(n) for n in range(3)], swapped).order_breaks == 1


def test_order_is_kept_per_key_only() -> None:
    acks = [ack(0), Ack(("p", "other", 1), START, START + 1, "-1:1:9:-1")]
    deliveries = [delivery(1, key="other", at=START + 1), delivery(0, at=START + 2)]
    assert subscription(acks, deliveries).order_breaks == 0


def test_a_repetition_is_a_duplicate_and_not_an_order_break() -> None:
    again = [delivery(0), delivery(1), delivery(0, at=START + 3 * SECOND)]
    result = subscription([ack(0), ack(1)], again)
    assert (result.order_breaks, result.duplicates.total) == (0, 1)


def test_order_is_judged_by_time_across_the_consumers_of_a_subscription() -> None:
    first = consumer([delivery(1, at=START + 10)], kind=SubscriptionType.KEY_SHARED)
    second = consumer([delivery(0, at=START + 20)], kind=SubscriptionType.KEY_SHARED, name="d")
    assert tally([producer([ack(0), ack(1)])], [second, first]).order_breaks == 1


def test_order_breaks_of_a_shared_subscription_are_told_but_not_counted() -> None:
    swapped = [delivery(1, at=START + 10), delivery(0, at=START + 20)]
    result = tally([producer([ack(0), ack(1)])], [consumer(swapped, kind=SubscriptionType.SHARED)])
    assert (result.order_breaks, result.subscriptions[0].order_breaks) == (0, 1)


def test_an_order_break_by_a_message_sent_again_is_named_as_such() -> None:
    swapped = [delivery(1, at=START + 10), delivery(0, at=START + 20)]
    result = subscription([ack(0), ack(1)], swapped, failures=(("p", "k", 0),))
    assert (result.order_breaks, result.order_breaks_resent) == (1, 1)


def test_the_longest_gap_says_how_long_and_since_when() -> None:
    assert longest_gap([0, 1_000, 8_000, 9_000], 0, 9_000) == Gap(7, 1)


def test_a_producer_that_falls_silent_before_its_end_has_a_gap_until_then() -> None:
    result = tally([producer([ack(0), ack(1)], stopped=START + 31 * SECOND)], [])
    assert result.producers[0].gap == Gap(30_000, (START + SECOND) // 1000)


def test_a_silent_partition_shows_although_its_producer_goes_on_elsewhere() -> None:
    acks = [ack(n, partition=0) for n in range(10)] + [ack(n, partition=1) for n in (0, 9)]
    topic, gap = tally([producer(acks)], []).publish_pauses[0]
    assert (topic, gap.milliseconds) == (f"{TOPIC}-partition-1", 9_000)


def test_a_consumer_that_dies_has_a_gap_until_the_last_publish() -> None:
    assert subscription([ack(n) for n in range(10)], [delivery(0), delivery(1)]).gap == Gap(
        7_990, (START + SECOND + 10_000) // 1000
    )


def test_a_subscription_that_never_gets_anything_was_silent_all_the_time() -> None:
    assert subscription([ack(n) for n in range(10)], []).gap == Gap(9_000, START // 1000)


def test_a_quiet_consumer_after_the_last_publish_is_no_gap() -> None:
    late = Delivery(("history", "k", 7), START + 100 * SECOND, "-1:0:7:-1")
    gap = subscription([ack(0), ack(1)], [delivery(0), delivery(1), late]).gap
    assert gap is not None
    assert gap.milliseconds == 990


def test_a_standby_consumer_has_no_gap() -> None:
    standby = consumer([], name="standby")
    assert tally([producer([ack(0)])], [consumer([delivery(0)]), standby]).consumers[1].gap is None


def test_failed_publishes_are_told() -> None:
    result = tally([producer([ack(0)], failures=(("p", "k", 0), ("p", "k", 0)))], [consumer([delivery(0)])])
    assert "2 publishes failed" in result.text()


def test_the_result_names_silence_and_messages_for_a_person() -> None:
    acks = [ack(0), ack(1), ack(4)]
    result = tally([producer(acks)], [consumer([delivery(0), delivery(1), delivery(4)])])
    assert result.text().splitlines()[1:] == [
        "pause     longest 3.0 s (acme/orders/events), median 3.0 s",
        "messages  3 published, 3 received; 0 lost, 0 duplicates, 0 order breaks",
    ]


def test_the_json_has_a_version_and_the_totals() -> None:
    document = tally([producer([ack(0)])], [consumer([delivery(0)])]).to_json()
    assert (document["schema_version"], document["totals"]["published"], document["totals"]["lost"]) == (1, 1, 0)
