"""Causes in the topics themselves: partitions, termination, absence, schemas (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.names import POLICY_EVENTS, TopicName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.cluster.versions import CREATES_TOPICS_ON_TARGETS, replicators_are_excepted
from pulsar_fleet.replication.doctor.causes.pair import Assessed, Explained, NamespacePair, lag_text, on
from pulsar_fleet.replication.doctor.facts import ClusterFacts, NamespaceFacts, TargetTopic
from pulsar_fleet.replication.doctor.model import POLICY_TOPIC, RemedyCall, State

_FIELD = "schemaCompatibilityStrategy"


def find_schema_causes(pair: NamespacePair) -> Iterator[Explained]:
    """The schemas that a connected replicator cannot register, by topic."""
    for topic, rows in pair.by_topic((State.STALLED,)).items():
        read = [(row, pair.target_topic(row.facts.topic)) for row in rows]
        held = [(row, there) for row, there in read if there.missing]
        if held:
            yield _refused(pair, topic, [row for row, _ in held], held[0][1])


def _refused(pair: NamespacePair, topic: TopicName, rows: list[Assessed], there: TargetTopic) -> Explained:
    unload = [bare("PUT", f"/{row.facts.topic.path}/unload") for row in rows]
    versions = f"schema version {', '.join(str(schema.version) for schema in there.missing)}"
    evidence = f"{pair.target} lacks {versions} of {pair.source}; {lag_text(rows)}."
    assert pair.there is not None
    if refused := [schema.version for schema in there.missing if schema.accepted is False]:
        strategy = f"Strategy {there.strategy}. " if there.strategy else ""
        if len(there.missing) > 1:
            evidence = f"It does not accept version {refused[0]}. {evidence}"
        calls = _by_strategy(pair, topic, there.strategy, unload)
        return pair.diagnose(
            "schema-incompatible", strategy + evidence, explained=rows, resource=str(topic), calls=calls
        )
    if not _may_register(pair, pair.there):
        # A version that is registered after a later one may be refused for good.
        add = [with_body("POST", f"{topic.schema_path}/schema", dict(schema.body)) for schema in there.missing]
        evidence = f"{pair.target} has isAllowAutoUpdateSchema=false. {evidence}"
        calls = on(pair.target, *add, *unload)
        return pair.diagnose("schema-update-refused", evidence, explained=rows, resource=str(topic), calls=calls)
    sure = all(schema.accepted for schema in there.missing)
    would = f"{pair.target} would accept" if sure else f"It is not known whether {pair.target} would accept"
    evidence = f"{would} {versions} now; {lag_text(rows)}."
    return pair.diagnose(
        "schema-blocked", evidence, explained=rows, resource=str(topic), calls=on(pair.target, *unload)
    )


def _may_register(pair: NamespacePair, there: NamespaceFacts) -> bool:
    versions = pair.clusters.source.version, pair.clusters.target.version if pair.clusters.target else ""
    return there.allows_schema_update or (there.excepts_replicators and replicators_are_excepted(*versions))


def _by_strategy(pair: NamespacePair, topic: TopicName, theirs: str, unload: list[Call]) -> tuple[RemedyCall, ...]:
    """The source's strategy for the target, where that is another one and the topic has none of its own."""
    ours = pair.effective(_FIELD, topic, on_target=False)
    assert pair.there is not None
    own = pair.there.policies_of(topic)
    if not isinstance(ours, str) or ours == theirs or own.local.get(_FIELD) or own.shared.get(_FIELD):
        return ()
    return on(pair.target, with_body("PUT", f"/namespaces/{pair.name.path}/{_FIELD}", ours), *unload)


_SETTING = "createTopicToRemoteClusterForReplication"
_UNLINKED = (State.DISCONNECTED, State.MISSING, State.STALLED, State.UNKNOWN)


