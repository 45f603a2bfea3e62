"""Messages whose processing fails: they are delivered again, and then published to a dead-letter topic."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import did_you_mean
from pulsar_fleet.messages.clients.publish import OutgoingMessage, publish
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.stream import Batch, Subscription

log = logging.getLogger(__name__)

TYPES = ("shared", "key_shared")
_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """When a message is given up; an invalid setting is `InvalidRequest`.

    :param topic: where it is published, with its content, key and properties.
    :param max_redeliveries: how often it is delivered again before, in one run.
    :param max_dead_letters: messages of one run; the next one ends it with its error, and stays in the subscription.
    :param fatal: errors that end the run at once.
    """

    topic: str
    max_redeliveries: int = 3
    max_dead_letters: int = 10
    fatal: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if self.max_redeliveries < 0 or self.max_dead_letters < 1:
            raise InvalidRequest("Set max_redeliveries to 0 or more, and max_dead_letters to 1 or more.")

    def require_type(self, subscription: Subscription) -> None:
        """Refuse a subscription of which the broker delivers all messages again instead of one."""
        if subscription.kind not in TYPES:
            hint = did_you_mean(subscription.kind, TYPES, f"use {' or '.join(TYPES)}.")
            raise InvalidRequest(f"Dead letters need another subscription_type than {subscription.kind}: {hint}")


class FailedMessages:
    """Those of one run. The counts are its own: those of a broker are said to end with its last consumer."""

    def __init__(self, connection: ClusterConnection, subscription: Subscription, policy: DeadLetterPolicy) -> None:
        policy.require_type(subscription)
        self.policy = policy
        self.dead_letters = 0
        self._connection = connection
        self._subscription = subscription
        self._redeliveries: dict[str, int] = {}

    @property
    def any_outstanding(self) -> bool:
        """Whether a message is to be delivered again."""
        return bool(self._redeliveries)

    async def succeed(self, single: Batch) -> int:
        """Acknowledge a message; returns how many were: 1."""
        await single.acknowledge()
        self._redeliveries.pop(single.messages[0].message_id, None)
        return 1

    async def fail(self, single: Batch, error: Exception) -> int:
        """Have a message delivered again, or publish it to the dead-letter topic and acknowledge it.

        :returns: how many were acknowledged.
        :raises Exception: `error`, above `max_dead_letters`.
        """
        (message,) = single.messages
        redeliveries = self._redeliveries.get(message.message_id, 0)
        if redeliveries < self.policy.max_redeliveries:
            self._redeliveries[message.message_id] = redeliveries + 1
            log.warning("Message %s fails and will be delivered again: %s", message.message_id, error)
            await single.redeliver()
            return 0
        if self.dead_letters >= self.policy.max_dead_letters:
            raise error
        # Published before it is acknowledged: a run that dies in between publishes it twice and loses nothing.
        await publish(self._connection, self.policy.topic, [self._dead_letter(message, error)])
        self.dead_letters += 1
        log.warning("Message %s fails and is in %s now: %s", message.message_id, self.policy.topic, error)
        return await self.succeed(single)

    def _dead_letter(self, message: ReceivedMessage, error: Exception) -> OutgoingMessage:
        """With the properties that Pulsar's own clients add, and the reason."""
        added = {
            "REAL_TOPIC": message.topic,
            "REAL_SUBSCRIPTION": self._subscription.name,
            "ORIGIN_MESSAGE_ID": message.message_id,
            "DEAD_LETTER_REASON": f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS],
        }
        return OutgoingMessage(content=message.content, key=message.key, properties={**message.properties, **added})
