"""The trigger that waits for a condition of a cluster without a worker slot and without a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from pulsar_fleet.airflow.conditions import condition_of
from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.polling import ShownLines

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0


class ConditionTrigger(BaseTrigger):
    """Fires when a condition holds: `{"text": …}`; or with `{"error": …}` when it cannot be read, `{"timeout": …}` at
    the end.

    A cluster that does not answer is asked again: a broker may restart.

    :param condition: name of a class in `pulsar_fleet.airflow.conditions`.
    :param settings: its fields.
    :param pulsar_conn_id: the trigger reads the connection itself, so its arguments contain no secret.
    :param poll_seconds: time between two reads; at least 5, since a task that resumes sooner can be marked failed.
    :param end: of the timeout, seconds since the epoch: restarts of the triggerer do not extend it. None: no end.
    """

    def __init__(
        self,
        *,
        condition: str,
        settings: dict[str, Any],
        pulsar_conn_id: str,
        poll_seconds: float,
        end: float | None = None,
    ) -> None:
        BaseTrigger.__init__(self)
        self.condition = condition
        self.settings = settings
        self.pulsar_conn_id = pulsar_conn_id
        self.poll_seconds = poll_seconds
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        return (
            "pulsar_fleet.airflow.triggers.conditions.ConditionTrigger",
            {
                "condition": self.condition,
                "settings": self.settings,
                "pulsar_conn_id": self.pulsar_conn_id,
                "poll_seconds": self.poll_seconds,
                "end": self.end,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Read the condition until it holds."""
        try:
            done, text = await self._wait()
            yield TriggerEvent({"text" if done else "timeout": text})
        except FleetError as error:
            yield TriggerEvent({"error": str(error)})

    async def _wait(self) -> tuple[bool, str]:
        condition, shown, text = condition_of(self.condition, self.settings), ShownLines(LOG_SECONDS), "not read yet"
        while self.end is None or time.time() < self.end:
            await asyncio.sleep(self.poll_seconds)
            try:
                done, text = await condition.read(self.pulsar_conn_id)
            except Unavailable as error:
                done, text = False, str(error)
            if done:
                return True, text
            if shown.is_due(text):
                log.info("%s", text)
        return False, text
