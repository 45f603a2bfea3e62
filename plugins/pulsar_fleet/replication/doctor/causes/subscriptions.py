"""Causes that keep the positions of replicated subscriptions from being copied (pure).

A broker copies a position when every cluster to which it sends the topic has answered through its own replicator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.replication.doctor.causes.namespaces import completing_list
from pulsar_fleet.replication.doctor.causes.pair import Assessed, ClusterPair, Explained, NamespacePair, lag_text
from pulsar_fleet.replication.doctor.facts import FleetFacts, NamespaceFacts
from pulsar_fleet.replication.doctor.model import State

_Rows = Mapping[tuple[str, str, TopicName], Assessed]


class _Answer(StrEnum):
    """Whether a cluster of the list answers."""

    YES = "yes"
    NEVER = "never"
    """It does not replicate back."""
    HELD = "held"
    """It would, and a replicator to it or from it does not work."""


@dataclass
class _Topic:
    """A topic with replicated subscriptions on one cluster, over its partitions.

    :param seconds: subscription → the shortest time since its position moved, None if it did not since the load.
    :param rows: target → the replicators to it, or from it, that do not work.
    """

    answers: dict[str, _Answer] = field(default_factory=dict)
    seconds: dict[str, float | None] = field(default_factory=dict)
    rows: dict[str, list[Assessed]] = field(default_factory=dict)


def find_subscription_causes(facts: FleetFacts, assessed: Sequence[Assessed]) -> Iterator[Explained]:
    """For each topic with replicated subscriptions: a cluster of its list that does not answer, or cannot now."""
    rows = {(row.facts.source, row.facts.target, row.facts.topic): row for row in assessed}
    topics: dict[tuple[str, TopicName], _Topic] = {}
    for (own, partition), moved in facts.subscriptions.items():
        here = facts.namespaces.get((own, partition.namespace))
        if here is not None:
            _add(topics.setdefault((own, partition.parent), _Topic()), facts, here, partition, rows, moved)
    for (own, name), topic in sorted(topics.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        here = facts.namespaces[own, name.namespace]
        partners = [target for target, answer in topic.answers.items() if answer is _Answer.YES]
        for target, answer in topic.answers.items():
            clusters = ClusterPair(facts=facts, source=facts.clusters[own], target_name=target)
            there = facts.namespaces.get((target, name.namespace))
            pair = NamespacePair(clusters=clusters, here=here, there=there)
            if answer is _Answer.HELD and _matters(topic, target):
                evidence = f"{_who(topic, here, name)}; {lag_text(topic.rows[target])}."
                yield pair.diagnose("replicated-subscriptions-blocked", evidence, resource=str(name))
            elif answer is _Answer.NEVER:
                yield _unanswered(pair, topic, name, partners)


def _matters(topic: _Topic, target: str) -> bool:
    """A replicator to the only other cluster holds messages too; one that leads back holds positions alone."""
    return len(topic.answers) > 1 or any(row.facts.source == target for row in topic.rows[target])


def _add(
    topic: _Topic,
    facts: FleetFacts,
    here: NamespaceFacts,
    partition: TopicName,
    rows: _Rows,
    moved: Mapping[str, float | None],
) -> None:
    for name, seconds in moved.items():
        known = [value for value in (seconds, topic.seconds.get(name)) if value is not None]
        topic.seconds[name] = min(known, default=None)
    for target in here.targets_of(partition):
        held = [row for row in _both_ways(rows, here.cluster, target, partition) if _is_held(row)]
        topic.rows.setdefault(target, []).extend(held)
        answer = _Answer.NEVER if _is_silent(facts, here, target, partition, rows) else _Answer.YES
        if held and answer is _Answer.YES:
            answer = _Answer.HELD
        if topic.answers.get(target, _Answer.YES) is _Answer.YES:
            topic.answers[target] = answer


def _both_ways(rows: _Rows, own: str, target: str, partition: TopicName) -> list[Assessed]:
    return [row for key in ((own, target, partition), (target, own, partition)) if (row := rows.get(key))]


def _is_held(row: Assessed) -> bool:
    return row.state.is_fault or row.state is State.UNKNOWN


def _is_silent(facts: FleetFacts, here: NamespaceFacts, target: str, partition: TopicName, rows: _Rows) -> bool:
    """Whether the target does not replicate back: by its list, or where it was not read by its missing connection."""
    there = facts.namespaces.get((target, here.name))
    if there is not None and there.exists:
        return here.cluster not in there.clusters_of(partition)
    if there is not None:
        return False
    row = rows.get((here.cluster, target, partition))
    works = row is not None and row.facts.last is not None and not _is_held(row)
    return works and row is not None and row.facts.last is not None and not row.facts.last.inbound


def _unanswered(pair: NamespacePair, topic: _Topic, name: TopicName, partners: Sequence[str]) -> Explained:
    """A fault only where another cluster of the list answers: elsewhere no position was ever copied."""
    there = pair.there
    lists = (
        f"on {pair.target} {', '.join(there.clusters_of(name))}" if there else f"{pair.target} has no connection to it"
    )
    evidence = f"{_who(topic, pair.here, name)}, {lists}."
    if not partners:
        return pair.diagnose("replicated-subscriptions-one-way", evidence, resource=str(name))
    moved = [f"on {cluster} {_ages(pair.facts, cluster, name, topic)}" for cluster in (pair.source, *partners)]
    by_namespace = pair.here.policies_of(name).clusters is None and there is not None
    calls = completing_list(pair, there) if by_namespace and there is not None else ()
    evidence = f"{evidence} Positions last moved {', '.join(moved)}."
    return pair.diagnose("replicated-subscriptions-unanswered", evidence, resource=str(name), calls=calls)


def _who(topic: _Topic, here: NamespaceFacts, name: TopicName) -> str:
    return f"{', '.join(sorted(topic.seconds))}; list on {here.cluster} {', '.join(here.clusters_of(name))}"


def _ages(facts: FleetFacts, cluster: str, name: TopicName, topic: _Topic) -> str:
    """When the same subscriptions moved last on a cluster: `3 s ago`."""
    ages = [
        seconds
        for (own, partition), moved in facts.subscriptions.items()
        if own == cluster and partition.parent == name
        for subscription, seconds in moved.items()
        if subscription in topic.seconds and seconds is not None
    ]
    return f"{duration(min(ages))} ago" if ages else "not since the topic was loaded"
