"""Follow one cluster: publish its changes and apply those of the others (client)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.policy_sync.events.apply import apply_received
from pulsar_fleet.policy_sync.events.outages import Outages, behind_text
from pulsar_fleet.policy_sync.events.participant import Participant
from pulsar_fleet.policy_sync.events.publish import publish_changes
from pulsar_fleet.policy_sync.events.results import Tally

log = logging.getLogger(__name__)

_MOST = 500
PAUSE_SECONDS = 5.0
"""Between two calls to a cluster that does not answer."""
_WAIT_SECONDS = 1.0


async def publish_once(participant: Participant, tally: Tally, *, snapshot: bool) -> None:
    """Publish changes if the cluster gives its events to this process; compact the topic after a snapshot."""
    await _update_state(participant, tally)
    if not tally.active:
        return
    calls = participant.scan_admin.calls
    counts = await publish_changes(participant, snapshot=snapshot)
    tally.scans += 1
    tally.scan_calls += participant.scan_admin.calls - calls
    tally.published += counts.events
    tally.provenance_written += counts.provenance_written
    if snapshot:
        await compact(participant)


async def drain(participant: Participant, tally: Tally) -> None:
    """Apply events until none arrives for `idle_seconds`."""
    while received := await participant.topic.receive(_MOST, participant.request.idle_seconds):
        tally.count(await apply_received(participant, received))
    await _update_state(participant, tally)


async def follow(
    participant: Participant, tally: Tally, outages: Outages, stopped: asyncio.Event, say: Callable[[str], None]
) -> None:
    """Publish and apply concurrently until stopped; an unreachable cluster is retried and reported once."""
    follower = _Follower(
        participant=participant,
        tally=tally,
        outages=outages,
        stopped=stopped,
        say=say,
        snapshot_due=participant.request.snapshot,
    )
    await run_all(follower.repeat(follower.publish), follower.repeat(follower.receive))


async def run_all(*work: Coroutine[None, None, None]) -> None:
    """Run coroutines concurrently; the first error cancels the others before it is raised."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pause(stopped: asyncio.Event, seconds: float) -> None:
    """Wait for some seconds or until stopped."""
    try:
        await asyncio.wait_for(stopped.wait(), seconds)
    except TimeoutError:
        return


async def compact(participant: Participant) -> None:
    """Let the cluster keep only the last event of each resource."""
    try:
        await participant.admin.put(f"/{participant.request.event_topic.path}/compaction")
    except Conflict:
        log.info("%s: a compaction is already running", participant.own)


async def _update_state(participant: Participant, tally: Tally) -> None:
    state = await participant.topic_state()
    tally.active, tally.backlog, tally.unsent = state.active, state.backlog, dict(state.unsent)


@dataclass(kw_only=True)
class _Follower:
    """One follower of one cluster; of several followers only the one that receives the events publishes."""

    participant: Participant
    tally: Tally
    outages: Outages
    stopped: asyncio.Event
    say: Callable[[str], None]
    snapshot_due: bool
    failing: set[str] = field(default_factory=set)
    last_snapshot: float = field(default_factory=time.monotonic)

    async def repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until stopped, also while the cluster does not answer."""
        name = step.__name__
        while not self.stopped.is_set():
            try:
                await step()
            except Unavailable as error:
                self._fail(name, error)
                await pause(self.stopped, PAUSE_SECONDS)
            else:
                self._succeed(name)

    async def publish(self) -> None:
        """Publish changes, then wait for the next scan."""
        request = self.participant.request
        interval = request.snapshot_minutes * 60
        due = self.snapshot_due or bool(interval and time.monotonic() - self.last_snapshot >= interval)
        await publish_once(self.participant, self.tally, snapshot=due)
        if due and self.tally.active:
            self.snapshot_due, self.last_snapshot = False, time.monotonic()
        await pause(self.stopped, request.poll_seconds if self.tally.active else _WAIT_SECONDS)

    async def receive(self) -> None:
        """Apply the events that have arrived."""
        if received := await self.participant.topic.receive(_MOST, _WAIT_SECONDS):
            self.tally.count(await apply_received(self.participant, received))

    def _fail(self, step: str, error: Unavailable) -> None:
        if not self.failing:
            _, since = self.outages.begin(self.participant.admin.connection.name)
            self.tally.behind_since = since.isoformat()
            self.say(behind_text(self.participant.own, since, error))
        self.failing.add(step)

    def _succeed(self, step: str) -> None:
        if step not in self.failing:
            return
        self.failing.remove(step)
        if not self.failing:
            self.outages.end(self.participant.admin.connection.name, self.participant.own)
            self.say(f"{self.participant.own} answers again; it was behind since {self.tally.behind_since}")
            self.tally.behind_since = ""
