"""Verdicts on given messages: orders that Pulsar does not promise, and contents that were exchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.protocol.stored_entry import StoredMessage
from pulsar_fleet.messages.ranges import Range, TopicBounds
from pulsar_fleet.verification.messages.compare import judge
from pulsar_fleet.verification.messages.local_backend import LocalBackend
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import Address, Order, Pair, VerifyRequest

Contents = Mapping[str, Sequence[str]]
"""Topic → its messages, each as producer, key and content, such as `pk1`; the key `-` is none."""


@dataclass
class Given:
    """An engine with the messages of a cluster."""

    contents: Contents

    def read(self, entry_range: Range) -> Iterator[list[StoredMessage]]:
        texts = self.contents[entry_range.topic.rpartition("/")[2]]
        yield [message(text, number) for number, text in enumerate(texts)]


def message(text: str, entry: int) -> StoredMessage:
    producer, key, content = text[0].encode(), text[1].encode(), text[2:].encode()
    return StoredMessage(
        ledger=5,
        entry=entry,
        batch=-1,
        publish_time=0,
        producer=producer,
        schema_version=None,
        key=None if key == b"-" else key,
        key_is_base64=False,
        null_key=False,
        ordering_key=None,
        event_time=None,
        deliver_at=None,
        null_value=False,
        properties={},
        payload=content,
    )


def judged(blue: Contents, green: Contents, order: Order = Order.PRODUCER_AND_KEY) -> Verification:
    def pair(name: str) -> Pair:
        topic = f"persistent://acme/orders/{name}"
        sides = (
            TopicBounds(topic, Ledgers(((5, len(contents[name])),)), 0, len(contents[name]))
            for contents in (blue, green)
        )
        return Pair(topic, *sides)

    source, target = (Address(name, f"http://{name}:8080", f"pulsar://{name}:6650") for name in ("blue", "green"))
    pairs = tuple(pair(name) for name in blue)
    request = VerifyRequest(source=source, target=target, namespaces=("acme/orders",), pairs=pairs, order=order)
    return judge(request, LocalBackend({Side.SOURCE: Given(blue), Side.TARGET: Given(green)}))


def only(verification: Verification) -> TopicVerdict:
    ((topic,),) = (namespace.topics for namespace in verification.namespaces)
    return topic


IN_ORDER, OTHERWISE = ["pa1", "qb2", "pa3", "qb4"], ["qb2", "pa1", "qb4", "pa3"]


def test_another_order_of_different_producers_is_equal_and_harmless() -> None:
    verification = judged({"t": IN_ORDER}, {"t": OTHERWISE})
    topic = only(verification)
    assert (topic.verdict, topic.reason, topic.reordered) == (Verdict.EQUAL, "", True)
    assert topic.notes == (
        "2 changed places; the order of each producer and of each key is kept: only messages of different producers "
        "and keys lie differently between each other, which Pulsar does not promise to keep; order 'total' counts it "
        "as a difference",
    )
    assert topic.notes[0] in verification_text(verification)


def test_the_order_of_all_messages_counts_if_it_is_asked_for() -> None:
    topic = only(judged({"t": IN_ORDER}, {"t": OTHERWISE}, Order.TOTAL))
    assert (topic.verdict, len(topic.differences)) == (Verdict.DIFFERENT, 2)


@pytest.mark.parametrize(
    ("source", "target"),
    [(["pa1", "pb2"], ["pb2", "pa1"]), (["pa1", "qa2"], ["qa2", "pa1"]), (["p-1", "p-2"], ["p-2", "p-1"])],
    ids=["of a producer", "of a key", "of messages without a key"],
)
def test_a_broken_order_of_a_producer_or_of_a_key_is_a_difference(source: list[str], target: list[str]) -> None:
    topic = only(judged({"t": source}, {"t": target}))
    assert (topic.verdict, topic.reason.startswith("the same messages in another order")) == (Verdict.DIFFERENT, True)


def test_one_broken_order_among_very_many_harmless_moves_is_seen() -> None:
    harmless = [f"pa{number}" for number in range(6000)], [f"qb{number}" for number in range(6000)]
    source = [*harmless[0], *harmless[1], "rc1", "rc2"]
    target = [*harmless[1], *harmless[0], "rc2", "rc1"]
    assert only(judged({"t": source}, {"t": target})).verdict is Verdict.DIFFERENT
    assert only(judged({"t": source}, {"t": [*target[:-2], "rc1", "rc2"]})).verdict is Verdict.EQUAL


def test_a_harmless_order_beside_a_missing_message_is_a_note() -> None:
    topic = only(judged({"t": [*IN_ORDER, "rc5"]}, {"t": OTHERWISE}))
    assert (topic.verdict, topic.differing, topic.reordered) == (Verdict.DIFFERENT, 1, False)
    assert "Pulsar does not promise to keep" in topic.notes[0]


def test_messages_without_a_key_are_no_key_of_their_own() -> None:
    assert only(judged({"t": ["p-1", "q-2"]}, {"t": ["q-2", "p-1"]})).verdict is Verdict.EQUAL


A, B, C = ["pa1", "pa2"], ["qb1"], ["rc1"]


def reasons(verification: Verification) -> dict[str, str]:
    ((*topics,),) = (namespace.topics for namespace in verification.namespaces)
    return {topic.topic.rpartition("/")[2]: topic.reason for topic in topics}


def test_two_topics_whose_contents_were_exchanged_say_so() -> None:
    by_topic = reasons(judged({"a": A, "b": B, "c": C}, {"a": B, "b": A, "c": C}))
    assert by_topic == {
        "a": "persistent://acme/orders/b on green holds what this topic holds on blue, and the other way round: the "
        "contents of the two topics were exchanged",
        "b": "persistent://acme/orders/a on green holds what this topic holds on blue, and the other way round: the "
        "contents of the two topics were exchanged",
        "c": "",
    }


def test_messages_of_exchanged_topics_are_counted_and_not_called_lost() -> None:
    ((first, _),) = (namespace.topics for namespace in judged({"a": A, "b": B}, {"a": B, "b": A}).namespaces)
    assert (first.differing > 0, first.differences) == (True, ())


def test_contents_that_moved_in_a_circle_name_where_they_are() -> None:
    by_topic = reasons(judged({"a": A, "b": B, "c": C}, {"a": C, "b": A, "c": B}))
    assert by_topic["a"] == "persistent://acme/orders/b on green holds what this topic holds on blue"
    assert by_topic["b"] == "persistent://acme/orders/c on green holds what this topic holds on blue"


def test_empty_topics_are_not_called_exchanged() -> None:
    assert reasons(judged({"a": A, "b": []}, {"a": [], "b": []})) == {"a": "", "b": ""}


def test_an_equal_topic_with_the_same_content_is_not_called_exchanged() -> None:
    assert reasons(judged({"a": A, "b": A}, {"a": B, "b": A})) == {"a": "", "b": ""}


def test_the_text_begins_with_how_many_topics_are_what() -> None:
    verification = judged({"a": A, "b": B, "c": C}, {"a": B, "b": A, "c": C})
    assert verification_text(verification).splitlines()[0] == "Topics: 1 equal, 2 different, 0 inconclusive"
    assert verification.to_json()["topics"] == {"equal": 1, "different": 2, "inconclusive": 0}
