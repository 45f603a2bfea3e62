"""A consumer of the traffic: receives, writes down, acknowledges."""

from __future__ import annotations

import logging
from pathlib import Path

import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_sandbox.workload.live import SubscriptionType
from pulsar_sandbox.workload.schemas import decode
from pulsar_sandbox.workload.traffic.application import RETRY_SECONDS, Application, Topic, position
from pulsar_sandbox.workload.traffic.journal import Line, now

log = logging.getLogger(__name__)

_RECEIVE_MS = 500


class ConsumerApplication(Application):
    """Receives and acknowledges for one subscription, and writes down every delivery before it acknowledges it."""

    def __init__(
        self,
        connection: ClusterConnection,
        topic: Topic,
        name: str,
        *,
        folder: Path,
        subscription: str,
        type: SubscriptionType,
    ) -> None:
        super().__init__(
            connection, topic, name, folder=folder, header={"subscription": subscription, "type": type.value}
        )
        self.subscription = subscription
        self._type = type

    def stop(self) -> None:
        """Stop receiving; a consumer has nothing to bring to an end."""
        super().stop()
        self._given_up.set()

    def _resume(self, lines: list[list[str]]) -> None:
        """Nothing: the broker delivers again what was not acknowledged."""

    def _attach(self, client: pulsar.Client) -> None:
        self._consumer = client.subscribe(
            self.topic.name,
            self.subscription,
            consumer_type=getattr(pulsar.ConsumerType, self._type.client_name),
            consumer_name=self.name,
            receiver_queue_size=500,
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            consumer = self._consumer
            try:
                message = consumer.receive(_RECEIVE_MS)
                self._record(message)
                consumer.acknowledge(message)
            except pulsar.Timeout:
                continue
            except pulsar.AlreadyClosed as error:
                self._reopen(type(error).__name__)
            except pulsar.PulsarException as error:
                log.warning("%s: %s", self.name, error)
                self._stopping.wait(RETRY_SECONDS)

    def _record(self, message: pulsar.Message) -> None:
        try:
            numbered = decode(message.data())
        except ValueError as error:
            log.warning("%s received from another application: %s", self.name, error)
            return
        self.journal.write(Line.DELIVERY, *numbered.identity, now(), position(message.message_id()))
