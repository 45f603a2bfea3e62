"""What the sensors of clusters wait for: each condition is read with few calls, by a worker or by a triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import counted, did_you_mean, listed

if TYPE_CHECKING:
    from pulsar_fleet.airflow.triggers.waiting import Look
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.names import TopicName

_MESSAGE_SECONDS = 60.0
"""So long a consumer stays connected: whenever one connects, the broker reads a backlog of delayed messages again."""


class Condition(Protocol):
    """A condition of one cluster; its fields are the arguments of a trigger, so they contain no secret.

    Without `of_cluster` it reads the ledger only, and no connection is needed.
    """

    of_cluster: ClassVar[bool]

    async def read(self, cluster: ClusterConnection) -> tuple[bool, str]:
        """Whether it holds, and a sentence with the figures.

        :raises FleetError: it cannot be read.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogCondition:
    """The backlog of a subscription is at most, or at least, so many entries; an entry has one message or a batch."""

    of_cluster: ClassVar[bool] = True
    topic: str
    subscription: str
    at_most: int | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if (self.at_most is None) is (self.at_least is None):
            raise InvalidRequest("Set at_most or at_least, and not both.")

    async def read(self, cluster: ClusterConnection) -> tuple[bool, str]:
        """A subscription that does not exist has no backlog, and is `NotFound` if the backlog must be small."""
        from pulsar_fleet.cluster.errors import NotFound
        from pulsar_fleet.links.partition_stats import required_stats

        async with _admin(cluster) as admin:
            statistics = await required_stats(admin, await _partitions(admin, self.topic))
        backlogs = [
            stats.subscriptions[self.subscription].backlog
            for stats in statistics.values()
            if self.subscription in stats.subscriptions
        ]
        if not backlogs and self.at_most is not None:
            raise NotFound(f"{self.topic} has no subscription {self.subscription!r}: correct the name, or create it.")
        backlog = sum(backlogs)
        enough = backlog <= self.at_most if self.at_most is not None else backlog >= (self.at_least or 0)
        return enough, f"{self.topic}, subscription {self.subscription}: backlog {counted(backlog, 'entry')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCondition:
    """A subscription has a message to deliver now: a backlog has delayed ones too, and those that a consumer holds."""

    of_cluster: ClassVar[bool] = True
    topic: str
    subscription: str
    subscription_type: str
    initial_position: str

    async def read(self, cluster: ClusterConnection) -> tuple[bool, str]:
        """Waits for a message up to a minute, and acknowledges nothing. Creates a subscription that does not exist."""
        from pulsar_fleet.messages.clients.stream import Subscription, open_stream

        subscription = Subscription(
            topic=self.topic,
            name=self.subscription,
            kind=self.subscription_type,
            initial_position=self.initial_position,
        )
        async with open_stream(cluster, subscription, queue_size=1) as stream:
            batch = await stream.next_batch(1, _MESSAGE_SECONDS)
        text = "a message" if batch else "no message to deliver"
        return batch is not None, f"{self.topic}, subscription {self.subscription}: {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCondition:
    """A subscription exists."""

    of_cluster: ClassVar[bool] = True
    topic: str
    subscription: str

    async def read(self, cluster: ClusterConnection) -> tuple[bool, str]:
        """A topic that does not exist has no subscription."""
        from pulsar_fleet.cluster.errors import NotFound
        from pulsar_fleet.cluster.names import TopicName

        async with _admin(cluster) as admin:
            try:
                names = await admin.get(f"/{TopicName.parse(self.topic).path}/subscriptions")
            except NotFound:
                names = []
        exists = self.subscription in names
        return exists, f"{self.topic} has {'the' if exists else 'no'} subscription {self.subscription}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationCondition:
    """Replication to another cluster is connected, and has at most so many entries of a topic or namespace to send."""

    of_cluster: ClassVar[bool] = True
    to_cluster: str
    topic: str | None = None
    namespace: str | None = None
    at_most: int = 0

    def __post_init__(self) -> None:
        if (self.topic is None) is (self.namespace is None):
            raise InvalidRequest("Set topic or namespace, and not both.")

    async def read(self, cluster: ClusterConnection) -> tuple[bool, str]:
        """Reads every topic once, which loads it. A namespace without topics has nothing to send."""
        from pulsar_fleet.cluster.names import NamespaceName
        from pulsar_fleet.links.lag import lag_of
        from pulsar_fleet.links.partition_stats import required_stats

        async with _admin(cluster) as admin:
            if self.topic is not None:
                topics = await _partitions(admin, self.topic)
            else:
                topics = await admin.topics(NamespaceName.parse(str(self.namespace)))
            statistics = await required_stats(admin, [topic for topic in topics if topic.domain == "persistent"])
        lag = lag_of(tuple(statistics.values()), self.to_cluster)
        unlinked = f", {counted(len(lag.unlinked), 'topic')} not connected" if lag.unlinked else ""
        text = f"{self.topic or self.namespace} to {self.to_cluster}: {counted(lag.entries, 'entry')} to send{unlinked}"
        return not lag.unlinked and lag.entries <= self.at_most, text


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationCondition:
    """A topic accepts no more messages: its owner, or a migration, has terminated all of its partitions."""

    of_cluster: ClassVar[bool] = True
    topic: str

    async def read(self, cluster: ClusterConnection) -> tuple[bool, str]:
        """A topic that does not exist is `NotFound`, a non-persistent one `InvalidRequest`. It loads no topic."""
        from pulsar_fleet.cluster.names import TopicName
        from pulsar_fleet.snapshot.resources import is_terminated

        if not TopicName.parse(self.topic).persistent:
            raise InvalidRequest(f"{self.topic} is not persistent, so no broker says whether it is terminated.")
        async with _admin(cluster) as admin:
            partitions = await _partitions(admin, self.topic)
            # Of a partition that does not exist the broker answers 500: it is no reason to wait in the client.
            read = (admin.internal_info(partition, answered_retry_seconds=0) for partition in partitions)
            terminated = sum(map(is_terminated, await asyncio.gather(*read)))
        parts = f"{terminated} of {counted(len(partitions), 'partition')}"
        return terminated == len(partitions), f"{self.topic}: {parts} terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCondition:
    """The newest migration or failback of a namespace has entered a phase, by the ledger."""

    of_cluster: ClassVar[bool] = False
    namespace: str
    phase: str

    def __post_init__(self) -> None:
        from pulsar_fleet.migration.model import Phase

        if self.phase not in set(Phase):
            names = [phase.value for phase in Phase]
            hint = did_you_mean(self.phase, names, f"use {listed(names, len(names))}.")
            raise InvalidRequest(f"Phase {self.phase!r} is unknown: {hint}")

    async def read(self, cluster: ClusterConnection | None = None) -> tuple[bool, str]:
        """A phase that the run has left again counts too. No cluster is read."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> tuple[bool, str]:
        from pulsar_fleet.ledger.ledger import Ledger

        ledger = Ledger.open()
        run = ledger.last_run_in(self.namespace)
        if run is None:
            return False, f"{self.namespace} is in no migration, awaited: {self.phase}"
        text = f"{self.namespace} is {ledger.last_phase(self.namespace)} in {run}, awaited: {self.phase}"
        return ledger.entered(run, self.namespace, self.phase), text


_CONDITIONS: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        BacklogCondition,
        MessageCondition,
        SubscriptionCondition,
        ReplicationCondition,
        TerminationCondition,
        PhaseCondition,
    )
}


def arguments_of(condition: Any, pulsar_conn_id: str) -> dict[str, Any]:
    """The arguments of `open_condition`."""
    return {
        "condition": type(condition).__name__,
        "settings": asdict(condition),
        "pulsar_conn_id": pulsar_conn_id,
    }


async def open_condition(condition: str, settings: Mapping[str, Any], pulsar_conn_id: str) -> Look:
    """The looks of a trigger that waits for a condition; each reads the connection."""
    from pulsar_fleet.airflow.hooks.pulsar import aread_connection

    restored: Condition = _CONDITIONS[condition](**settings)

    async def look() -> tuple[bool, str]:
        cluster: Any = await aread_connection(pulsar_conn_id) if restored.of_cluster else None
        return await restored.read(cluster)

    return look


def _admin(cluster: ClusterConnection) -> AdminClient:
    from pulsar_fleet.cluster.admin.client import AdminClient

    return AdminClient(cluster)


async def _partitions(admin: AdminClient, topic: str) -> tuple[TopicName, ...]:
    from pulsar_fleet.cluster.names import TopicName

    name = TopicName.parse(topic)
    count = (await admin.partition_metadata(name)).partitions
    return name.partitions(count) if count else (name,)
