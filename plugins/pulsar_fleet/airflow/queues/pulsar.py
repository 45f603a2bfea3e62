"""The scheme `pulsar` of `MessageQueueTrigger`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger


class PulsarMessageQueueProvider(BaseMessageQueueProvider):
    """Makes `MessageQueueTrigger(scheme="pulsar", …)` a `PulsarMessageTrigger` with the other arguments."""

    scheme = "pulsar"

    def trigger_class(self) -> type[BaseEventTrigger]:
        """The trigger of this scheme."""
        from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger

        return PulsarMessageTrigger
