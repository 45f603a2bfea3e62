"""Verdicts: equal, different or inconclusive, with the evidence they rest on (pure). Nothing is equal by default."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import ENCODING_VERSION, TopicDigest, differing_buckets
from pulsar_fleet.messages.engines.stored_entry import ENTRY_ENCODING_VERSION
from pulsar_fleet.messages.ranges import EngineName
from pulsar_fleet.verification.messages.differences import Difference
from pulsar_fleet.verification.request import Pair, VerifyRequest

SCHEMA_VERSION = 2
NONE_READ = "none"
ENCODINGS = {EngineName.CLIENT: ENCODING_VERSION, EngineName.ENTRY: ENTRY_ENCODING_VERSION}
"""What an engine hashes; digests of the same engine and encoding can be put together."""

KEYED = "keyed"
"""The encoding of digests with a key: they are never put together with others, since the key may be another."""


class Verdict(StrEnum):
    """Result of a verification."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INCONCLUSIVE = "inconclusive"

    @classmethod
    def over(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """One difference makes all different; equal needs at least one part, and every part equal."""
        found = set(verdicts)
        if cls.DIFFERENT in found:
            return cls.DIFFERENT
        return cls.EQUAL if found == {cls.EQUAL} else cls.INCONCLUSIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicVerdict:
    """What was found for one topic, or for a namespace as a whole when it could not be looked into.

    :param source_messages: messages read between the bounds; 0 where nothing was read.
    :param differing: how many messages are missing, extra or altered; `differences` names the first of them.
    :param reordered: the messages that both sides hold lie in another order.
    :param bounds: first and last position on each side, as text.
    :param proof: digests of both sides, which engine made them, and what they are of; `after` names the run whose proof
        they come after and could not be put together with.
    :param engine: who read both sides, and why.
    """

    topic: str
    verdict: Verdict
    source_messages: int = 0
    target_messages: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    reordered: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()
    bounds: Mapping[str, str] = field(default_factory=dict)
    proof: Mapping[str, Json] = field(default_factory=dict)
    engine: str = ""

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "differences": [each.to_json() for each in self.differences]}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        differences = tuple(Difference.from_json(each) for each in found["differences"])
        notes = tuple(found["notes"])
        return cls(**{**found, "verdict": Verdict(found["verdict"]), "differences": differences, "notes": notes})


@dataclass(frozen=True, slots=True)
class NamespaceVerdict:
    """The topics of one namespace."""

    namespace: str
    topics: tuple[TopicVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        """Equal only if every topic is, and there is at least one finding."""
        return Verdict.over(topic.verdict for topic in self.topics)

    @property
    def messages(self) -> int:
        """Messages compared, counted in the source."""
        return sum(topic.source_messages for topic in self.topics)


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdicts of one request.

    :param restriction: what an equality is restricted to, such as a sample; empty where all was compared.
    """

    source: str
    target: str
    namespaces: tuple[NamespaceVerdict, ...]
    restriction: str = ""

    @property
    def verdict(self) -> Verdict:
        """Over all namespaces."""
        return Verdict.over(namespace.verdict for namespace in self.namespaces)

    @property
    def messages(self) -> int:
        """Messages compared, counted in the source."""
        return sum(namespace.messages for namespace in self.namespaces)

    def revised(self, topics: Mapping[str, TopicVerdict]) -> Verification:
        """The same verdicts, but those of `topics` (by name) by what came up after the reading."""
        return replace(
            self,
            namespaces=tuple(
                replace(namespace, topics=tuple(topics.get(topic.topic, topic) for topic in namespace.topics))
                for namespace in self.namespaces
            ),
        )

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        namespaces = [
            {
                "namespace": each.namespace,
                "verdict": each.verdict,
                "messages": each.messages,
                "topics": [topic.to_json() for topic in each.topics],
            }
            for each in self.namespaces
        ]
        head = {"schema_version": SCHEMA_VERSION, "source": self.source, "target": self.target}
        head["restriction"] = self.restriction
        return json.dumps({**head, "verdict": self.verdict, "namespaces": namespaces}, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; verdicts of namespaces are derived anew from their topics.

        A document of another release is `InvalidRequest`.
        """
        found: JsonObject = json.loads(content)
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The verdict has version {found.get('schema_version')!r}, this release reads {SCHEMA_VERSION}: "
                "verify again."
            )
        namespaces = tuple(
            NamespaceVerdict(each["namespace"], tuple(TopicVerdict.from_json(topic) for topic in each["topics"]))
            for each in found["namespaces"]
        )
        return cls(str(found["source"]), str(found["target"]), namespaces, str(found["restriction"]))


def judge_topic(pair: Pair, source: TopicDigest, target: TopicDigest) -> TopicVerdict:
    """The verdict from both sides' digests, still without named differences."""
    verdict, reason, reordered = _compare(source, target)
    return TopicVerdict(
        topic=pair.topic,
        verdict=verdict,
        source_messages=source.all.count,
        target_messages=target.all.count,
        reordered=reordered,
        reason=reason,
        notes=pair.notes,
        bounds={side.value: _bounds(pair, side) for side in Side},
        proof={
            Side.SOURCE.value: _proof(pair, Side.SOURCE, source),
            Side.TARGET.value: _proof(pair, Side.TARGET, target),
            "publish_time": pair.publish_time,
            "compacted": pair.compacted,
        },
        engine=f"{pair.engine}, {pair.engine_reason}" if pair.engine_reason else pair.engine.value,
    )


def _proof(pair: Pair, side: Side, found: TopicDigest) -> JsonObject:
    """The digest; where the pair continues an earlier proof, of all that was proven since the first one."""
    whole = found.following(pair.earlier["proof"][side]) if pair.earlier else found
    encoding = KEYED if pair.keyed else ENCODINGS[pair.engine]
    return {"engine": pair.engine, "encoding": encoding, **whole.to_json()}


def _bounds(pair: Pair, side: Side) -> str:
    bounds = pair.bounds(side)
    if pair.earlier:
        begin, _, end = pair.earlier["bounds"][side].partition("–")
        return f"{begin}–{bounds.last or end}"
    return f"{bounds.first}–{bounds.last}" if len(bounds) else NONE_READ


def _compare(source: TopicDigest, target: TopicDigest) -> tuple[Verdict, str, bool]:
    if problems := (*source.problems, *target.problems):
        return Verdict.INCONCLUSIVE, problems[0], False
    if differing_buckets(source, target):
        return Verdict.DIFFERENT, "", False
    if source.all != target.all:
        return Verdict.INCONCLUSIVE, "the digests of all messages contradict those of the buckets", False
    if source.order != target.order:
        return Verdict.DIFFERENT, "the same messages in another order", True
    return Verdict.EQUAL, "", False


def assemble(request: VerifyRequest, topics: Sequence[TopicVerdict]) -> Verification:
    """Put the verdicts of topics and what was decided before reading together, by namespace.

    A namespace about which nothing is known is inconclusive.
    """
    found: dict[str, list[TopicVerdict]] = {namespace: [] for namespace in request.namespaces}
    for problem in request.problems:
        verdict = Verdict.DIFFERENT if problem.different else Verdict.INCONCLUSIVE
        found[problem.namespace].append(TopicVerdict(topic=problem.scope, verdict=verdict, reason=problem.reason))
    for topic in topics:
        found[str(TopicName.parse(topic.topic).namespace)].append(topic)
    namespaces = tuple(
        NamespaceVerdict(name, tuple(sorted(each, key=lambda topic: topic.topic))) for name, each in found.items()
    )
    return Verification(request.source.name, request.target.name, namespaces, request.coverage.restriction)
