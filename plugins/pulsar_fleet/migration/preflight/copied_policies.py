"""The policies under which a run copies and compares: as they are on blue, and as they will be on green (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import Layer
from pulsar_fleet.cluster.policies.topic_policies import Scope, topic_comparable
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.preflight.target_limits import Effective
from pulsar_fleet.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True)
class Side:
    """The policies of a cluster as they are while the run copies and compares."""

    name: str
    namespaces: Mapping[str, Mapping[str, Json]]
    topics: Mapping[tuple[str, str], Mapping[str, Json]]
    subscriptions: Mapping[str, frozenset[str]]
    configuration: JsonObject

    @classmethod
    def of(cls, snapshot: Snapshot, existing: Snapshot) -> Side:
        """The policies of one snapshot; brokers and subscriptions of the other, which is of the same cluster."""
        subscriptions: dict[str, set[str]] = {}
        for row in existing.subscriptions:
            subscriptions.setdefault(row.partition, set()).add(row.name)
        return cls(
            existing.cluster,
            {state.name: comparable(state.policies, snapshot.cluster) for state in snapshot.namespaces},
            {(state.topic, state.scope): topic_comparable(state.policies) for state in snapshot.topic_policies},
            {partition: frozenset(names) for partition, names in subscriptions.items()},
            existing.brokers[0].configuration if existing.brokers else {},
        )

    def layers(self, topic: TopicName, field: str) -> dict[Layer, Json]:
        """The layers that set a topic policy, the effective one first."""
        return self.effective(topic).layers(field)

    def value(self, topic: TopicName, field: str) -> Json:
        """The effective value of a topic policy."""
        return self.effective(topic).value(field)

    def effective(self, owner: NamespaceName | TopicName) -> Effective:
        """What is in effect for a topic, or for those of a namespace that have no policies."""
        topic = str(owner.parent) if isinstance(owner, TopicName) else ""
        return Effective(
            cluster=self.name,
            local=self.topics.get((topic, Scope.LOCAL), {}),
            shared=self.topics.get((topic, Scope.GLOBAL), {}),
            namespace=self.namespaces.get(str(owner.namespace if isinstance(owner, TopicName) else owner), {}),
            configuration=self.configuration,
        )


def sides_of(view: View) -> dict[str, Side]:
    """Blue and green by these words; the run itself copies blue's policies where it prepares green."""
    blue, green = view.blue.snapshot, view.green.snapshot
    planned = view.pair().translated if view.expected.prepares_green else green
    return {"blue": Side.of(blue, blue), "green": Side.of(planned, green)}


def copied_in(view: View) -> tuple[NamespaceFacts, ...]:
    """The namespaces whose messages are replicated before the cut-over."""
    return tuple(facts for facts in view.moving if view.replicates(facts.namespace))


def until_ended(view: View) -> str:
    """The run copies blue's policies to green where it prepares green; the two must stay equal."""
    on = view.blue.name + ("" if view.expected.prepares_green else f" and {view.green.name}")
    return f"on {on} until the run has ended, then set it back on {view.green.name}"


def on_every_side(view: View, call: str) -> str:
    """The call on blue, from which the run prepares green; on green too, where it exists: the two must stay equal."""
    sides = (view.blue,) if view.expected.prepares_green else (view.blue, view.green)
    return "; ".join(f"{side.name}: {call}" for side in sides)
