"""The steps of metadata events: make the topic, carry what changed until all is quiet, or follow without an end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Rejected, Transient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.metadata_sync.event_topic import EventTopic
from pulsar_fleet.metadata_sync.following import Tally, drain, follow, publish_once
from pulsar_fleet.metadata_sync.preparing import prepare
from pulsar_fleet.metadata_sync.request import Request
from pulsar_fleet.metadata_sync.silences import Silences
from pulsar_fleet.metadata_sync.site import Site
from pulsar_fleet.records.fingerprint_key import open_seal
from pulsar_fleet.records.run import Run

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0
_FOLLOWERS_PATIENCE_SECONDS = 2.0
"""A follower tries again by itself, and says sooner that a cluster does not answer."""


async def synchronise(connections: Sequence[ClusterConnection], request: Request, run: Run) -> JsonObject:
    """Make the event topic, publish what changed on each cluster, apply what the others wrote, end when all is quiet.

    Safe to run again at any point, and beside followers: the cluster gives its events to one of them.

    :returns: `{"fleet", "clusters": {name: as of `Tally`}, "behind": {connection: why}, "since": {name: time},
        "behind_seconds": {name: how long}, "changed": [names of clusters that were written on], "seconds"}`.
    :raises Denied: a cluster does not let us in.
    :raises Transient: no cluster answers.
    """
    began = time.monotonic()
    opened = _open(connections, _PATIENCE_SECONDS)
    async with opened as (clusters, behind), _sites(clusters, request, run) as sites:
        tallies = {name: Tally() for name in sites}
        for each in (_publish, _drain):
            lost = await asyncio.gather(*(_attempt(each(sites[name], tallies[name], request)) for name in sites))
            behind |= {sites[name].admin.connection.name: why for name, why in zip(sites, lost, strict=True) if why}
        fleet = next(iter(sites.values())).fleet
    since = _silent_since(clusters, behind, Silences(run.ledger, request.event_topic))
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


def _silent_since(
    clusters: Mapping[str, AdminClient], behind: Mapping[str, str], silences: Silences
) -> dict[str, datetime]:
    """Cluster → since when it does not answer; the silences of the others are over."""
    for name, admin in clusters.items():
        if admin.connection.name not in behind:
            silences.end(admin.connection.name, name)
    return dict(silences.begin(connection) for connection in behind)


async def follow_all(
    connections: Sequence[ClusterConnection],
    request: Request,
    run: Run,
    *,
    stopped: asyncio.Event,
    say: Callable[[str], None],
) -> JsonObject:
    """Make the event topic, then publish and apply on each cluster until stopped.

    :param say: is told when it begins, and when a cluster stops to answer or answers again.
    :returns: cluster → what `Tally.to_json` says.
    """
    opened = _open(connections, _FOLLOWERS_PATIENCE_SECONDS)
    async with opened as (clusters, behind), _sites(clusters, request, run) as sites:
        if behind:
            raise Transient(f"A follower begins when all its clusters answer: {next(iter(behind.values()))}")
        silences = Silences(run.ledger, request.event_topic)
        _silent_since(clusters, {}, silences)
        tallies = {name: Tally() for name in sites}
        say(f"Following {', '.join(sites)} of {', '.join(next(iter(sites.values())).fleet)}")
        await asyncio.gather(*(follow(sites[name], tallies[name], silences, stopped, say) for name in sites))
    return {name: one.to_json() for name, one in tallies.items()}


@asynccontextmanager
async def _open(
    connections: Sequence[ClusterConnection], patience: float
) -> AsyncIterator[tuple[dict[str, AdminClient], dict[str, str]]]:
    """The clusters that answer, by their own names; of the others, why they do not."""
    async with AsyncExitStack() as stack:
        clusters: dict[str, AdminClient] = {}
        behind: dict[str, str] = {}
        for connection in connections:
            admin = await stack.enter_async_context(AdminClient(connection, retry_seconds=patience))
            try:
                name = await admin.cluster_name()
            except Transient as error:
                behind[connection.name] = str(error)
                continue
            if name in clusters:
                first = clusters[name].connection.name
                raise Rejected(f"Connections {first!r} and {connection.name!r} both lead to cluster {name!r}.")
            clusters[name] = admin
        if not clusters:
            raise Transient(f"No cluster answers: {next(iter(behind.values()))}")
        yield clusters, behind


@asynccontextmanager
async def _sites(clusters: Mapping[str, AdminClient], request: Request, run: Run) -> AsyncIterator[dict[str, Site]]:
    seal = open_seal()
    fleet = await prepare(clusters, request, run, seal)
    async with AsyncExitStack() as stack:
        yield {
            name: Site(
                own=name,
                admin=admin,
                looker=await stack.enter_async_context(_looker(admin, request)),
                topic=await stack.enter_async_context(EventTopic(admin.connection, request)),
                request=request,
                ledger=run.ledger,
                seal=seal,
                fleet=fleet,
                peers={other: peer for other, peer in clusters.items() if other != name},
            )
            for name, admin in clusters.items()
        }


def _looker(admin: AdminClient, request: Request) -> AdminClient:
    """A client of its own, since only looks are slowed down: what others wrote is applied at once."""
    return AdminClient(
        admin.connection, retry_seconds=admin.http.retry_seconds, calls_per_second=request.calls_per_second
    )


async def _publish(site: Site, tally: Tally, request: Request) -> None:
    await publish_once(site, tally, snapshot=request.snapshot)


async def _drain(site: Site, tally: Tally, _: Request) -> None:
    await drain(site, tally)


async def _attempt(step: Coroutine[None, None, None]) -> str:
    """Why a cluster stopped to answer, empty if it did not: the others go on."""
    try:
        await step
    except Transient as error:
        log.warning("%s", error)
        return str(error)
    return ""
