"""The policies that are in effect for the topics of a snapshot, by the settings of each broker (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import effective_value
from pulsar_fleet.cluster.policies.model import Scope, TopicPolicy
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.snapshot.model import Snapshot


class EffectivePolicies:
    """A policy of a topic is effective before the namespace's, and that before the default of the broker.

    :ivar namespaces: namespace → its comparable policies.
    :ivar topics: namespace → topic with policies of its own → these by their scope.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.namespaces = {state.name: comparable(state.policies, snapshot.cluster) for state in snapshot.namespaces}
        self.topics: defaultdict[str, dict[str, dict[Scope, JsonObject]]] = defaultdict(dict)
        for row in snapshot.topic_policies:
            inside = self.topics[str(TopicName.parse(row.topic).namespace)]
            inside.setdefault(row.topic, {})[Scope(row.scope)] = topic_comparable(row.policies)
        self._configurations: list[Mapping[str, Json]] = [broker.configuration for broker in snapshot.brokers] or [{}]

    def values(self, policy: TopicPolicy, namespace: str, topic: str = "") -> Iterator[Json]:
        """The value by the settings of each broker, or without any where none could be read.

        :param topic: empty for the topics without policies of their own.
        """
        scopes = self.topics[namespace].get(topic, {})
        for configuration in self._configurations:
            yield effective_value(
                policy,
                local=scopes.get(Scope.LOCAL, {}),
                shared=scopes.get(Scope.GLOBAL, {}),
                namespace=self.namespaces.get(namespace, {}),
                configuration=configuration,
            )
