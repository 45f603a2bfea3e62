"""The switch of one namespace: quiet the writers, place subscriptions, redirect, flag, confirm, let writers go.

The order was run against real clusters: publishes in flight at the termination leave a topic closed for ever, so
writes are throttled to 1 message/s first; a higher rate killed consumers, a longer wait only adds silence. Each step
looks at the clusters first, so a switch that was killed at any line goes on when it is called again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.cutover.quiesce import SETTLED_SECONDS, text_of, wait_settled
from pulsar_fleet.migration.cutover.redirect import Redirect, count_clients, require_green, set_flag, store_redirect
from pulsar_fleet.migration.cutover.termination import check_periods, hand_to_looking_brokers, wait_terminated
from pulsar_fleet.migration.model import Move, Strategy
from pulsar_fleet.migration.prepare.original_settings import Frozen
from pulsar_fleet.migration.prepare.overrides import lift, quiet
from pulsar_fleet.migration.subscriptions.checkpoint import Notes, Placed, PlacedTopic, PlacedTopics, with_roster
from pulsar_fleet.migration.subscriptions.cursors import Singles
from pulsar_fleet.migration.subscriptions.transfer import Placement

_BATCH = "x-pulsar-num-batch-message"


async def messages_after(admin: AdminClient, topic: TopicName, end: Position | None) -> int:
    """Messages behind `end` of a partition that stands still, one call for each entry; all of them with None."""
    numbers = Ledgers.of(await admin.internal_stats(topic))
    begin = numbers.behind(end) if end else 0
    counts = await asyncio.gather(*(_messages(admin, topic, numbers.at(one)) for one in range(begin, len(numbers))))
    return sum(counts)


async def _messages(admin: AdminClient, topic: TopicName, entry: Position) -> int:
    return int((await admin.entry_properties(topic, entry)).get(_BATCH, 1))


log = logging.getLogger(__name__)

QUIET_SECONDS = 0.2
"""Behind it each partition is waited for until its writes have settled; longer only adds silence."""
_SLACK_SECONDS = 5.0
"""On top of two check periods, for a broker that is busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What the switch of one namespace did.

    :param placed: subscriptions without consumers, with what they will get on green.
    :param window: partition → messages written on blue after the subscriptions were placed: each subscription with
        consumers gets them twice, once from each side; exact, since the partition is closed.
    :param throttled_seconds: how long writers were held to 1 message/s per partition.
    :param moved: bundles that were given to another broker, because theirs never looks at the flag.
    """

    namespace: str
    placed: tuple[Placed, ...]
    window: Mapping[str, int]
    throttled_seconds: float
    moved: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 1,
            "namespace": self.namespace,
            "placed": [placed.to_json() for placed in self.placed],
            "window": dict(self.window),
            "throttled_seconds": self.throttled_seconds,
            "moved": list(self.moved),
        }


async def switch(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    *,
    redirect: Redirect,
    before: Frozen,
    notes: Notes,
    open_: Sequence[TopicName],
    quiesce_seconds: float = QUIET_SECONDS,
    singles: Singles = Singles.CARRY,
) -> Switched:
    """Hand the namespace's clients over to green.

    :param open_: partitions that are not handed over yet.
    :param before: the publish rates before the run, restored whatever happens, as soon as every partition is closed.
    :param notes: who was connected and where subscriptions were placed, also by an earlier try.
    :param singles: what becomes of messages that were acknowledged one by one.
    :raises Refused: green cannot take them, replication did not catch up, or a partition was not handed over; the
        message says what holds. `Unavailable`: a cluster did not answer, try again.
    """
    if len(open_) == len(move.partitions):
        move = await _with_clients(blue, green, move, notes)
    await store_redirect(blue, await blue.cluster_name(), redirect)
    placing = await _placement(blue, green, move, singles)
    if placing:
        await asyncio.gather(*(placing.early(topic, move.partitions[topic]) for topic in open_))
    # Whatever can be asked before writers are held is: they wait for every call from here to the end.
    periods = await check_periods(blue)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        if open_:
            await quiet(blue, move.namespace, before)
            await asyncio.sleep(quiesce_seconds)
            if places := await _make_ready(blue, move, open_, placing):
                notes.places(places)
        await set_flag(blue, move.namespace, migrated=True)
        moved = await _confirm(blue, move, periods)
    finally:
        await lift(blue, move.namespace, before)
    return await _outcome(blue, move, notes.known_places(), loop.time() - began, moved)


async def _make_ready(
    blue: AdminClient, move: Move, open_: Sequence[TopicName], placing: Placement | None
) -> PlacedTopics:
    """Nothing is in flight, and every subscription has its place.

    Both at once: what settles behind a place is copied like all else, and counted in the window.
    """
    placed: dict[TopicName, PlacedTopic] = {}

    async def place(placing: Placement, topic: TopicName) -> None:
        placed[topic] = await placing.place(topic, move.partitions[topic])

    places = [place(placing, topic) for topic in open_] if placing else []
    # All end before a refusal is raised: the clients close behind it.
    for failed in filter(None, await asyncio.gather(_settle(blue, move, open_), *places, return_exceptions=True)):
        raise failed
    return placed


async def _settle(blue: AdminClient, move: Move, open_: Sequence[TopicName]) -> None:
    """Nothing is in flight to any partition with a producer; held writers start nothing new but 1 message/s."""
    loop = asyncio.get_running_loop()
    began, written = loop.time(), [topic for topic in open_ if move.partitions[topic].producers]
    if left := await wait_settled(blue, written):
        raise PreconditionFailed(
            f"{move.namespace} did not settle within {SETTLED_SECONDS:.0f} s of 1 message/s: {text_of(left)}. A topic "
            "that is closed now may stay closed to its producers for ever, so nothing was flagged. Look at the write "
            "latency of the bookies, and at who writes there past the throttle; then run again.",
            cluster=blue.connection.name,
        )
    log.info("%s: %d written partitions settled in %.1f s", move.namespace, len(written), loop.time() - began)


async def _with_clients(blue: AdminClient, green: AdminClient, move: Move, notes: Notes) -> Move:
    """The move with who is connected now; only while nobody can have left blue."""
    await require_green(green, move)
    roster = await count_clients(blue, move)
    notes.clients(roster)
    return with_roster(move, {str(move.namespace): roster})


async def _outcome(
    blue: AdminClient, move: Move, placed: PlacedTopics, seconds: float, moved: tuple[str, ...]
) -> Switched:
    window = {str(topic): count for topic, count in (await _windows(blue, placed)).items() if count}
    log.info("%s: handed over after %.1f s, %d messages in the window", move.namespace, seconds, sum(window.values()))
    return Switched(
        namespace=str(move.namespace),
        placed=tuple(each for one in placed.values() for each in one.placed),
        window=window,
        throttled_seconds=round(seconds, 2),
        moved=moved,
    )


async def _placement(blue: AdminClient, green: AdminClient, move: Move, singles: Singles) -> Placement | None:
    """Who places the subscriptions of what was replicated.

    Under the flag an earlier try has placed them, and consumers may be on green already.
    """
    flagged = (await blue.namespace(move.namespace) or {}).get("migrated")
    return None if move.strategy is not Strategy.REPLICATE or flagged else Placement(blue, green, singles=singles)


async def _windows(blue: AdminClient, placed: PlacedTopics) -> dict[TopicName, int]:
    counts: dict[TopicName, int] = {}
    for topic, one in placed.items():
        try:
            counts[topic] = await messages_after(blue, topic, one.end)
        except Conflict:
            # Unloaded under the flag: an incident of the watch, which is no reason to repeat the switch.
            log.warning("%s is not served any more: how many messages are in its window cannot be told", topic)
    return counts


async def _confirm(blue: AdminClient, move: Move, periods: Mapping[str, float]) -> tuple[str, ...]:
    """Every partition is closed within two check periods, if need be after its bundle was given to another broker.

    Returns the bundles that were.
    """
    seconds = 2 * max(periods.values()) + _SLACK_SECONDS
    waiting = await wait_terminated(blue, move, seconds)
    moved = await hand_to_looking_brokers(blue, move, waiting, periods) if waiting else ()
    if moved:
        waiting = await wait_terminated(blue, move, seconds)
    if waiting:
        raise PreconditionFailed(
            f"{len(waiting)} of {len(move.partitions)} partitions of {move.namespace} were not handed over within "
            f"{seconds:.0f} s, {waiting[0]} among them: its broker's migration check may be off, or the topic was not "
            "loaded, and its producers may write to blue and green. The flag is set; clear it to undo what was not "
            "handed over, or fix that broker and run again."
        )
    return moved
