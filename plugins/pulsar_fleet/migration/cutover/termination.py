"""Which partitions blue has terminated for the migration, by `internal-info`: right on every version.

The broker's mark in it, the property `migrated`, reads the same as a property that a user gave to the topic, so the
position of the termination decides together with it. Where blue does not redirect, the run terminates topics itself,
and there is no mark.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.cutover.redirect import is_flagged, set_flag
from pulsar_fleet.migration.model import Move, Moves
from pulsar_fleet.migration.unread_brokers import read_settings
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY
from pulsar_fleet.snapshot.resources import read_info

log = logging.getLogger(__name__)

CHECK_PERIOD = "clusterMigrationCheckDurationSeconds"
SELDOM_SECONDS = 10
"""A longer period prolongs the publish pause, and a gate warns of it."""

_FIRST_TOPICS = 2
_POLL_SECONDS = 0.1
_LOADED_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Terminations:
    """Partition → its last entry if it is terminated for the migration, otherwise None."""

    ends: Mapping[TopicName, Position | None]

    @property
    def waiting(self) -> tuple[TopicName, ...]:
        """The partitions that are not terminated."""
        return tuple(partition for partition, end in self.ends.items() if end is None)


async def terminate(blue: AdminClient, topic: TopicName) -> None:
    """Let this plain topic or partition refuse producers for good; its consumers may read what it stores."""
    await blue.post(f"/{topic.path}/terminate")


async def without_moved(blue: AdminClient, moves: Moves) -> Moves:
    """The moves of the namespaces that no attempt has cut over yet: not flagged, or nothing terminated by the run.

    One call for each namespace; without a redirect one more, and one for each topic.
    """
    moved = await asyncio.gather(*(is_moved(blue, move) for move in moves.moves))
    return replace(moves, moves=tuple(move for move, done in zip(moves.moves, moved, strict=True) if not done))


async def is_moved(blue: AdminClient, move: Move) -> bool:
    """Whether an attempt has begun to cut over the namespace: it is flagged, or a partition is terminated."""
    if move.strategy.redirects:
        return await is_flagged(blue, move)
    return len(await unterminated_partitions(blue, move)) < len(move.partitions)


async def unterminated_partitions(blue: AdminClient, move: Move) -> tuple[TopicName, ...]:
    """Partitions that are not terminated yet; one call for each topic, whatever its number of partitions.

    A partition that does not exist, since the broker deletes inactive ones, is not terminated.
    """
    existing = await blue.topics(move.namespace)
    return Terminations(await _read(blue, move.stored_topics, move, existing)).waiting


async def wait_terminated(blue: AdminClient, move: Move, seconds: float) -> Terminations:
    """Wait until every partition is terminated, at most `seconds`.

    Two topics are polled until they are terminated, then all others at once: brokers terminate theirs together, and
    producers wait for the result.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    ends: dict[TopicName, Position | None] = {}
    waiting, count = move.stored_topics, _FIRST_TOPICS
    while waiting and loop.time() < end:
        polled, rest = waiting[:count], waiting[count:]
        ends |= await _read(blue, polled, move)
        unterminated = [
            topic for topic in polled if any(ends[part] is None for part in topic.partitions(move.topics[topic]))
        ]
        waiting, count = rest + unterminated, _FIRST_TOPICS if unterminated else len(rest)
        if unterminated:
            await asyncio.sleep(_POLL_SECONDS)
    return Terminations(ends | await _read(blue, waiting, move))


