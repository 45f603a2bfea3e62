"""The scheme `pulsar` of `MessageQueueTrigger`, and its older argument `queue`, which is the name of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import TopicName

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger

_QUEUES = ("persistent", "non-persistent", "pulsar", "pulsar+ssl")


class PulsarMessageQueueProvider(BaseMessageQueueProvider):
    """Makes `MessageQueueTrigger(scheme="pulsar", …)` a `PulsarMessageTrigger` with the other arguments."""

    scheme = "pulsar"

    def queue_matches(self, queue: str) -> bool:
        """Whether `MessageQueueTrigger(queue=…)` is for Pulsar: a topic's name, or an address that `trigger_kwargs`
        refuses with what to write.
        """
        return queue.partition("://")[0] in _QUEUES

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """The topic; none where the other arguments name it.

        :raises InvalidRequest: the queue is no topic, or another one than the argument `topic`.
        """
        try:
            topic = TopicName.parse(queue)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"The queue {queue!r} is not a topic: write queue='persistent://tenant/namespace/topic'."
            ) from error
        if kwargs.get("topic", str(topic)) != str(topic):
            raise InvalidRequest(f"queue={queue!r} and topic={kwargs['topic']!r} are other topics: give one of them.")
        return {} if "topic" in kwargs else {"topic": str(topic)}

    def trigger_class(self) -> type[BaseEventTrigger]:
        """The trigger of this scheme."""
        from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger

        return PulsarMessageTrigger
