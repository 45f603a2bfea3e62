"""Verdicts: equal, different or inconclusive, with their evidence (pure). Nothing is equal by default."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import ENCODING_VERSION, TopicDigest, differing_buckets
from pulsar_fleet.messages.protocol.stored_entry import ENTRY_ENCODING_VERSION
from pulsar_fleet.messages.ranges import EngineName
from pulsar_fleet.verification.messages.differences import Difference
from pulsar_fleet.verification.request import Pair, VerifyRequest, logs_of

NONE_READ = "none"
ENCODINGS = {EngineName.MESSAGE: ENCODING_VERSION, EngineName.ENTRY: ENTRY_ENCODING_VERSION}
"""The encoding version of each engine; only digests of the same engine and encoding can be combined."""

KEYED = "keyed"
"""The encoding of digests with a key: they are never combined with others, because the key may differ."""


class Verdict(StrEnum):
    """Result of a verification."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INCONCLUSIVE = "inconclusive"

    @classmethod
    def over(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Different if any part is different; equal if there is at least one part and all are equal."""
        distinct = set(verdicts)
        if cls.DIFFERENT in distinct:
            return cls.DIFFERENT
        return cls.EQUAL if distinct == {cls.EQUAL} else cls.INCONCLUSIVE

    @classmethod
    def counts(cls, verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
        """The number of parts by verdict, also of verdicts that no part has."""
        counted = Counter(verdicts)
        return {verdict: counted[verdict] for verdict in cls}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicVerdict(Document):
    """The verdict on one topic, or on a namespace that could not be compared.

    :param source_messages: messages read between the bounds; 0 if nothing was read.
    :param differing: number of missing, extra and altered messages; `differences` describes the first of them.
    :param repeated: messages that the target stores more often than the source, if it lacks none: a replicator that
        loses its connection sends again what was not confirmed. 0 if another message differs.
    :param reordered: the messages that both clusters have are in another order; equal if that is harmless.
    :param bounds: first and last position on each cluster, as text.
    :param proof: digests of both clusters, their engine and what they cover; `after` is the run whose proof they follow
        but cannot be combined with.
    :param engine: the engine that read both clusters, and why.
    """

    topic: str
    verdict: Verdict
    source_messages: int = 0
    target_messages: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    repeated: int = 0
    reordered: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()
    bounds: Mapping[str, str] = field(default_factory=dict)
    proof: Mapping[str, Json] = field(default_factory=dict)
    engine: str = ""

    @property
    def key(self) -> tuple[str, bool]:
        """What identifies it, as `Pair.key`."""
        return self.topic, self.compacted

    @property
    def compacted(self) -> bool:
        """Whether it is on the latest values of the topic and not on its log."""
        return bool(self.proof.get("compacted"))

    @property
    def label(self) -> str:
        """The topic, and that the verdict is on its latest values if it is."""
        return f"{self.topic} (latest value of each key)" if self.compacted else self.topic

    @property
    def proven(self) -> int:
        """Messages of the source that the proof covers, with those of an earlier proof that it continues."""
        return int((self.proof.get(Side.SOURCE) or {}).get("messages", self.source_messages))


@dataclass(frozen=True, slots=True)
class NamespaceVerdict(Document):
    """The topics of one namespace."""

    PROPERTIES = ("verdict", "messages")

    namespace: str
    topics: tuple[TopicVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        """Equal only if there is at least one topic and all topics are equal."""
        return Verdict.over(topic.verdict for topic in self.topics)

    @property
    def names(self) -> frozenset[str]:
        """The topics; a compacted one may have two verdicts."""
        return frozenset(topic.topic for topic in self.topics)

    @property
    def messages(self) -> int:
        """Messages compared, counted in the source; a latest value that the log has too counts once."""
        return sum(topic.source_messages for topic in logs_of(self.topics))

    @property
    def proven(self) -> int:
        """Messages of the source that the proofs cover, with those of earlier proofs that they continue."""
        return sum(topic.proven for topic in logs_of(self.topics))


@dataclass(frozen=True, slots=True)
class Verification(Document):
    """The verdicts of one request.

    :param restriction: the restriction of a verdict `equal`, such as a sample; empty if everything was compared.
    """

    SCHEMA_VERSION = 2
    OTHER_VERSION = "verify again"
    INDENT = 1
    PROPERTIES = ("verdict", "topics")

    source: str
    target: str
    namespaces: tuple[NamespaceVerdict, ...]
    restriction: str = ""

    @property
    def topics(self) -> dict[Verdict, int]:
        """The number of topics by verdict; a namespace that could not be compared as a whole counts as one."""
        verdicts: dict[str, list[Verdict]] = defaultdict(list)
        for namespace in self.namespaces:
            for topic in namespace.topics:
                verdicts[topic.topic].append(topic.verdict)
        return Verdict.counts(Verdict.over(parts) for parts in verdicts.values())

    @property
    def verdict(self) -> Verdict:
        """Over all namespaces."""
        return Verdict.over(namespace.verdict for namespace in self.namespaces)

    @property
    def messages(self) -> int:
        """Messages compared, counted in the source."""
        return sum(namespace.messages for namespace in self.namespaces)

    @property
    def proven(self) -> int:
        """As for a namespace."""
        return sum(namespace.proven for namespace in self.namespaces)

    def revised(self, verdicts: Iterable[TopicVerdict]) -> Verification:
        """The same result with these verdicts in the place of those with the same key."""
        topics = {topic.key: topic for topic in verdicts}
        return replace(
            self,
            namespaces=tuple(
                replace(namespace, topics=tuple(topics.get(topic.key, topic) for topic in namespace.topics))
                for namespace in self.namespaces
            ),
        )


def evaluate_topic(pair: Pair, source: TopicDigest, target: TopicDigest) -> TopicVerdict:
    """The verdict from the digests of both clusters, without descriptions of differences."""
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
            "mesh": bool(pair.source_origin),
        },
        engine=f"{pair.engine.name}, {pair.engine.reason}" if pair.engine.reason else pair.engine.name.value,
    )


def _proof(pair: Pair, side: Side, topic_digest: TopicDigest) -> JsonObject:
    """The digest; if the pair continues an earlier proof, the digest of both parts."""
    whole = topic_digest.following(pair.earlier["proof"][side]) if pair.earlier else topic_digest
    encoding = KEYED if pair.keyed else ENCODINGS[pair.engine.name]
    return {"engine": pair.engine.name, "encoding": encoding, **whole.to_json()}


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
    """Combine the verdicts of topics with the problems of the request, by namespace.

    A namespace without any verdict is inconclusive.
    """
    by_namespace: dict[str, list[TopicVerdict]] = {namespace: [] for namespace in request.namespaces}
    for problem in request.problems:
        verdict = Verdict.DIFFERENT if problem.different else Verdict.INCONCLUSIVE
        by_namespace[problem.namespace].append(
            TopicVerdict(topic=problem.scope, verdict=verdict, reason=problem.reason)
        )
    for topic in topics:
        by_namespace[str(TopicName.parse(topic.topic).namespace)].append(topic)
    namespaces = tuple(
        NamespaceVerdict(name, tuple(sorted(verdicts, key=lambda topic: topic.key)))
        for name, verdicts in by_namespace.items()
    )
    return Verification(request.source.name, request.target.name, namespaces, request.coverage.restriction)
