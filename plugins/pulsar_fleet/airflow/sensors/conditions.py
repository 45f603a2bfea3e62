"""Sensors of clusters for your own DAGs: backlog, subscription, replication, phase of a migration."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from pulsar_fleet.airflow.conditions import (
    BacklogCondition,
    Condition,
    PhaseCondition,
    ReplicationCondition,
    SubscriptionCondition,
    arguments_of,
)
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.polling import POLL_SECONDS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject


class ClusterSensor(BaseSensorOperator):
    """Wait for a condition of a cluster; a retry waits again from the beginning and changes nothing.

    A cluster that does not answer is asked again until the timeout; what the connection may not read fails the task.
    Its XCom is a sentence with the figures.

    :param pulsar_conn_id: the connection (templated).
    :param deferrable: wait in the triggerer, without a worker slot; default `[operators] default_deferrable`.
    :param poke_interval: seconds between two reads, at least 5.
    :param timeout: seconds until the task fails, or is skipped with `soft_fail`.
    """

    template_fields: Sequence[str] = ("pulsar_conn_id",)

    def __init__(
        self,
        *,
        pulsar_conn_id: str = "pulsar_default",
        deferrable: bool | None = None,
        poke_interval: float = 30.0,
        **kwargs: Any,
    ) -> None:
        if float(poke_interval) < POLL_SECONDS:
            raise InvalidRequest(f"poke_interval is {poke_interval} seconds; set it to {POLL_SECONDS:.0f} or more.")
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.pulsar_conn_id = pulsar_conn_id
        self.deferrable = deferrable

    @abstractmethod
    def condition(self) -> Condition:
        """What to wait for, by the rendered fields; an invalid one is `InvalidRequest`."""

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the condition once."""
        try:
            done, text = asyncio.run(self.condition().read(self.pulsar_conn_id))
        except Unavailable as error:
            done, text = False, str(error)
        self.log.info("%s", text)
        return PokeReturnValue(done, xcom_value=text)

    def execute(self, context: Context) -> Any:
        """Wait here, or read once and defer."""
        deferrable = self.deferrable
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if not deferrable:
            return super().execute(context)
        now = self.poke(context)
        if now.is_done:
            return now.xcom_value
        from pulsar_fleet.airflow.triggers.conditions import ConditionTrigger

        self.defer(
            trigger=ConditionTrigger(
                **arguments_of(self.condition()),
                pulsar_conn_id=self.pulsar_conn_id,
                poll_seconds=float(self.poke_interval),
            ),
            method_name="resume",
            timeout=timedelta(seconds=float(self.timeout)),
        )

    def resume(self, context: Context, event: JsonObject) -> str:
        """Return what the trigger read, or fail with its sentence."""
        if "error" in event:
            raise PreconditionFailed(str(event["error"]))
        return str(event["text"])


class PulsarBacklogSensor(ClusterSensor):
    """Wait until a subscription has at most, or at least, so many entries to acknowledge: drained, or worth a task.

    :param topic: a topic, partitioned or not (templated).
    :param subscription: its subscription (templated).
    :param at_most: entries; set this or `at_least`.
    :param at_least: entries; a subscription that does not exist yet is waited for.
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
