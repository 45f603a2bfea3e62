"""The steps of metadata events: create the topic, then publish and apply until no event arrives."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.events.follower import drain, publish_once
from pulsar_fleet.policy_sync.events.outages import outages_of
from pulsar_fleet.policy_sync.events.participant import Participant, open_participant
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.results import SyncSummary, Tally
from pulsar_fleet.policy_sync.events.setup import prepare
from pulsar_fleet.policy_sync.fleet import open_fleet

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0


async def synchronise(connections: Sequence[ClusterConnection], request: Request, run: Run) -> SyncSummary:
    """Create the event topic, publish the changes of each cluster, apply those of the others, end when idle.

    Safe to run again at any point, also while followers run: the cluster gives its events to one of them.

    :raises PermissionDenied: a cluster denies access.
    :raises Unavailable: no cluster answers.
    """
    began = time.monotonic()
    async with open_fleet(connections, _PATIENCE_SECONDS) as reached, AsyncExitStack() as stack:
        redactor, behind = open_redactor(), reached.behind
        fleet = await prepare(reached.clusters, request, run, redactor)
        opened = [open_participant(name, reached, fleet, request, run, redactor) for name in reached.clusters]
        participants = [await stack.enter_async_context(context) for context in opened]
        tallies = {participant.own: Tally() for participant in participants}
        for step in (_publish, _drain):
            steps = (step(participant, tallies[participant.own], request) for participant in participants)
            reasons = await asyncio.gather(*map(_attempt, steps))
            failed = zip(participants, reasons, strict=True)
            behind |= {participant.admin.connection.name: reason for participant, reason in failed if reason}
        outages = outages_of(reached, run, request)
    since = dict(outages.begin(connection) for connection in behind)
    for name in since.keys() & tallies.keys():
        tallies[name].behind_since = since[name].isoformat()
    return SyncSummary(
        fleet=fleet,
        clusters=tallies,
        behind=behind,
        since={name: at.isoformat() for name, at in since.items()},
        behind_seconds={name: round((datetime.now(UTC) - at).total_seconds(), 1) for name, at in since.items()},
        changed=tuple(sorted(name for name, tally in tallies.items() if tally.written)),
        seconds=round(time.monotonic() - began, 2),
    )


async def _publish(participant: Participant, tally: Tally, request: Request) -> None:
    await publish_once(participant, tally, snapshot=request.snapshot)


async def _drain(participant: Participant, tally: Tally, _: Request) -> None:
    await drain(participant, tally)


async def _attempt(step: Coroutine[None, None, None]) -> str:
    """Why a cluster stopped answering, empty if it did not: the other clusters continue."""
    try:
        await step
    except Unavailable as error:
        log.warning("%s", error)
        return str(error)
    return ""