async def wait_producers_left(blue: AdminClient, partitions: Sequence[TopicName], seconds: float) -> None:
    """Wait until blue has closed every producer of these terminated partitions, at most `seconds`.

    A broker stores the termination before it closes the producers: without the throttle, one publishes in between, and
    is refused (observed: 2 publishes, 0.15 s after the termination on a busy machine). A partition that is not served
    has no producer; of one whose broker does not answer it is unknown. Calls: one for each topic, and one more for each
    read of those with producers.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    waiting = list(partitions)
    while waiting:
        statistics = await stats_of(blue, waiting, precise=False)
        waiting = [partition for partition, stats in statistics.items() if _may_have_producers(stats)]
        if waiting and loop.time() > end:
            log.warning("%d terminated partitions may still have producers, for example %s", len(waiting), waiting[0])
            return
        await asyncio.sleep(_POLL_SECONDS if waiting else 0)


def _may_have_producers(stats: TopicStats | FleetError) -> bool:
    if isinstance(stats, TopicStats):
        return stats.producers > 0
    return not isinstance(stats, Conflict | NotFound)


def unterminated_text(move: Move, waiting: Sequence[TopicName], seconds: float) -> str:
    """What to do about partitions that were not terminated; the flag may be cleared only while none is terminated."""
    text = (
        f"{len(waiting)} of {len(move.partitions)} partitions of {move.namespace} were not terminated within "
        f"{seconds:.0f} s, for example {waiting[0]}: its broker's migration check may be off, or the topic was not "
        "loaded, "
        "and its producers may write to blue and green. The flag is set. "
    )
    if len(waiting) == len(move.partitions):
        return text + (
            "Clear it to keep the namespace on blue, since no partition is terminated; or let brokers whose check is "
            "on "
            "serve them, and run again."
        )
    return text + (
        "Leave it: the clients of the terminated partitions are redirected, and would hang without it. Let a broker "
        "whose "
        "check is on serve these partitions, and run again."
    )


@dataclass(frozen=True, slots=True)
class CheckPeriods:
    """How often the brokers of blue check the flag.

    :param seconds: broker → seconds between two checks; 0 means that its migration check is off.
    :param unread: brokers of which it is unknown; a waiver has accepted that.
    """

    seconds: Mapping[str, float]
    unread: tuple[str, ...] = ()

    @property
    def longest(self) -> float:
        """In seconds; an unknown period counts as the longest that no gate warns of."""
        return max([*self.seconds.values(), *(SELDOM_SECONDS for _ in self.unread)])


async def check_periods(blue: AdminClient, run: Run) -> CheckPeriods:
    """How often each broker checks the flag; the run says which brokers need not be read. One call for each broker."""
    brokers = await read_settings(blue, run)
    seconds = {broker: float(settings.get(CHECK_PERIOD) or 0) for broker, settings in brokers.settings.items()}
    return CheckPeriods(seconds, brokers.unread)


async def _read(
    blue: AdminClient, topics: Sequence[TopicName], move: Move, existing: Collection[TopicName] | None = None
) -> dict[TopicName, Position | None]:
    parts = {topic: topic.partitions(move.topics[topic]) for topic in topics}
    documents = await asyncio.gather(
        *(read_info(blue, topic, parts[topic], parts[topic] if existing is None else existing) for topic in topics)
    )
    return {
        partition: _terminated_at(info, marked=move.strategy.redirects)
        for topic, document in zip(topics, documents, strict=True)
        for partition, info in _by_partition(topic, document, move)
    }


def _terminated_at(info: JsonObject, *, marked: bool) -> Position | None:
    position, properties = info.get("terminatedPosition"), info.get("properties") or {}
    if not position or (marked and properties.get(MIGRATED_PROPERTY) != "true"):
        return None
    return Position(int(position["ledgerId"]), int(position["entryId"]))


def _by_partition(topic: TopicName, document: JsonObject, move: Move) -> Iterator[tuple[TopicName, JsonObject]]:
    inner = document.get("partitions") or {}
    for partition in topic.partitions(move.topics[topic]):
        yield partition, document if partition == topic else inner.get(str(partition)) or {}


async def move_to_checking_brokers(
    blue: AdminClient, move: Move, topics: Sequence[TopicName], periods: CheckPeriods
) -> tuple[str, ...]:
    """Move the bundles of these partitions to a broker that checks the flag; none if there is no such broker.

    The flag is off meanwhile, since a bundle that moves under it strands its topics, and set again at the end.
    Producers must be throttled. Terminated topics move without harm (observed: 4–7 duplicates for each moved topic,
    0 lost).
    """
    checking = sorted(broker for broker, seconds in periods.seconds.items() if seconds > 0)
    not_checking = sorted(broker for broker, seconds in periods.seconds.items() if seconds <= 0)
    if not checking or not not_checking:
        return ()
    bundles = sorted({await blue.bundle(topic) for topic in topics})
    log.warning(
        "%s: %s do not check the flag; bundles %s are moved to %s", move.namespace, not_checking, bundles, checking[0]
    )
    await set_flag(blue, move.namespace, migrated=False)
    try:
        for bundle in bundles:
            await blue.put(f"/namespaces/{move.namespace.path}/{bundle}/unload", destinationBroker=checking[0])
        await load_all(blue, topics)
    finally:
        await set_flag(blue, move.namespace, migrated=True)
    return tuple(bundles)


async def load_all(admin: AdminClient, topics: Sequence[TopicName]) -> None:
    """Load every partition, and wait until each is served; the flag must be off.

    A broker may act on the flag for a moment after it was cleared. `Conflict` when one is not served after 20 s.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _LOADED_SECONDS
    waiting = list(topics)
    while waiting:
        results = await asyncio.gather(
            *(admin.stats(topic, precise=False) for topic in waiting), return_exceptions=True
        )
        errors = {
            topic: result for topic, result in zip(waiting, results, strict=True) if isinstance(result, BaseException)
        }
        for error in errors.values():
            if not isinstance(error, Conflict) or loop.time() > end:
                raise error
        waiting = list(errors)
        await asyncio.sleep(0.2 if waiting else 0)
