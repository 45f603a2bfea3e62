"""A consumer of the traffic: receives, writes down, acknowledges."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import pulsar

from pulsar_sandbox.workload.application import RETRY_SECONDS, Application, Topic, position
from pulsar_sandbox.workload.journal import JournalWriter, Line, now
from pulsar_sandbox.workload.live import Identity, SubscriptionType
from pulsar_sandbox.workload.schemas import decode

log = logging.getLogger(__name__)

_RECEIVE_MS = 500


class Received:
    """The messages of some producers that one subscription has received, each once."""

    def __init__(self, producers: Iterable[str]) -> None:
        self._producers = frozenset(producers)
        self._messages: set[Identity] = set()
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def oldest_missing(self, acked: Iterable[Sequence[tuple[Identity, int]]]) -> int | None:
        """When the oldest message was acknowledged to its producer that has not arrived here; None if all have.

        :param acked: for each producer, its messages with that time, in the order of the acknowledgements.
        """
        oldest = []
        for number, messages in enumerate(acked):
            place = self._places.get(number, 0)
            while place < len(messages) and messages[place][0] in self._messages:
                place += 1
            self._places[number] = place
            if place < len(messages):
                oldest.append(messages[place][1])
        return min(oldest, default=None)

    def add(self, message: Identity) -> None:
        """Count it, unless it is known or of another producer."""
        if message[0] in self._producers:
            self._messages.add(message)


class ConsumerApplication(Application):
    """Receives and acknowledges for one subscription, and writes down every delivery.

    :param received: shared by the consumers of one subscription.
    """

    def __init__(
        self,
        service_url: str,
        topic: Topic,
        name: str,
        *,
        folder: Path,
        subscription: str,
        type: SubscriptionType,
        received: Received,
    ) -> None:
        header = {"topic": topic.name, "subscription": subscription, "type": type.value}
        super().__init__(service_url, topic, name, JournalWriter(folder, name, header))
        self.subscription = subscription
        self._type = type
        self._received = received
        self.last_delivery = now()

    def stop(self) -> None:
        """Stop receiving; a consumer has nothing to bring to an end."""
        super().stop()
        self._given_up.set()

    def _abandon(self) -> None:
        """Nothing: the broker gives to the next consumer what this one has not acknowledged."""

    def _attach(self, client: pulsar.Client) -> None:
        self._consumer = client.subscribe(
            self.topic.name,
            self.subscription,
            consumer_type=getattr(pulsar.ConsumerType, self._type.client_name),
            consumer_name=self.name,
            receiver_queue_size=500,
        )

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._replaced:
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
        at = now()
        try:
            found = decode(message.data())
        except ValueError as error:
            log.warning("%s received from another application: %s", self.name, error)
            return
        self._received.add(found.identity)
        self.last_delivery = at
        self.journal.write(Line.DELIVERY, *found.identity, at, position(message.message_id()))
