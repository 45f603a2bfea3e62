"""The steps of metadata events: create the topic, then publish and apply until no event arrives."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import open_fleet
from pulsar_fleet.policy_sync.events.deletions import settle_deletions
from pulsar_fleet.policy_sync.events.fleet import outages_of
from pulsar_fleet.policy_sync.events.follower import drain, publish_once, update_state
from pulsar_fleet.policy_sync.events.participant import Participant, open_participant
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.results import MOST_TENANTS, LastUpdate, SyncSummary, Tally
from pulsar_fleet.policy_sync.events.setup import prepare
from pulsar_fleet.policy_sync.events.versions import Version

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0
_STALLED_SECONDS = 10.0
"""A run ends although events wait for a cluster if none of them was delivered for this time."""


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
        publishing = [_Participation(participant, tallies[participant.own]) for participant in participants]
        await _of_each(publishing, lambda one: publish_once(one.participant, one.tally, snapshot=request.snapshot))
        # Who could not publish may still apply.
        draining = [_Participation(participant, tallies[participant.own]) for participant in participants]
        await _drain_all(draining)
        await _of_each(draining, lambda one: settle_deletions(one.participant, one.tally))
        failed = (one for one in (*publishing, *draining) if one.failure)
        behind |= {one.participant.admin.connection.name: one.failure for one in failed}
        outages = outages_of(reached, run, request)
        tenants = _tenant_updates(participants)
    since = dict(outages.begin(connection) for connection in behind)
    for name in since.keys() & tallies.keys():
        tallies[name].behind_since = since[name].isoformat()
    return SyncSummary(
        fleet=fleet,
        clusters=tallies,
        behind=behind,
        since={name: at.isoformat() for name, at in since.items()},
        behind_seconds={name: round((datetime.now(UTC) - at).total_seconds(), 1) for name, at in since.items()},
        changed=tuple(sorted(name for name, tally in tallies.items() if tally.written or tally.deleted)),
        tenants=tenants,
        seconds=round(time.monotonic() - began, 2),
    )


def _tenant_updates(participants: Sequence[Participant]) -> dict[str, LastUpdate]:
    """Tenant → its last update on any cluster, the newest tenants first."""
    newest: dict[str, Version] = {}
    for participant in participants:
        for name, version in participant.tenant_updates().items():
            newest[name] = max(version, newest.get(name, version))
    ordered = sorted(newest.items(), key=lambda entry: (-entry[1].update_time, entry[0]))[:MOST_TENANTS]
    return {name: LastUpdate(by=version.source_cluster, time=version.update_time) for name, version in ordered}


@dataclass
class _Participation:
    """A cluster in a step of this run.

    :param failure: why it stopped answering, empty if it did not: the other clusters continue.
    """

    participant: Participant
    tally: Tally
    failure: str = ""


async def _of_each(participating: Sequence[_Participation], step: Callable[[_Participation], Awaitable[None]]) -> None:
    """Take a step on each cluster that answers, concurrently."""

    async def attempt(one: _Participation) -> None:
        try:
            await step(one)
        except Unavailable as error:
            log.warning("%s", error)
            one.failure = str(error)

    await asyncio.gather(*(attempt(one) for one in participating if not one.failure))


async def _drain_all(participating: Sequence[_Participation]) -> None:
    """Apply events until none waits for a cluster that answers, or none was delivered for `_STALLED_SECONDS`."""
    fewest, since = math.inf, time.monotonic()
    while True:
        await _of_each(participating, lambda one: drain(one.participant, one.tally))
        unsent = _unsent(participating)
        # After the readings of what is unsent: an event that was sent meanwhile is unread now, or acknowledged.
        await _of_each(participating, lambda one: update_state(one.participant, one.tally))
        waiting = unsent + sum(one.tally.unread for one in participating if one.tally.active and not one.failure)
        if waiting < fewest:
            fewest, since = waiting, time.monotonic()
        if not waiting or time.monotonic() - since >= _STALLED_SECONDS:
            return


def _unsent(participating: Sequence[_Participation]) -> int:
    """Events that wait for the replication between clusters that answer; a replicator that is not there counts as one.

    A cluster that gives its events to another process is left out: that process applies them.
    """
    answering = [one for one in participating if not one.failure]
    receiving = {one.participant.own for one in answering if one.tally.active}
    return sum(one.tally.unsent.get(name, 1) for one in answering for name in receiving - {one.participant.own})
