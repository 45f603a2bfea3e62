"""Sensors of clusters for your own DAGs: backlog, subscription, replication, termination, phase of a migration."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from pulsar_fleet.airflow.conditions import (
    BacklogCondition,
    Condition,
    PhaseCondition,
    ReplicationCondition,
    SubscriptionCondition,
    TerminationCondition,
    arguments_of,
    open_condition,
)
from pulsar_fleet.airflow.sensors.waiting import WaitingSensor
from pulsar_fleet.cluster.errors import Unavailable

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from pulsar_fleet.cluster.json import JsonObject


class ClusterSensor(WaitingSensor):
    """Wait for a condition of a cluster; a retry waits again from the beginning and changes nothing.

    A cluster that does not answer is asked again until the timeout; what the connection may not read fails the task.
    Its XCom is a sentence with the figures.

    :param pulsar_conn_id: the connection (templated).
    """

    template_fields: Sequence[str] = ("pulsar_conn_id",)

    def __init__(
        self, *, pulsar_conn_id: str = "pulsar_default", poke_interval: timedelta | float = 30.0, **kwargs: Any
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.pulsar_conn_id = pulsar_conn_id

    @abstractmethod
    def condition(self) -> Condition:
        """What to wait for, by the rendered fields; an invalid one is `InvalidRequest`."""

    def read(self, context: Context) -> tuple[bool, str]:
        """Read the condition once; a cluster that does not answer is no error."""
        from pulsar_fleet.airflow.hooks.pulsar import cluster_connection

        condition = self.condition()
        cluster: Any = cluster_connection(self.pulsar_conn_id) if condition.of_cluster else None
        try:
            return asyncio.run(condition.read(cluster))
        except Unavailable as error:
            return False, str(error)

    def trigger(self, context: Context, end: float) -> BaseTrigger:
        """The trigger that reads the condition."""
        arguments = arguments_of(self.condition(), self.pulsar_conn_id)
        return self.look_again(open_condition, arguments, end)

    def resume(self, context: Context, event: JsonObject) -> str:
        """Return what the trigger read, or fail with its sentence."""
        self.require_done(event)
        return str(event["message"])


class PulsarBacklogSensor(ClusterSensor):
    """Wait until a subscription has at most, or at least, so many entries to acknowledge: drained, or worth a task.

    :param topic: a topic, partitioned or not (templated).
    :param subscription: its subscription (templated).
    :param at_most: entries; set this or `at_least`.
    :param at_least: entries, also of delayed messages and of those that a consumer holds; a subscription that does not
        exist yet is waited for.
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "topic", "subscription")

    def __init__(
        self, *, topic: str, subscription: str, at_most: int | None = None, at_least: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.subscription = subscription
        self.at_most = at_most
        self.at_least = at_least

    def condition(self) -> Condition:
        """The backlog."""
        return BacklogCondition(
            topic=self.topic, subscription=self.subscription, at_most=self.at_most, at_least=self.at_least
        )


class PulsarSubscriptionSensor(ClusterSensor):
    """Wait until a subscription exists, for example until an application has started for the first time.

    :param topic: a topic, which need not exist yet (templated).
    :param subscription: its subscription (templated).
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "topic", "subscription")

    def __init__(self, *, topic: str, subscription: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.subscription = subscription

    def condition(self) -> Condition:
        """The subscription."""
        return SubscriptionCondition(topic=self.topic, subscription=self.subscription)


class PulsarReplicationSensor(ClusterSensor):
    """Wait until geo-replication to another cluster is connected and has caught up.

    :param to_cluster: the other cluster's own name (templated).
    :param topic: a topic, partitioned or not (templated); set this or `namespace`.
    :param namespace: all topics of `tenant/namespace` (templated).
    :param at_most: entries that may still be unsent.
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "to_cluster", "topic", "namespace")

    def __init__(
        self,
        *,
        to_cluster: str,
        topic: str | None = None,
        namespace: str | None = None,
        at_most: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to_cluster = to_cluster
        self.topic = topic
        self.namespace = namespace
        self.at_most = at_most

    def condition(self) -> Condition:
        """The lag of replication."""
        return ReplicationCondition(
            to_cluster=self.to_cluster, topic=self.topic, namespace=self.namespace, at_most=self.at_most
        )


class PulsarTopicTerminatedSensor(ClusterSensor):
    """Wait until a topic is terminated, so that a task may read it to its end; a retry waits again.

    A topic that does not exist fails the task. What is not consumed yet is the backlog: see `PulsarBacklogSensor`.

    :param topic: a persistent topic, partitioned or not: all of its partitions (templated).
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "topic")

    def __init__(self, *, topic: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic

    def condition(self) -> Condition:
        """The termination."""
        return TerminationCondition(topic=self.topic)


class NamespacePhaseSensor(ClusterSensor):
    """Wait until the migration of a namespace enters a phase, for example `drained`, by the ledger; no cluster is read.

    :param namespace: `tenant/namespace` (templated).
    :param phase: the phase (templated); one that the newest run of the namespace has passed is not waited for.
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "namespace", "phase")

    def __init__(self, *, namespace: str, phase: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.namespace = namespace
        self.phase = phase

    def condition(self) -> Condition:
        """The phase."""
        return PhaseCondition(namespace=self.namespace, phase=self.phase)
