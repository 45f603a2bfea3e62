"""Blue's settings before a migration overrode them, enough to restore them exactly (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.overrides import NamespaceOverrides, without_added
from pulsar_fleet.snapshot.model import Snapshot, TenantState


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalSettings(Document):
    """The original values of what the migration overrides in blue's namespaces.

    :param green: the cluster that the run adds to tenants and to the namespaces' replication clusters.
    :param publish_rates: namespace → its publish rate, None where there was none.
    :param replication: namespace → its `replication_clusters`.
    :param allowed: tenant → the clusters that it allows.
    :param inactive: namespace → its inactive-topic policies, None where there were none.
    :param topic_rates: topic with its own publish rate → the local rate, None where only a global rate is set.
    :param topic_inactive: topic with its own inactive-topic policies → the local policies, None as above.
    :param topic_replication: topic with its own list of clusters, local or global, without green → the list.
    """

    SCHEMA_VERSION = 3
    OTHER_VERSION = "start a new run"

    green: str
    publish_rates: Mapping[str, JsonObject | None]
    replication: Mapping[str, list[str]]
    allowed: Mapping[str, list[str]] = field(default_factory=dict)
    inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_replication: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces whose settings it holds."""
        return tuple(NamespaceName.parse(text) for text in self.publish_rates)

    def without(self, names: Collection[str]) -> OriginalSettings:
        """Those of the other namespaces, and of tenants that have none of these namespaces."""
        tenants = {NamespaceName.parse(name).tenant for name in names}
        return replace(
            self,
            publish_rates={name: rate for name, rate in self.publish_rates.items() if name not in names},
            allowed={tenant: clusters for tenant, clusters in self.allowed.items() if tenant not in tenants},
        )

    def own_rates(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have their own publish rate."""
        return _within(self.topic_rates, namespace)

    def own_inactive(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have their own inactive-topic policies."""
        return _within(self.topic_inactive, namespace)

    def own_lists(self, namespace: NamespaceName) -> dict[TopicName, list[str]]:
        """Topics of a namespace that have their own list of clusters, without green."""
        return _within(self.topic_replication, namespace)

    def record(self, namespace: NamespaceName, *, run: str, since: str, cluster: str) -> NamespaceOverrides:
        """The record of a namespace that is stored on the cluster."""
        name = str(namespace)
        return NamespaceOverrides(
            run=run,
            since=since,
            cluster=cluster,
            replicates_to=self.green,
            publish_rate=self.publish_rates[name],
            inactive=self.inactive[name],
            replication=self.replication[name],
            allowed=self.allowed.get(namespace.tenant),
            topic_rates={str(topic): rate for topic, rate in self.own_rates(namespace).items()},
            topic_inactive={str(topic): value for topic, value in self.own_inactive(namespace).items()},
            topic_replication={str(topic): clusters for topic, clusters in self.own_lists(namespace).items()},
        )

    @classmethod
    def recorded(cls, records: Mapping[str, NamespaceOverrides]) -> OriginalSettings:
        """From the records of namespaces, by name."""
        return cls(
            green=next((record.replicates_to for record in records.values()), ""),
            publish_rates={name: record.publish_rate for name, record in records.items()},
            replication={name: record.replication for name, record in records.items()},
            allowed={
                NamespaceName.parse(name).tenant: record.allowed
                for name, record in records.items()
                if record.allowed is not None
            },
            inactive={name: record.inactive for name, record in records.items()},
            topic_rates={topic: rate for record in records.values() for topic, rate in record.topic_rates.items()},
            topic_inactive={topic: own for record in records.values() for topic, own in record.topic_inactive.items()},
            topic_replication={
                topic: clusters for record in records.values() for topic, clusters in record.topic_replication.items()
            },
        )


def with_original_tenants(snapshot: Snapshot, original: OriginalSettings) -> Snapshot:
    """The snapshot of blue with tenants that do not allow green, unless they did before.

    Snapshots have the original policies of namespaces and topics, which are recorded on the cluster; a tenant has no
    place for a record.
    """
    return replace(snapshot, tenants=tuple(_original_tenant(state, original) for state in snapshot.tenants))


def _original_tenant(state: TenantState, original: OriginalSettings) -> TenantState:
    allowed = original.allowed.get(state.name)
    if allowed is None:
        return state
    return replace(state, allowed_clusters=tuple(without_added(state.allowed_clusters, original.green, allowed)))


def _within(topics: Mapping[str, Json], namespace: NamespaceName) -> dict[TopicName, Json]:
    named = {TopicName.parse(text): value for text, value in topics.items()}
    return {topic: value for topic, value in named.items() if topic.namespace == namespace}
