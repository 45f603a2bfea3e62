"""Follow clusters: publish their changes, apply those of the others; one that did not answer joins later (client)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import chain

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet, open_fleet
from pulsar_fleet.policy_sync.events.apply import apply_received
from pulsar_fleet.policy_sync.events.deletions import settle_deletions
from pulsar_fleet.policy_sync.events.fleet import Outages, behind_text, outages_of
from pulsar_fleet.policy_sync.events.ordering.reference_clock import ReferenceClock
from pulsar_fleet.policy_sync.events.participant import Participant, open_participant
from pulsar_fleet.policy_sync.events.publish import publish_changes, publish_snapshot_end
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.results import Tally, waiting_lines
from pulsar_fleet.policy_sync.events.setup import prepare
from pulsar_fleet.policy_sync.merge.deletion_plan import pending_lines

log = logging.getLogger(__name__)

_MOST = 500
PAUSE_SECONDS = 5.0
"""Between two calls to a cluster that does not answer."""
_WAIT_SECONDS = 1.0


async def publish_once(participant: Participant, tally: Tally, *, snapshot: bool) -> None:
    """Publish changes if the cluster gives its events to this process; compact the topic after a snapshot.

    A snapshot is also published every `snapshot_minutes`, and once for a cluster that joined the fleet.
    """
    await update_state(participant, tally)
    if not tally.active:
        return
    _end_joining(participant, tally)
    now = (await participant.measure_clock()).now()
    new = _grow(participant, tally, now)
    minutes = participant.request.snapshot_minutes
    periodic = participant.members.periodic_snapshot_is_due(participant.own, minutes, now)
    snapshot = bool(snapshot or new or periodic) and not participant.joins
    tally.read_clock(await participant.measure_clock(), participant.own)
    calls = participant.scan_admin.calls
    owed = {} if participant.joins else participant.members.owed(participant.own)
    counts = await publish_changes(participant, snapshot=snapshot, owed=frozenset(chain(*owed.values())))
    tally.unmeasured = participant.unmeasured()
    if new:
        if counts.complete:
            await publish_snapshot_end(participant, new, counts.left_out)
        participant.members.end_snapshot(new, sent=counts.complete, left_out=counts.left_out)
    for name, places in owed.items() if counts.complete else ():
        left_out = {place: why for place, why in counts.left_out.items() if place in places}
        if len(left_out) < len(places):
            await publish_snapshot_end(participant, (name,), left_out)
            participant.members.end_snapshot((name,), sent=True, left_out=left_out)
    tally.scans += 1
    tally.scan_calls += participant.scan_admin.calls - calls
    tally.published += counts.events
    tally.provenance_written += counts.provenance_written
    tally.notice(counts.new_topics)
    for topic in counts.new_topics:
        log.info("%s: a new partitioned topic, %s", participant.own, topic)
    if snapshot:
        await compact(participant)


async def drain(participant: Participant, tally: Tally) -> None:
    """Apply events until none arrives for `idle_seconds`, or only those arrive again that still wait."""
    while received := await participant.topic.receive(_MOST, participant.request.idle_seconds):
        earlier = set(participant.waiting)
        batch = await apply_received(participant, received)
        tally.count(batch)
        if batch.waiting and len(batch.postponed) == len(received) and batch.waiting.keys() <= earlier:
            break
    await update_state(participant, tally)
    _end_joining(participant, tally)


def _grow(participant: Participant, tally: Tally, now: int) -> tuple[str, ...]:
    """The clusters that joined the fleet and for which a snapshot has to be published from here."""
    fleet = tuple(sorted({*participant.fleet, *tally.unsent}))
    if fleet != participant.fleet:
        log.info("%s: the fleet grew to %s", participant.own, ", ".join(fleet))
        participant.fleet = fleet
    new = () if participant.joins else participant.members.claim_snapshot(participant.own, fleet, now)
    if new:
        log.info("%s: publishes a snapshot for %s", participant.own, ", ".join(new))
    return new


def _end_joining(participant: Participant, tally: Tally) -> None:
    """A cluster that joins publishes when it received the snapshot and every event is acknowledged."""
    own, earlier = participant.own, tally.lacks
    tally.lacks = participant.members.lacks(own)
    if participant.joins and tally.active and not tally.backlog and participant.members.become_equal(own):
        participant.joins = False
        lacks = f", except what was left out of the snapshot: {'; '.join(tally.lacks)}" if tally.lacks else ""
        log.info("%s: has what the fleet had before it joined%s; its changes are published from now on", own, lacks)
    elif earlier and not tally.lacks:
        log.info("%s: what was left out of the snapshot has arrived", own)
    tally.joins = participant.joins


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


async def update_state(participant: Participant, tally: Tally) -> None:
    """Read the state of the event topic: one call."""
    state = await participant.topic_state()
    tally.active, tally.backlog, tally.unread = state.active, state.backlog, state.unread
    tally.unsent = dict(state.unsent)
    tally.waiting = {f"{kind.value} {name}": entry for (kind, name), entry in participant.waiting.items()}


@dataclass(kw_only=True)
class _Follower:
    """One follower of one cluster; of several followers only the one that receives the events publishes."""

    participant: Participant
    tally: Tally
    outages: Outages
    stopped: asyncio.Event
    say: Callable[[str], None]
    snapshot_due: bool
    deletions_due: bool = True
    failing: set[str] = field(default_factory=set)
    reported: ReferenceClock | None = None
    reported_waiting: frozenset[str] = frozenset()

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
        due = self.snapshot_due
        await publish_once(self.participant, self.tally, snapshot=due)
        self._report_clock()
        self.snapshot_due = due and not self.tally.active
        await pause(self.stopped, request.poll_seconds if self.tally.active else _WAIT_SECONDS)

    async def receive(self) -> None:
        """Apply the events that have arrived; list the deletions that wait, at first and when another one came."""
        if received := await self.participant.topic.receive(_MOST, _WAIT_SECONDS):
            batch = await apply_received(self.participant, received)
            self.tally.count(batch)
            self._report_waiting()
            self.deletions_due = self.deletions_due or batch.deletions > 0
        if self.deletions_due:
            await self._list_deletions()
            self.deletions_due = False

    async def _list_deletions(self) -> None:
        """Say what waits: a follower cannot ask anybody."""
        await settle_deletions(self.participant, self.tally)
        if waiting := self.tally.pending_deletions:
            for line in pending_lines(self.participant.own, waiting):
                self.say(line)

    def _report_clock(self) -> None:
        """Print by which clock edits are ordered, at the start and when that changed noticeably."""
        clock = self.participant.last_clock
        if clock is not None and (self.reported is None or clock.differs(self.reported)):
            self.say(clock.text(self.participant.own))
            self.reported = clock

    def _report_waiting(self) -> None:
        """Print what events wait for when a resource begins to wait, and when none does any more."""
        waiting = {f"{kind.value} {name}": entry for (kind, name), entry in self.participant.waiting.items()}
        causes = {entry.why for name, entry in waiting.items() if name not in self.reported_waiting}
        due = {name: entry for name, entry in waiting.items() if entry.why in causes}
        for line in waiting_lines(self.participant.own, due):
            self.say(line)
        if self.reported_waiting and not waiting:
            self.say(f"{self.participant.own}: no event waits any more")
        self.reported_waiting = frozenset(waiting)

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


_PATIENCE_SECONDS = 2.0
"""A follower retries by itself, and reports an unreachable cluster sooner than a run."""


async def follow_all(
    connections: Sequence[ClusterConnection],
    request: Request,
    run: Run,
    *,
    stopped: asyncio.Event,
    say: Callable[[str], None],
) -> dict[str, Tally]:
    """Create the event topic, then publish and apply on each cluster until stopped.

    :param say: receives a line at the start, and when a cluster stops answering or answers again.
    :returns: the counts by cluster.
    :raises Unavailable: no cluster answers.
    :raises InvalidRequest: the event topic does not exist, and a cluster that is needed to create it does not answer.
    """
    async with open_fleet(connections, _PATIENCE_SECONDS) as reached:
        redactor = open_redactor()
        fleet = await prepare(reached.clusters, request, run, redactor)
        pool = _FollowerPool(
            reached=reached,
            fleet=fleet,
            request=request,
            run=run,
            redactor=redactor,
            outages=outages_of(reached, run, request),
            stopped=stopped,
            say=say,
        )
        say(f"Following {', '.join(reached.clusters)} of {', '.join(fleet)}")
        unreachable = [connection for connection in connections if connection.name in reached.behind]
        await run_all(*map(pool.follow, list(reached.clusters)), *map(pool.join, unreachable))
    return pool.tallies


@dataclass(kw_only=True)
class _FollowerPool:
    """The followers of one process."""

    reached: Fleet
    fleet: tuple[str, ...]
    request: Request
    run: Run
    redactor: Redactor
    outages: Outages
    stopped: asyncio.Event
    say: Callable[[str], None]
    tallies: dict[str, Tally] = field(default_factory=dict)

    async def follow(self, name: str) -> None:
        """Follow a cluster that answers."""
        tally = self.tallies.setdefault(name, Tally())
        opened = open_participant(name, self.reached, self.fleet, self.request, self.run, self.redactor)
        async with opened as participant:
            await follow(participant, tally, self.outages, self.stopped, self.say)

    async def join(self, connection: ClusterConnection) -> None:
        """Wait until a cluster answers, then follow it."""
        async with AdminClient(connection, retry_seconds=_PATIENCE_SECONDS) as admin:
            why = Unavailable(self.reached.behind[connection.name])
            while not self.stopped.is_set():
                self._begin_outage(connection, why)
                await pause(self.stopped, PAUSE_SECONDS)
                try:
                    name = await admin.cluster_name()
                    self.reached.add(name, admin)
                    self.reached.behind.pop(connection.name, None)
                    self.fleet = await prepare({name: admin}, self.request, self.run, self.redactor)
                    self._end_outage(connection, name)
                    await self.follow(name)
                except Unavailable as error:
                    why = error

    def _begin_outage(self, connection: ClusterConnection, why: Unavailable) -> None:
        name, since = self.outages.begin(connection.name)
        tally = self.tallies.setdefault(name, Tally())
        if not tally.behind_since:
            self.say(behind_text(name, since, why))
        tally.behind_since = since.isoformat()

    def _end_outage(self, connection: ClusterConnection, name: str) -> None:
        self.outages.end(connection.name, name)
        for label in {name, connection.name} & self.tallies.keys():
            self.tallies[label].behind_since = ""
        self.say(f"{name} answers; following it too")
