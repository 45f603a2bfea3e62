"""What the target refuses of a replicator, by the table that plans ask too (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.preflight.target_limits import TABLE, Exceeded, Limit
from pulsar_fleet.replication.doctor.causes.pair import Assessed, Explained, NamespacePair, lag_text
from pulsar_fleet.replication.doctor.model import State

_MESSAGE, _LOWER = "message-refused", "limit-lower-on-target"
_NOT_CONNECTED = (State.DISCONNECTED, State.MISSING, State.UNKNOWN)
_EVERY = (*_NOT_CONNECTED, State.STALLED)


def find_refusals(pair: NamespacePair) -> Iterator[Explained]:
    """Limits by which the target refuses the replicator, or a message of it, by topic."""
    for topic, rows in pair.by_topic(_EVERY).items():
        rows = [row for row in rows if not pair.target_topic(row.facts.topic).terminated]
        unlinked = [row for row in rows if row.state in _NOT_CONNECTED]
        # What the target confirms nothing of is sent again: a replicator that sends nothing has another cause.
        resending = [row for row in rows if row.state is State.STALLED and row.facts.resent is not False]
        resending = [row for row in resending if not pair.target_topic(row.facts.topic).missing]
        for limit in TABLE:
            held = resending if limit.cause == _MESSAGE else unlinked
            exceeded = _exceeded(pair, limit, topic) if held else None
            if exceeded:
                evidence = f"{exceeded.evidence}; {lag_text(held)}."
                yield pair.diagnose(limit.cause, evidence, explained=held, resource=str(topic))
        absent = [row for row in unlinked if pair.target_topic(row.facts.topic).exists is False]
        yield from _too_many(pair, topic, absent)


def find_lower_limits(pair: NamespacePair) -> Iterator[Explained]:
    """Limits of the target for messages that the source does not have, also where every replicator works."""
    there = (pair.there.topic_policies or {}) if pair.there else {}
    for limit in (limit for limit in TABLE if limit.cause == _MESSAGE):
        whole = _exceeded(pair, limit, None)
        if whole:
            yield pair.diagnose(_LOWER, f"{whole.evidence}.")
        for topic in sorted({*(pair.here.topic_policies or {}), *there}):
            own = _exceeded(pair, limit, topic) if pair.target in pair.here.targets_of(topic) else None
            if own and own != whole:
                yield pair.diagnose(_LOWER, f"{own.evidence}.", resource=str(topic))


def _exceeded(pair: NamespacePair, limit: Limit, topic: TopicName | None) -> Exceeded | None:
    source, target = (pair.in_effect(topic, on_target=on_target) for on_target in (False, True))
    if source is None or target is None:
        return None
    return limit.exceeded(source, target)


def _too_many(pair: NamespacePair, topic: TopicName, absent: list[Assessed]) -> Iterator[Explained]:
    if not absent or pair.there is None or pair.there.topics is None or pair.clusters.target is None:
        return
    own = pair.there.policies.get("max_topics_per_namespace")
    most = int(own if own is not None else pair.clusters.target.setting("maxTopicsPerNamespace") or 0)
    existing = sum(max(1, count) for name, count in pair.there.topics.items() if not name.is_system)
    if 0 < most < existing + len(absent):
        count = f"{pair.target} has {counted(existing, 'topic')} and partitions, of {most:,} allowed"
        yield pair.diagnose("too-many-topics", f"{count}; {lag_text(absent)}.", explained=absent, resource=str(topic))
