"""Schemas of the source that hold a replicator, because the target does not accept them (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.versions import replicators_are_excepted
from pulsar_fleet.replication.doctor.causes.pair import Assessed, Explained, NamespacePair, lag_text, on
from pulsar_fleet.replication.doctor.facts import NamespaceFacts
from pulsar_fleet.replication.doctor.model import RemedyCall, State
from pulsar_fleet.replication.doctor.replicators import TargetTopic

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
