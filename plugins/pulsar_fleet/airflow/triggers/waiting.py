"""The trigger that looks again and again, without a worker slot and without a thread, until a worker has to go on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from pkgutil import resolve_name
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import ShownLines

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0

Look = Callable[[], Awaitable[tuple[bool, str]]]
"""Whether a worker has to go on, and a line with the figures."""

OpenLook = Callable[..., Awaitable[Look]]
"""A function of a module: prepares looks, by arguments that Airflow's database can store and that contain no secret."""


class Status(StrEnum):
    """Why the trigger fired."""

    DONE = "done"
    TIMEOUT = "timeout"
    ERROR = "error"


class WaitTrigger(BaseTrigger):
    """Fires with a `Status`, the line of the last look as `message`, and `end`.

    A cluster that does not answer is looked at again: a broker may restart.

    :param look: an `OpenLook`, as `module:name`.
    :param arguments: its arguments.
    :param poll_seconds: time between two looks; at least 5, since a task that resumes sooner can be marked failed.
    :param until: of the wait, seconds since the epoch: restarts of the triggerer do not extend it. None: no end.
    :param end: of the timeout of the task; the event returns it.
    """

    def __init__(
        self,
        *,
        look: str | OpenLook,
        arguments: dict[str, Any],
        poll_seconds: float,
        until: float | None = None,
        end: float | None = None,
    ) -> None:
        BaseTrigger.__init__(self)
        self.look = look if isinstance(look, str) else f"{look.__module__}:{look.__name__}"
        self.arguments = arguments
        self.poll_seconds = poll_seconds
        self.until = until
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        names = ("look", "arguments", "poll_seconds", "until", "end")
        return "pulsar_fleet.airflow.triggers.waiting.WaitTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to say."""
        try:
            status, text = await self._wait()
        except FleetError as error:
            status, text = Status.ERROR, str(error)
        event: JsonObject = {"status": status.value, "message": text, "end": self.end}
        yield TriggerEvent(event)

    async def _wait(self) -> tuple[Status, str]:
        look: Look = await resolve_name(self.look)(**self.arguments)
        shown, text = ShownLines(LOG_SECONDS), "not read yet"
        while self.until is None or time.time() < self.until:
            await asyncio.sleep(self.poll_seconds)
            try:
                done, text = await look()
            except Unavailable as error:
                done, text = False, str(error)
            if done:
                return Status.DONE, text
            if shown.is_due(text):
                log.info("%s", text)
        return Status.TIMEOUT, text
