"""What keeps messages on blue after every subscription has read them: such messages do not drain (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import effective_value
from pulsar_fleet.cluster.policies.model import Scope
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_comparable
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot

_RETENTION = TOPIC_BY_FIELD["retentionPolicies"]
_Documents = dict[Scope, JsonObject]


def retained_by(snapshot: Snapshot) -> dict[str, str]:
    """Namespace → `topic …`, `the namespace` or `the brokers' default`: the first that retains messages; or nothing.

    A policy of a topic is effective before the namespace's, and that before the default of the broker.
    """
    topics: defaultdict[str, dict[str, _Documents]] = defaultdict(dict)
    for row in snapshot.topic_policies:
        inside = topics[str(TopicName.parse(row.topic).namespace)]
        inside.setdefault(row.topic, {})[Scope(row.scope)] = topic_comparable(row.policies)
    return {state.name: _first(snapshot, state, topics[state.name]) for state in snapshot.namespaces}


def _first(snapshot: Snapshot, state: NamespaceState, topics: Mapping[str, _Documents]) -> str:
    namespace = comparable(state.policies, snapshot.cluster)
    for topic, scopes in topics.items():
        if any(map(_retains, _effective(snapshot, namespace, scopes))):
            return f"topic {topic}"
    if any(map(_retains, _effective(snapshot, namespace, {}))):
        return "the namespace" if _RETENTION.namespace_field in namespace else "the brokers' default"
    return ""


def _effective(snapshot: Snapshot, namespace: JsonObject, scopes: _Documents) -> Iterator[Json]:
    """The retention in effect, by the settings of each broker, or without any where none could be read."""
    for configuration in [broker.configuration for broker in snapshot.brokers] or [{}]:
        yield effective_value(
            _RETENTION,
            local=scopes.get(Scope.LOCAL, {}),
            shared=scopes.get(Scope.GLOBAL, {}),
            namespace=namespace,
            configuration=configuration,
        )


def _retains(retention: Json) -> bool:
    return bool(retention and (retention.get("retentionTimeInMinutes") or retention.get("retentionSizeInMB")))
