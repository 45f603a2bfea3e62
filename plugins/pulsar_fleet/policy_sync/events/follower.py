"""Keep one cluster up to date: publish its changes, apply those of the others, whoever's turn it is (client)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field

from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.policy_sync.events.apply import apply_received
from pulsar_fleet.policy_sync.events.batch import Batch
from pulsar_fleet.policy_sync.events.outages import Silences, behind_text
from pulsar_fleet.policy_sync.events.participant import Site
from pulsar_fleet.policy_sync.events.publish import publish_changes

log = logging.getLogger(__name__)

_MOST = 500
PAUSE_SECONDS = 5.0
"""Between two tries of a cluster that does not answer."""
_WAIT_SECONDS = 1.0
_MOST_REASONS = 20


@dataclass(kw_only=True)
class Tally:
    """What was done on one cluster; `dropped` were stale, came before, or do not travel here.

    :param written: changes that were made; events that ask for what is there already make none.
    :param lost: edits that a whole document took back although nobody edited their field later.
    :param stamped: namespaces in which it was written who wrote them last.
    :param looks: whole looks at the cluster, and `look_calls` the calls that these made.
    :param unsent: cluster → events that wait here for it.
    :param behind_since: since when it does not answer, empty if it does.
    """

    published: int = 0
    applied: int = 0
    dropped: int = 0
    postponed: int = 0
    refused: int = 0
    written: int = 0
    lost: int = 0
    stamped: int = 0
    looks: int = 0
    look_calls: int = 0
    reasons: list[str] = field(default_factory=list)
    active: bool = False
    backlog: int = 0
    unsent: Mapping[str, int] = field(default_factory=dict)
    behind_since: str = ""

    def count(self, batch: Batch) -> None:
        """Add what became of a batch."""
        self.applied += len(batch.applied)
        self.dropped += len(batch.useless)
        self.postponed += len(batch.later)
        self.refused += len(batch.refused)
        self.written += batch.written
        self.lost += batch.lost
        self.stamped += batch.stamped
        self.reasons = [*self.reasons, *batch.refused.values()][-_MOST_REASONS:]

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)


async def publish_once(site: Site, tally: Tally, *, snapshot: bool) -> None:
    """Publish what changed, if it is our turn; a snapshot is compacted afterwards, so that the topic stays small."""
    await _take_standing(site, tally)
    if not tally.active:
        return
    calls = site.looker.calls
    published = await publish_changes(site, snapshot=snapshot)
    tally.looks += 1
    tally.look_calls += site.looker.calls - calls
    tally.published += published.events
    tally.stamped += published.stamped
    if snapshot:
        await compact(site)


async def drain(site: Site, tally: Tally) -> None:
    """Apply events until none came for a while."""
    while received := await site.topic.receive(_MOST, site.request.quiet_seconds):
        tally.count(await apply_received(site, received))
    await _take_standing(site, tally)


async def follow(
    site: Site, tally: Tally, silences: Silences, stopped: asyncio.Event, say: Callable[[str], None]
) -> None:
    """Publish and apply, side by side, until stopped; a cluster that does not answer is tried again, and said once."""
    follower = _Follower(
        site=site, tally=tally, silences=silences, stopped=stopped, say=say, snapshot_due=site.request.snapshot
    )
    await side_by_side(follower.repeat(follower.look), follower.repeat(follower.receive))


async def side_by_side(*work: Coroutine[None, None, None]) -> None:
    """Do all of it; the first error ends the rest before it is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pause(stopped: asyncio.Event, seconds: float) -> None:
    """Wait, not longer than until stopped."""
    try:
        await asyncio.wait_for(stopped.wait(), seconds)
    except TimeoutError:
        return


async def compact(site: Site) -> None:
    """Let the cluster keep only the last event of each resource."""
    try:
        await site.admin.put(f"/{site.request.event_topic.path}/compaction")
    except Conflict:
        log.info("%s: a compaction goes on", site.own)


async def _take_standing(site: Site, tally: Tally) -> None:
    standing = await site.standing()
    tally.active, tally.backlog, tally.unsent = standing.active, standing.backlog, dict(standing.unsent)


@dataclass(kw_only=True)
class _Follower:
    """One follower of one cluster; of several only the one that gets the events publishes."""

    site: Site
    tally: Tally
    silences: Silences
    stopped: asyncio.Event
    say: Callable[[str], None]
    snapshot_due: bool
    failing: set[str] = field(default_factory=set)
    snapped: float = field(default_factory=time.monotonic)

    async def repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do it until stopped, whether the cluster answers or not."""
        name = step.__name__
        while not self.stopped.is_set():
            try:
                await step()
            except Unavailable as error:
                self._fail(name, error)
                await pause(self.stopped, PAUSE_SECONDS)
            else:
                self._succeed(name)

    async def look(self) -> None:
        """Publish what changed, then wait for the next look."""
        request = self.site.request
        every = request.snapshot_minutes * 60
        due = self.snapshot_due or bool(every and time.monotonic() - self.snapped >= every)
        await publish_once(self.site, self.tally, snapshot=due)
        if due and self.tally.active:
            self.snapshot_due, self.snapped = False, time.monotonic()
        await pause(self.stopped, request.poll_seconds if self.tally.active else _WAIT_SECONDS)

    async def receive(self) -> None:
        """Apply what is there."""
        if received := await self.site.topic.receive(_MOST, _WAIT_SECONDS):
            self.tally.count(await apply_received(self.site, received))

    def _fail(self, step: str, error: Unavailable) -> None:
        if not self.failing:
            _, since = self.silences.begin(self.site.admin.connection.name)
            self.tally.behind_since = since.isoformat()
            self.say(behind_text(self.site.own, since, error))
        self.failing.add(step)

    def _succeed(self, step: str) -> None:
        if step not in self.failing:
            return
        self.failing.remove(step)
        if not self.failing:
            self.silences.end(self.site.admin.connection.name, self.site.own)
            self.say(f"{self.site.own} answers again; it was behind since {self.tally.behind_since}")
            self.tally.behind_since = ""
