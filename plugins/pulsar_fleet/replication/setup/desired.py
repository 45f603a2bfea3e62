"""What a cluster should have before replication begins: all that a member has, in the cluster's own terms (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.replication.request import Request
from pulsar_fleet.snapshot.model import NamespaceState, SchemaState, Snapshot, TopicPolicyState

DEDUPLICATION = "deduplicationEnabled"
RATE = "replicatorDispatchRate"


def selected(snapshot: Snapshot, request: Request) -> Snapshot:
    """Without the topics that are not replicated."""
    return replace(
        snapshot,
        topics=tuple(row for row in snapshot.topics if request.has_topic(TopicName.parse(row.name))),
        schemas=tuple(row for row in snapshot.schemas if request.has_topic(TopicName.parse(row.topic))),
        topic_policies=tuple(row for row in snapshot.topic_policies if request.has_topic(TopicName.parse(row.topic))),
    )


def desired_contents(members: Sequence[Snapshot], target: Snapshot, request: Request) -> Snapshot:
    """The namespaces, topics, schemas and topic policies of the members, as the target should have them.

    Where several members have a resource, the first that has it decides; of a schema history the longest decides.
    A new namespace replicates to nothing yet: its list is set when every cluster has it.
    """
    sources = [member for member in members if member.cluster != target.cluster]
    translated = [translate_snapshot(member, target)[0] for member in sources]
    namespaces = _first(translated, lambda one: one.namespaces, lambda row: row.name)
    topics = _first(translated, lambda one: one.topics, lambda row: row.name)
    return replace(
        target,
        namespaces=tuple(_alone(row, target.cluster, request) for row in namespaces),
        topics=tuple(topics),
        schemas=tuple(_longest_histories(translated)),
        topic_policies=tuple(
            _without_list(row)
            for row in _first(translated, lambda one: one.topic_policies, lambda row: (row.topic, row.scope))
        ),
        subscriptions=(),
        inventory=tuple(_first(translated, lambda one: one.inventory, lambda row: (row.kind, row.namespace, row.name))),
        notes=(),
    )


def settings_of(own: str, request: Request) -> JsonObject:
    """The policies that the run sets on every namespace of the cluster `own`, as in a policies document."""
    rate = request.rate()
    return {
        **({DEDUPLICATION: True} if request.deduplication else {}),
        **({RATE: {own: rate}} if rate else {}),
    }


def _alone(state: NamespaceState, own: str, request: Request) -> NamespaceState:
    kept = {field: value for field, value in state.policies.items() if field != "allowed_clusters"}
    return replace(state, policies={**kept, **settings_of(own, request), "replication_clusters": [own]})


def _without_list(state: TopicPolicyState) -> TopicPolicyState:
    return replace(state, policies={field: value for field, value in state.policies.items() if field != TOPIC_CLUSTERS})


def _first(
    snapshots: Iterable[Snapshot], rows: Callable[[Snapshot], Iterable[Any]], key: Callable[[Any], Any]
) -> list[Any]:
    chosen: dict[Any, Any] = {}
    for snapshot in snapshots:
        for row in rows(snapshot):
            chosen.setdefault(key(row), row)
    return [chosen[name] for name in sorted(chosen)]


def _longest_histories(snapshots: Iterable[Snapshot]) -> list[SchemaState]:
    histories: dict[str, list[SchemaState]] = {}
    for snapshot in snapshots:
        by_topic: dict[str, list[SchemaState]] = {}
        for row in snapshot.schemas:
            by_topic.setdefault(row.topic, []).append(row)
        for topic, history in by_topic.items():
            if len(history) > len(histories.get(topic, ())):
                histories[topic] = history
    return [row for topic in sorted(histories) for row in histories[topic]]
