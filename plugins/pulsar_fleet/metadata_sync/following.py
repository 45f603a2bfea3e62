"""Keep one cluster up to date: publish its changes, apply those of the others, whoever's turn it is (client)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from pulsar_fleet.cluster.errors import Conflict, Transient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.metadata_sync.applying import apply_received
from pulsar_fleet.metadata_sync.batch import Batch
from pulsar_fleet.metadata_sync.publishing import publish_changes
from pulsar_fleet.metadata_sync.site import Site

log = logging.getLogger(__name__)

_MOST = 500
_PAUSE_SECONDS = 5.0
_STANDBY_SECONDS = 1.0
_MOST_REASONS = 20


@dataclass(kw_only=True)
class Tally:
    """What was done on one cluster; `dropped` were stale, came before, or do not travel here."""

    published: int = 0
    applied: int = 0
    dropped: int = 0
    postponed: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    active: bool = False
    backlog: int = 0

    def count(self, batch: Batch) -> None:
        """Add what became of a batch."""
        self.applied += len(batch.applied)
        self.dropped += len(batch.useless)
        self.postponed += len(batch.later)
        self.refused += len(batch.refused)
        self.reasons = [*self.reasons, *batch.refused.values()][-_MOST_REASONS:]

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)


async def publish_once(site: Site, tally: Tally, *, snapshot: bool) -> None:
    """Publish what changed, if it is our turn; a snapshot is compacted afterwards, so that the topic stays small."""
    tally.active, _ = await site.backlog()
    if not tally.active:
        return
    tally.published += await publish_changes(site, snapshot=snapshot)
    if snapshot:
        await compact(site)


async def drain(site: Site, tally: Tally) -> None:
    """Apply events until none came for a while."""
    while received := await site.topic.receive(_MOST, site.request.quiet_seconds):
        tally.count(await apply_received(site, received))
    tally.active, tally.backlog = await site.backlog()


async def follow(site: Site, tally: Tally, stopped: asyncio.Event, say: Callable[[str], None]) -> None:
    """Publish and apply until stopped; a cluster that does not answer is tried again, and said once."""
    follower = _Follower(site=site, tally=tally, snapshot_due=site.request.snapshot)
    silent_since = 0.0
    while not stopped.is_set():
        try:
            await follower.cycle()
        except Transient as error:
            if not silent_since:
                silent_since = time.monotonic()
                say(f"{site.own} is behind: {error}")
            await _pause(stopped, _PAUSE_SECONDS)
            continue
        if silent_since:
            say(f"{site.own} answers again after {time.monotonic() - silent_since:.0f} s")
            silent_since = 0.0


async def compact(site: Site) -> None:
    """Let the cluster keep only the last event of each resource."""
    try:
        await site.admin.put(f"/{site.request.event_topic.path}/compaction")
    except Conflict:
        log.info("%s: a compaction goes on", site.own)


@dataclass(kw_only=True)
class _Follower:
    """One follower of one cluster; of several only the one that gets the events publishes."""

    site: Site
    tally: Tally
    snapshot_due: bool
    looked: float = 0.0
    snapped: float = field(default_factory=time.monotonic)

    async def cycle(self) -> None:
        """Look if it is time to, then apply what is there."""
        request = self.site.request
        if time.monotonic() - self.looked >= request.poll_seconds:
            every = request.snapshot_minutes * 60
            due = self.snapshot_due or bool(every and time.monotonic() - self.snapped >= every)
            await publish_once(self.site, self.tally, snapshot=due)
            if due and self.tally.active:
                self.snapshot_due, self.snapped = False, time.monotonic()
            self.looked = time.monotonic()
        wait = request.poll_seconds - (time.monotonic() - self.looked) if self.tally.active else _STANDBY_SECONDS
        if received := await self.site.topic.receive(_MOST, max(wait, 0.0)):
            self.tally.count(await apply_received(self.site, received))


async def _pause(stopped: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), seconds)
    except TimeoutError:
        return
