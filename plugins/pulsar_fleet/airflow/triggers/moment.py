"""The trigger that waits until a moment, so that a worker looks again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent


class MomentTrigger(BaseTrigger):
    """Fires at a moment: `{"end": …}`, so that a task that defers many times has one timeout.

    :param moment: seconds since the epoch.
    :param end: of the timeout, seconds since the epoch.
    """

    def __init__(self, *, moment: float, end: float) -> None:
        BaseTrigger.__init__(self)
        self.moment = moment
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        path = "pulsar_fleet.airflow.triggers.moment.MomentTrigger"
        return path, {"moment": self.moment, "end": self.end}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Sleep in steps, since the clock of the machine may be set."""
        while (remaining := self.moment - time.time()) > 0:
            await asyncio.sleep(min(remaining, 30.0))
        yield TriggerEvent({"end": self.end})
