"""The steps of metadata events: make the topic, and carry what changed until all is quiet."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.events.connect import open_site, reach
from pulsar_fleet.policy_sync.events.follower import Tally, drain, publish_once
from pulsar_fleet.policy_sync.events.participant import Site
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.setup import prepare

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0


async def synchronise(connections: Sequence[ClusterConnection], request: Request, run: Run) -> JsonObject:
    """Make the event topic, publish what changed on each cluster, apply what the others wrote, end when all is quiet.

    Safe to run again at any point, and beside followers: the cluster gives its events to one of them.

    :returns: `{"fleet", "clusters": {name: as of `Tally`}, "behind": {connection: why}, "since": {name: time},
        "behind_seconds": {name: how long}, "changed": [names of clusters that were written on], "seconds"}`.
    :raises Denied: a cluster does not let us in.
    :raises Transient: no cluster answers.
    """
    began = time.monotonic()
    async with reach(connections, _PATIENCE_SECONDS) as reached, AsyncExitStack() as stack:
        seal, behind = open_seal(), reached.behind
        fleet = await prepare(reached.clusters, request, run, seal)
        opened = [open_site(name, reached, fleet, request, run, seal) for name in reached.clusters]
        sites = {site.own: site for site in [await stack.enter_async_context(one) for one in opened]}
        tallies = {name: Tally() for name in sites}
        for each in (_publish, _drain):
            lost = await asyncio.gather(*(_attempt(each(sites[name], tallies[name], request)) for name in sites))
            behind |= {sites[name].admin.connection.name: why for name, why in zip(sites, lost, strict=True) if why}
        silences = reached.silences(run, request)
    since = dict(silences.begin(connection) for connection in behind)
    for name in since.keys() & tallies.keys():
        tallies[name].behind_since = since[name].isoformat()
    return {
        "fleet": list(fleet),
        "clusters": {name: one.to_json() for name, one in tallies.items()},
        "behind": behind,
        "since": {name: at.isoformat() for name, at in since.items()},
        "behind_seconds": {name: round((datetime.now(UTC) - at).total_seconds(), 1) for name, at in since.items()},
        "changed": sorted(name for name, one in tallies.items() if one.written),
        "seconds": round(time.monotonic() - began, 2),
    }


async def _publish(site: Site, tally: Tally, request: Request) -> None:
    await publish_once(site, tally, snapshot=request.snapshot)


async def _drain(site: Site, tally: Tally, _: Request) -> None:
    await drain(site, tally)


async def _attempt(step: Coroutine[None, None, None]) -> str:
    """Why a cluster stopped to answer, empty if it did not: the others go on."""
    try:
        await step
    except Unavailable as error:
        log.warning("%s", error)
        return str(error)
    return ""
