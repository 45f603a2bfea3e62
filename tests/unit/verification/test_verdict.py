"""Verdicts: never equal by default, and differences that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO

import pyarrow.parquet as pq
import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import ALL, DigestRow, Sums, TopicDigest
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.messages.scan import MessageRecord
from pulsar_fleet.verification.messages.compare import Mismatches, Only, judge
from pulsar_fleet.verification.messages.differences import Cause, Kind, Mismatch, count_mismatches, name_differences
from pulsar_fleet.verification.messages.order import PlacedMessage
from pulsar_fleet.verification.messages.report import _difference, namespace_summary, verdict_tables, verification_text
from pulsar_fleet.verification.messages.verdict import (
    NamespaceVerdict,
    TopicVerdict,
    Verdict,
    Verification,
    assemble,
    evaluate_topic,
)
from pulsar_fleet.verification.request import Address, Pair, Problem, VerifyRequest

TOPIC = "persistent://acme/orders/events"
BOUNDS = TopicBounds(TOPIC, Ledgers(((4, 3),)), 0, 3)
PAIR = Pair(TOPIC, BOUNDS, BOUNDS)
BLUE = Address("blue", "http://blue.example:8080", "pulsar://blue.example:6650")
GREEN = Address("green", "http://green.example:8080", "pulsar://green.example:6650")
REQUEST = VerifyRequest(source=BLUE, target=GREEN, namespaces=("acme/orders",), pairs=(PAIR,))


def topic_digest(lane: int = 5, order: int = 9, problem: str = "") -> TopicDigest:
    sums = Sums(3, (lane, 0, 0, 0))
    rows = [DigestRow(0, 0, 1, sums), DigestRow(0, 0, ALL, sums, order), DigestRow(0, 1, ALL, problem=problem)]
    return TopicDigest.fold(rows)


def sighting(entry: int, **changed: object) -> MessageRecord:
    plain = MessageRecord(
        pair=0,
        digest=f"{entry}-{changed}",
        ledger=4,
        entry=entry,
        batch=-1,
        publish_time=1_795_252_442_118 + entry,
        event_time=None,
        deliver_at=None,
        key="c-9917",
        ordering_key=None,
        flags="",
        encryption=None,
        properties='[["trace", "a81f"]]',
        payload="0" * 32,
        size=12,
        producer="checkout-2",
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def only_in_source(at: MessageRecord) -> Mismatch:
    return Mismatch(0, 1, 0, at, None)


def only_in_target(at: MessageRecord) -> Mismatch:
    return Mismatch(0, 0, 1, None, at)


def test_a_publish_time_beyond_every_calendar_is_shown_in_milliseconds() -> None:
    named = name_differences([only_in_source(sighting(2, publish_time=1_790_000_000_123_456))])
    assert _difference(named[0], "blue", "green").startswith(
        "missing on green  blue 4:2  key 'c-9917'  1790000000123456 ms since 1970  producer"
    )


@pytest.mark.parametrize(
    ("target", "verdict", "reordered", "reason"),
    [
        (topic_digest(), Verdict.EQUAL, False, ""),
        (topic_digest(lane=6), Verdict.DIFFERENT, False, ""),
        (topic_digest(lane=6, order=8), Verdict.DIFFERENT, False, ""),
        (topic_digest(order=8), Verdict.DIFFERENT, True, "the same messages in another order"),
        (topic_digest(problem="not authorized"), Verdict.INCONCLUSIVE, False, "not authorized"),
        (topic_digest(lane=6, problem="not authorized"), Verdict.INCONCLUSIVE, False, "not authorized"),
        (
            replace(topic_digest(), all=Sums(3, (6, 0, 0, 0))),
            Verdict.INCONCLUSIVE,
            False,
            "the digests of all messages contradict those of the buckets",
        ),
    ],
    ids=["equal", "unequal", "unequal and reordered", "reordered", "unread", "partly unread", "contradictory"],
)
def test_digests_decide(target: TopicDigest, verdict: Verdict, reordered: bool, reason: str) -> None:
    compared = evaluate_topic(PAIR, topic_digest(), target)
    assert (compared.verdict, compared.reordered, compared.reason) == (verdict, reordered, reason)
    assert (compared.differing, compared.repeated) == (0, 0), "messages were not compared"
    turned = evaluate_topic(PAIR, target, topic_digest())
    assert (turned.verdict, turned.reordered, turned.reason) == (verdict, reordered, reason)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], Verdict.INCONCLUSIVE),
        ([Verdict.EQUAL], Verdict.EQUAL),
        ([Verdict.EQUAL, Verdict.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Verdict.EQUAL, Verdict.INCONCLUSIVE, Verdict.DIFFERENT], Verdict.DIFFERENT),
    ],
)
def test_the_whole_is_equal_only_if_every_part_is(parts: list[Verdict], whole: Verdict) -> None:
    assert Verdict.over(parts) is whole


def test_a_namespace_about_which_nothing_is_known_is_inconclusive() -> None:
    two = replace(REQUEST, namespaces=("acme/orders", "acme/audit"))
    for topics in ([], [TopicVerdict(topic=TOPIC, verdict=Verdict.EQUAL)]):
        assert assemble(two, topics).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("different", "verdict"), [(True, Verdict.DIFFERENT), (False, Verdict.INCONCLUSIVE)])
def test_a_problem_found_before_reading_outweighs_equal_topics(different: bool, verdict: Verdict) -> None:
    lost = Problem("acme/orders", "persistent://acme/orders/lost", different, "green has no such topic")
    equal = TopicVerdict(topic=TOPIC, verdict=Verdict.EQUAL)
    verification = assemble(replace(REQUEST, problems=(lost,)), [equal])
    assert (verification.verdict, verification.messages, verification.proven) == (verdict, 0, 0)
    assert not any(topic.reordered or topic.repeated for topic in verification.namespaces[0].topics)


class Silent:
    """A reader of which nothing is heard."""

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Iterable[DigestRow]]:
        return {side: [] for side in Side}

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        return {}

    def displaced(self, request: VerifyRequest, pair: int) -> Sequence[PlacedMessage]:
        return []


def test_ranges_of_which_nothing_is_heard_are_not_taken_for_empty_ones() -> None:
    ((topic,),) = (namespace.topics for namespace in judge(REQUEST, Silent()).namespaces)
    assert (topic.verdict, topic.reason) == (
        Verdict.INCONCLUSIVE,
        "its entries from 4:0 to 4:2 were not read; verify again",
    )


def test_what_came_up_after_reading_takes_equality_away() -> None:
    verification = assemble(REQUEST, [TopicVerdict(topic=TOPIC, verdict=Verdict.EQUAL)])
    unloaded = TopicVerdict(topic=TOPIC, verdict=Verdict.INCONCLUSIVE, reason="unloaded")
    assert verification.revised([unloaded]).verdict is Verdict.INCONCLUSIVE


def test_copies_that_cancel_out_are_not_a_difference() -> None:
    assert count_mismatches([sighting(1), sighting(2)], [sighting(2), sighting(1)]) == []


def test_a_message_that_green_lacks_is_named_with_its_position_on_blue() -> None:
    (difference,) = name_differences([only_in_source(sighting(2))])
    assert (difference.kind, difference.source, difference.target) == (Kind.MISSING, "4:2", None)


def test_a_repeated_message_is_named_with_its_counts() -> None:
    (difference,) = name_differences([Mismatch(0, 1, 2, sighting(2), sighting(3, digest="same"))])
    assert (difference.kind, difference.source, difference.target, difference.copies) == (
        Kind.EXTRA,
        "4:2",
        "4:3",
        (1, 2),
    )


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"properties": '[["trace", "a81e"]]'}, ("property 'trace'", "'a81f'", "'a81e'")),
        ({"key": "c-9918"}, ("key", "'c-9917'", "'c-9918'")),
        ({"key": None}, ("key", "'c-9917'", "absent")),
        ({"key": ""}, ("key", "'c-9917'", "''")),
        ({"ordering_key": ""}, ("ordering key", "absent", "''")),
        ({"event_time": 0}, ("event time", "absent", "0")),
        ({"deliver_at": 9}, ("delivery time", "absent", "9")),
        ({"flags": "base64 key"}, ("flags", "''", "'base64 key'")),
        ({"properties": '[["trace", ""]]'}, ("property 'trace'", "'a81f'", "''")),
        ({"properties": "[]"}, ("property 'trace'", "'a81f'", "absent")),
        ({"payload": "1" * 32, "size": 13}, ("payload", "12 bytes 00000000…", "13 bytes 11111111…")),
    ],
    ids=str,
)
def test_an_altered_message_is_one_difference_that_names_the_field(
    changed: dict[str, object], field: tuple[str, str, str]
) -> None:
    (difference,) = name_differences([only_in_source(sighting(2)), only_in_target(sighting(2, **changed))])
    assert (difference.kind, difference.fields) == (Kind.ALTERED, (field,))


def test_messages_that_share_little_are_one_missing_and_one_extra() -> None:
    other = sighting(7, key="x", payload="1" * 32, event_time=4, producer="else", properties="[]")
    kinds = [difference.kind for difference in name_differences([only_in_source(sighting(2)), only_in_target(other)])]
    assert kinds == [Kind.MISSING, Kind.EXTRA]


def different() -> Verification:
    altered = [only_in_source(sighting(3)), only_in_target(sighting(9, properties='[["trace", "a81e"]]'))]
    named = name_differences([only_in_source(sighting(2, event_time=3, payload="2" * 32, key="c-1")), *altered])
    topic = TopicVerdict(
        topic=TOPIC,
        verdict=Verdict.DIFFERENT,
        source_messages=1_204_331,
        target_messages=1_204_330,
        differing=2,
        differences=tuple(named),
    )
    return Verification("blue", "green", (NamespaceVerdict("acme/orders", (topic,)),))


def test_a_difference_reads_as_what_where_and_how() -> None:
    assert verification_text(different()).splitlines() == [
        "Topics: 0 equal, 1 different, 0 inconclusive",
        f"DIFFERENT  {TOPIC}: 2 of 1,204,331 messages",
        "  missing on green  blue 4:2  key 'c-1'  2026-11-21 09:14:02.120Z  producer 'checkout-2'",
        "  altered: property  blue 4:3 = green 4:9  property 'trace' 'a81f' → 'a81e'",
        "The bounds stated above do not explain the differences. The verification failed.",
    ]


def test_a_difference_says_why_where_the_brokers_told() -> None:
    (namespace,) = different().namespaces
    (topic,) = namespace.topics
    lost = replace(topic, differences=(replace(topic.differences[0], cause=Cause.LOST),))
    text = verification_text(different().revised([lost]))
    assert "why: the source still holds it, and nothing explains why the target does not" in text


@pytest.mark.parametrize(("key", "words"), [(None, "no key"), ("", "key ''"), ("k", "key 'k'")])
def test_a_message_without_a_key_is_not_one_with_an_empty_key(key: str | None, words: str) -> None:
    (named,) = name_differences([only_in_source(sighting(2, key=key))])
    (namespace,) = different().namespaces
    topic = replace(namespace.topics[0], differences=(named,))
    text = verification_text(different().revised([topic])).splitlines()[2]
    assert text.startswith(f"  missing on green  blue 4:2  {words}  2026")


def test_an_equality_of_a_part_says_of_which() -> None:
    equal = NamespaceVerdict("acme/orders", (TopicVerdict(topic=TOPIC, verdict=Verdict.EQUAL, source_messages=3),))
    assert namespace_summary(equal, "in the sample: …") == "equal in the sample: …: 3 messages in 1 topic"
    text = verification_text(Verification("blue", "green", (equal,), "in the sample: …"))
    assert text.endswith("3 messages in 1 topic on both sides; in the sample: …")


def test_the_summary_of_a_namespace_names_its_first_different_topic() -> None:
    (namespace,) = different().namespaces
    assert namespace_summary(namespace) == f"different: 1 of 1 topic, first {TOPIC}: 2 of 1,204,331 messages"


def test_verdicts_and_requests_survive_json() -> None:
    assert Verification.from_bytes(different().to_bytes()) == different()
    assert VerifyRequest.from_bytes(REQUEST.to_bytes()) == REQUEST


def test_a_request_of_another_release_is_refused() -> None:
    altered = REQUEST.to_bytes().replace(b'"schema_version":5', b'"schema_version":4')
    with pytest.raises(InvalidRequest, match="version 4"):
        VerifyRequest.from_bytes(altered)


def test_verdicts_are_tables_too() -> None:
    named = name_differences([only_in_source(sighting(2))])
    topic = replace(evaluate_topic(PAIR, topic_digest(), topic_digest(lane=6)), differing=1, differences=tuple(named))
    tables = verdict_tables(Verification("blue", "green", (NamespaceVerdict("acme/orders", (topic,)),)))
    topics, differences = (
        pq.read_table(BytesIO(tables[f"{name}.parquet"])).to_pylist() for name in ("topics", "differences")
    )
    assert [(row["namespace"], row["topic"], row["verdict"], row["differing"]) for row in topics] == [
        ("acme/orders", TOPIC, "different", 1)
    ]
    assert [(row["topic"], row["kind"], row["source"], row["key"]) for row in differences] == [
        (TOPIC, "missing", "4:2", "c-9917")
    ]
