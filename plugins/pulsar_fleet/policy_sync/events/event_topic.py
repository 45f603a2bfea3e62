"""The event topic of one cluster: publish, receive as a failover consumer, dead-letter (client)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PermissionDenied, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.policy_sync.events.event import SCHEMA, MetadataChangeEvent
from pulsar_fleet.policy_sync.events.request import SUBSCRIPTION, Request

if TYPE_CHECKING:
    import pulsar

SNAPSHOT_FOR = "snapshot_for"
LEFT_OUT = "left_out"
_REDELIVERY_MS = 5_000
_AT_ONCE_MS = 1
_SEND_TIMEOUT_MS = 15_000
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the event topic that is neither acknowledged nor negatively acknowledged yet."""

    message: pulsar.Message
    content: bytes

    @property
    def id(self) -> str:
        """Its message id in the event topic of this cluster."""
        return str(self.message.message_id())

    def ends_snapshot_for(self, cluster: str) -> bool:
        """Whether everything before it was a snapshot for a cluster that joins."""
        return cluster in self.message.properties().get(SNAPSHOT_FOR, "").split(",")

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the snapshot that it ends did not have, and why: one text each."""
        return tuple(json.loads(self.message.properties().get(LEFT_OUT, "[]")))

    @property
    def entry(self) -> tuple[int, int]:
        """The ledger and the entry that hold it; an entry holds several messages if they were sent as a batch."""
        message_id = self.message.message_id()
        return message_id.ledger_id(), message_id.entry_id()


class EventTopic:
    """A producer and the failover consumer `metadata-syncer`; use it with `async with`.

    Of several consumers the cluster gives the events to one, and to the next one if that one dies.

    :raises Unavailable: the cluster does not answer; a sent event may have arrived.
    """

    def __init__(self, connection: ClusterConnection, request: Request) -> None:
        self._connection = connection
        self._request = request
        self._client: pulsar.Client | None = None
        self._consumer: Any = None
        self._producer: Any = None
        self._dead_letters: Any = None
        self._postponed: set[tuple[int, int]] = set()

    async def __aenter__(self) -> Self:
        await self._in_thread(self._open)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    @property
    def consumer_name(self) -> str:
        """The name by which the cluster identifies the active consumer."""
        return str(self._consumer.consumer_name())

    @property
    def postponed(self) -> int:
        """Entries with an event that was negatively acknowledged and not acknowledged since."""
        return len(self._postponed)

    async def receive(self, most: int, wait_seconds: float) -> list[Received]:
        """At most `most` messages; waits for the first one only."""
        return await self._in_thread(lambda: self._receive(most, int(wait_seconds * 1000)))

    async def acknowledge(self, done: Sequence[Received]) -> None:
        """Acknowledge messages: they are not redelivered."""
        await self._in_thread(lambda: [self._consumer.acknowledge(received.message) for received in done])
        self._postponed -= {received.entry for received in done}

    async def negatively_acknowledge(self, postponed: Sequence[Received]) -> None:
        """Negatively acknowledge messages: they are redelivered after some seconds."""
        await self._in_thread(lambda: [self._consumer.negative_acknowledge(received.message) for received in postponed])
        self._postponed |= {received.entry for received in postponed}

    async def publish(self, events: Iterable[MetadataChangeEvent]) -> int:
        """Send events to all clusters, keyed by resource; returns when this cluster has stored all."""
        return await self._in_thread(lambda: self._publish(list(events)))

    async def end_snapshot(self, names: Collection[str], left_out: Sequence[str], event: MetadataChangeEvent) -> None:
        """Tell clusters that everything before this message was a snapshot; a compaction removes the message.

        :param left_out: what the snapshot did not have, and why: one text each.
        :param event: of a resource that is never carried, so that other readers of the topic drop it.
        """
        await self._in_thread(lambda: self._end_snapshot(names, left_out, event))

    async def dead_letter(self, refused: Mapping[Received, str]) -> None:
        """Store messages unchanged in the dead-letter topic of this cluster, each with its reason."""
        await self._in_thread(lambda: self._dead_letter(refused))

    def _open(self) -> None:
        import pulsar

        self._client = open_client(self._connection)
        topic = str(self._request.event_topic)
        self._consumer = self._client.subscribe(
            topic,
            SUBSCRIPTION,
            pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=_REDELIVERY_MS,
        )
        options = {"send_timeout_millis": _SEND_TIMEOUT_MS, "block_if_queue_full": True}
        schema = pulsar.schema.AvroSchema(None, schema_definition=SCHEMA)
        self._producer = self._client.create_producer(topic, schema=schema, **options)
        self._dead_letters = self._client.create_producer(str(self._request.dead_letters), **options)

    def _receive(self, most: int, wait_ms: int) -> list[Received]:
        import pulsar

        batch: list[Received] = []
        try:
            while len(batch) < most:
                message = self._consumer.receive(_AT_ONCE_MS if batch else max(wait_ms, _AT_ONCE_MS))
                batch.append(Received(message, message.data()))
        except pulsar.Timeout:
            pass
        return batch

    def _publish(self, events: list[MetadataChangeEvent]) -> int:
        import pulsar

        failed: list[object] = []

        def sent(result: Any, _: object) -> None:
            if result != pulsar.Result.Ok:
                failed.append(result)

        for event in events:
            at = max(event.update_time, 0) or None
            self._producer.send_async(event.record(), sent, partition_key=event.key, event_timestamp=at)
        self._producer.flush()
        if failed:
            raise Unavailable(f"{self._connection.name}: {len(failed)} events could not be sent: {failed[0]}.")
        return len(events)

    def _end_snapshot(self, names: Collection[str], left_out: Sequence[str], event: MetadataChangeEvent) -> None:
        properties = {SNAPSHOT_FOR: ",".join(sorted(names)), LEFT_OUT: json.dumps(list(left_out))}
        self._producer.send(event.record(), properties=properties)

    def _dead_letter(self, refused: Mapping[Received, str]) -> None:
        for received, reason in refused.items():
            self._dead_letters.send(
                received.content,
                properties={"reason": reason, "message_id": received.id},
                partition_key=received.message.partition_key() or None,
                disable_replication=True,
            )

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        import pulsar

        try:
            return await asyncio.to_thread(work)
        except pulsar.PulsarException as error:
            denied = isinstance(error, pulsar.AuthorizationError | pulsar.AuthenticationError)
            name = self._connection.name
            raise (PermissionDenied if denied else Unavailable)(
                f"{name}: the event topic {self._request.event_topic} cannot be used: {error}.", cluster=name
            ) from error
