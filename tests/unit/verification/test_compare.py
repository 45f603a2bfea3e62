"""Where whole entries are not equal, their messages decide; and which digests a later run may go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import DigestRow, RangeDigester
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EngineName, TopicBounds
from pulsar_fleet.verification.messages.compare import Mismatches, Only, judge
from pulsar_fleet.verification.messages.incremental import continuable, earlier_proofs, proofs_in
from pulsar_fleet.verification.messages.order import PlacedMessage
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import Address, ChosenEngine, Pair, VerifyRequest
from pulsar_fleet.verification.steps import record

A, B, C = (f"persistent://acme/orders/{letter}" for letter in "abc")
SUMS = {"messages": 2, "sums": "0" * 64, "order": "0" * 16}
EARLIER: JsonObject = {
    "run": "verify/1",
    "publish_time": True,
    "engine": "entry",
    "bounds": {"source": "2:0–3:9", "target": "2:0–3:9"},
    "ends": {"source": "3:9", "target": "3:9"},
    "proof": {"source": SUMS, "target": SUMS},
}
NOTHING = TopicBounds(A, Ledgers(((4, 1),)), 1, 1)
SAME, OTHER = b"0123456789abcdef", b"fedcba9876543210"


class Held:
    """Compares what it is given: topics of one entry with one message, alike but for the entries in `unlike`."""

    def __init__(self, *unlike: str) -> None:
        self._unlike = unlike
        self.asked: list[list[int]] = []

    def sum_up(self, request: VerifyRequest, pairs: Sequence[int]) -> Mapping[Side, Sequence[DigestRow]]:
        self.asked.append(list(pairs))
        return {side: [row for number in pairs for row in self._rows(request, side, number)] for side in Side}

    def _rows(self, request: VerifyRequest, side: Side, number: int) -> list[DigestRow]:
        pair, digester = request.pairs[number], RangeDigester(request.buckets)
        altered = side is Side.TARGET and pair.engine.name is EngineName.ENTRY and pair.topic in self._unlike
        digester.add([OTHER if altered else SAME])
        return digester.rows(number, 0)

    def mismatches(self, request: VerifyRequest, only: Only) -> Mapping[int, Mismatches]:
        raise AssertionError("messages are equal")

    def displaced(self, request: VerifyRequest, pair: int) -> Sequence[PlacedMessage]:
        raise AssertionError("messages are in order")


def pair(topic: str, engine: EngineName, earlier: JsonObject | None = None) -> Pair:
    bounds = TopicBounds(topic, Ledgers(((4, 1),)), 0, 1)
    return Pair(topic, bounds, bounds, publish_time=True, engine=ChosenEngine(engine), earlier=earlier)


PAIRS = (pair(A, EngineName.ENTRY), pair(B, EngineName.ENTRY), pair(C, EngineName.MESSAGE))


def judged(comparer: Held, *pairs: Pair) -> Verification:
    blue, green = (Address(name, f"http://{name}:8080", f"pulsar://{name}:6650") for name in ("blue", "green"))
    request = VerifyRequest(source=blue, target=green, namespaces=("acme/orders",), pairs=pairs)
    return judge(VerifyRequest.from_bytes(request.to_bytes()), comparer)


def of(verification: Verification, name: str) -> TopicVerdict:
    (topic,) = (topic for namespace in verification.namespaces for topic in namespace.topics if topic.topic == name)
    return topic


def test_unequal_entries_with_equal_messages_are_equal_and_say_so() -> None:
    compared = of(judged(Held(B), *PAIRS), B)
    assert (compared.verdict, compared.engine) == (Verdict.EQUAL, "message, because whole entries were not equal")
    assert "do not lie in equal entries" in compared.notes[0]


def test_a_topic_read_again_has_the_same_number_whichever_others_are() -> None:
    """Digests are kept by it: a job that was killed must not find those of another topic, or of the other engine."""
    single, both = Held(B), Held(A, B)
    judged(single, *PAIRS)
    judged(both, *PAIRS)
    assert (single.asked, both.asked) == ([[0, 1, 2], [4]], [[0, 1, 2], [3, 4]])


def test_a_continued_proof_of_entries_covers_both_parts_and_goes_on() -> None:
    verification = judged(Held(), pair(A, EngineName.ENTRY, EARLIER))
    topic = of(verification, A)
    assert (topic.proof["source"]["messages"], topic.bounds["source"]) == (3, "2:0–4:0")
    assert list(continuable(verification, "blue", "green")) == [A]


@pytest.mark.parametrize(
    ("changes", "goes_on"),
    [
        ({}, True),
        ({"source_origin": "blue"}, True),
        ({"publish_time": False}, True),
        ({"keyed": True}, False),
        ({"compacted": True}, False),
        ({"source": NOTHING}, False),
        ({"target": NOTHING}, False),
    ],
    ids=str,
)
def test_a_proof_goes_on_if_it_is_whole_and_says_what_it_compared(changes: dict[str, Any], goes_on: bool) -> None:
    changed = replace(pair(A, EngineName.MESSAGE), **changes)
    proofs = proofs_in(judged(Held(), changed), "verify/2", "blue", "green")
    assert list(proofs) == ([A] if goes_on else [])
    for proof in proofs.values():
        assert (proof["publish_time"], proof["mesh"]) == (changed.publish_time, bool(changed.source_origin))
        assert proof["ends"] == {"source": "4:0", "target": "4:0"}


def test_a_continued_proof_without_new_entries_ends_as_the_earlier_one() -> None:
    nothing = replace(pair(A, EngineName.ENTRY, EARLIER), source=NOTHING, target=NOTHING)
    assert of(judged(Held(), nothing), A).bounds == EARLIER["bounds"]


def test_a_proof_by_messages_after_one_by_entries_is_not_continued() -> None:
    verification = judged(Held(A), pair(A, EngineName.ENTRY, EARLIER))
    topic = of(verification, A)
    assert (topic.verdict, topic.proof["source"]["messages"], topic.proof["after"]) == (Verdict.EQUAL, 1, "verify/1")
    assert "mode 'full' starts again" in topic.notes[-1]
    assert continuable(verification, "blue", "green") == {}


@pytest.mark.parametrize("encoding", [0, "keyed"])
def test_digests_of_another_encoding_are_not_continued(encoding: Json) -> None:
    verification = judged(Held(), *PAIRS)
    proof = {**of(verification, A).proof, "source": {**of(verification, A).proof["source"], "encoding": encoding}}
    older = verification.revised([replace(of(verification, A), proof=proof)])
    assert list(continuable(older, "blue", "green")) == [B, C]


def test_proofs_of_another_release_alone_ask_for_a_full_run_and_say_why(records: Path) -> None:
    verification = judged(Held(), pair(A, EngineName.MESSAGE))
    proof = {
        **of(verification, A).proof,
        "source": {**of(verification, A).proof["source"], "engine": "client", "encoding": 1},
    }
    run = Run.open("verify/1")
    record(run, verification.revised([replace(of(verification, A), proof=proof)]))
    with pytest.raises(InvalidRequest, match=r"run mode 'full' first\. The digests of its proofs were made by another"):
        earlier_proofs(run.ledger, run.artefacts, NamespaceName("acme", "orders"), "blue", "green")
