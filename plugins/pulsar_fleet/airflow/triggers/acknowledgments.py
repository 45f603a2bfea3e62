"""The trigger that forwards acknowledgments for some time without a worker slot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import duration

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.read_only.forwarding.request import Request
    from pulsar_fleet.read_only.forwarding.results import ForwardingResult

log = logging.getLogger(__name__)

RESULT = "forwarding.json"
_LEAST_SECONDS = 5.0
"""A task that resumes sooner after it deferred can be marked failed."""


class ForwardingTrigger(BaseTrigger):
    """Makes pass after pass, and fires when the time is over.

    Two triggerers may run it at once, and one may die at any time: a pass sends what the owner lacks, and nothing else.

    :param cluster: connection id; the trigger reads the connection itself, so its arguments contain no secret.
    :param requests: the settings, one for each namespace.
    :param run_id: id of the run's records, where the result is stored.
    :param end: seconds since the epoch.
    """

    def __init__(self, *, cluster: str, requests: list[JsonObject], run_id: str, end: float) -> None:
        BaseTrigger.__init__(self)
        self.cluster = cluster
        self.requests = requests
        self.run_id = run_id
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        return (
            "pulsar_fleet.airflow.triggers.acknowledgments.ForwardingTrigger",
            {"cluster": self.cluster, "requests": self.requests, "run_id": self.run_id, "end": self.end},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Forward until the end; the event has the reference of the result, or a message."""
        try:
            yield TriggerEvent(await self._forward())
        except (FleetError, AirflowNotFoundException) as error:
            yield TriggerEvent({"message": str(error)})

    async def _forward(self) -> JsonObject:
        from pulsar_fleet.airflow.hooks.pulsar import from_airflow
        from pulsar_fleet.ledger.run import Run
        from pulsar_fleet.read_only.forwarding.request import Request
        from pulsar_fleet.read_only.forwarding.results import together

        connection = from_airflow(await BaseHook.aget_connection(self.cluster))
        requests = [Request.of(settings) for settings in self.requests]
        stopped = asyncio.Event()
        seconds = max(self.end - time.time(), _LEAST_SECONDS)
        timer = asyncio.get_running_loop().call_later(seconds, stopped.set)
        try:
            results = await asyncio.gather(*(_forward_namespace(connection, request, stopped) for request in requests))
        finally:
            timer.cancel()
        complete = [result for result in results if result]
        if not complete:
            return {"message": f"{connection.name} did not answer for {duration(seconds)}. Start a new run."}
        run = await asyncio.to_thread(Run.open, self.run_id)
        document = together(complete).to_json()
        reference = await asyncio.to_thread(run.artefacts.write_json, run.id, RESULT, document)
        return {"result": reference.to_json()}


async def _forward_namespace(
    connection: ClusterConnection, request: Request, stopped: asyncio.Event
) -> ForwardingResult | None:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.read_only.forwarding.forwarder import forward_until_stopped, refused_namespace

    async with AdminClient(connection) as admin:
        try:
            return await forward_until_stopped(admin, request, stopped=stopped, say=lambda line: log.info("%s", line))
        except FleetError as error:
            return refused_namespace(admin, request, error)