def find_topic_causes(pair: NamespacePair) -> Iterator[Explained]:
    """Partition counts that differ, in any case; absence and termination where a replicator does not work."""
    failing = pair.by_topic(_UNLINKED)
    yield from _partitions(pair, failing)
    yield from _without_topic(pair)
    counts = (pair.there.topics if pair.there else None) or {}
    ours = pair.here.topics or {}
    for topic, rows in failing.items():
        if _differ(ours.get(topic), counts.get(topic)):
            continue
        if ended := [row for row in rows if pair.target_topic(row.facts.topic).terminated]:
            evidence = f"It is terminated on {pair.target}; {lag_text(ended)}."
            yield pair.diagnose("topic-terminated", evidence, explained=ended, resource=str(topic))
        elif absent := [row for row in rows if pair.target_topic(row.facts.topic).exists is False]:
            yield from _absent(pair, topic, absent)


def _partitions(pair: NamespacePair, failing: dict[TopicName, list[Assessed]]) -> Iterator[Explained]:
    if pair.there is None or pair.here.topics is None or pair.there.topics is None:
        return
    for topic, ours in sorted(pair.here.topics.items()):
        theirs = pair.there.topics.get(topic)
        if not topic.persistent or not _differ(ours, theirs) or pair.target not in pair.here.targets_of(topic):
            continue
        assert theirs is not None
        evidence = f"{pair.source} has {_count(ours)}, {pair.target} {_count(theirs)}."
        rows = failing.get(topic, [])
        if not ours or not theirs:
            id_ = POLICY_TOPIC if topic.local == POLICY_EVENTS else "partitioned-on-one-side"
            yield pair.diagnose(id_, evidence, explained=rows, resource=str(topic))
            continue
        fewer = pair.source if ours < theirs else pair.target
        calls = on(fewer, with_body("POST", f"/{topic.path}/partitions", max(ours, theirs)))
        yield pair.diagnose("partitions-differ", evidence, explained=rows, resource=str(topic), calls=calls)


def _absent(pair: NamespacePair, topic: TopicName, rows: list[Assessed]) -> Iterator[Explained]:
    reason = _why_not_created(pair.clusters.source)
    if not reason:
        return
    count = (pair.here.topics or {}).get(topic, 0)
    if count:
        call = with_body("PUT", f"/{topic.path}/partitions", count, createLocalTopicOnly="true")
    else:
        call = bare("PUT", f"/{topic.path}")
    evidence = f"{pair.target} does not have it, and {reason}; {lag_text(rows)}."
    # The target creates `__change_events` when it loads the first topic of the namespace.
    calls = () if topic.is_system else on(pair.target, call)
    yield pair.diagnose("topic-missing", evidence, explained=rows, resource=str(topic), calls=calls)


def _why_not_created(source: ClusterFacts) -> str:
    """Why replicators of the source create no topic on the target; empty if they do."""
    if not CREATES_TOPICS_ON_TARGETS.holds(source.version):
        runs = f"brokers of {source.name} run {source.version or 'a version that is not known'}"
        return f"{runs}, whose replicators create no topic"
    if source.configuration is None:
        return f"it is not known whether brokers of {source.name} create it: their settings could not be read"
    if source.setting(_SETTING) == "false":
        return f"brokers of {source.name} have {_SETTING}=false"
    return ""


def _without_topic(pair: NamespacePair) -> Iterator[Explained]:
    """Partitions that automatic creation made for replicators, without their partitioned topic."""
    theirs = (pair.there.topics if pair.there else None) or {}
    for topic, count in sorted((pair.here.topics or {}).items()):
        stray = [partition for partition in topic.partitions(count) if partition in theirs] if count else []
        if stray and topic not in theirs and pair.target in pair.here.targets_of(topic):
            evidence = (
                f"{pair.source} has {_count(count)}; {pair.target} has {listed([row.local for row in stray])}, and no "
                f"topic {topic.local}."
            )
            yield pair.diagnose("partitions-without-topic", evidence, resource=str(topic))


def _differ(ours: int | None, theirs: int | None) -> bool:
    return ours is not None and theirs is not None and ours != theirs


def _count(partitions: int) -> str:
    return counted(partitions, "partition") if partitions else "a topic without partitions"
