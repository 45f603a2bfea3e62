"""Which partitions blue has terminated for the migration, by `internal-info`: right on every version.

The broker's mark in it, the property `migrated`, reads the same as a property that a user gave to the topic, so the
position of the termination decides together with it. Where blue does not redirect, the run terminates topics itself,
and there is no mark.

A topic that its owner terminated before has no mark, and the flag gives it none (observed on 4.2.4): blue redirects its
consumers as those of any other, when they have read it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.messages.positions import terminated_at
from pulsar_fleet.migration.artefacts import CUT_OVER
from pulsar_fleet.migration.cutover.redirect import is_flagged, set_flag
from pulsar_fleet.migration.model import Move, Moves
from pulsar_fleet.migration.unread_brokers import read_settings
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY
from pulsar_fleet.snapshot.resources import read_info

CHECK_PERIOD = "clusterMigrationCheckDurationSeconds"
SELDOM_SECONDS = 10
"""A longer period prolongs the publish pause, and a gate warns of it."""

_LOADED_SECONDS = 20.0
_MOST_MOVES = 5
_SLACK_SECONDS = 5.0


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

    @property
    def until_terminated(self) -> float:
        """How many seconds a termination takes at most: two checks, and some time of a busy broker."""
        return 2 * self.longest + _SLACK_SECONDS


async def check_periods(blue: AdminClient, run: Run) -> CheckPeriods:
    """How often each broker checks the flag; the run says which brokers need not be read. One call for each broker."""
    brokers = await read_settings(blue, run)
    seconds = {broker: float(settings.get(CHECK_PERIOD) or 0) for broker, settings in brokers.settings.items()}
    return CheckPeriods(seconds, brokers.unread)


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
    bundles = sorted({f"{move.namespace.path}/{await blue.bundle(topic)}" for topic in topics})
    log.warning(
        "%s: %s do not check the flag; bundles %s are moved to %s", move.namespace, not_checking, bundles, checking[0]
    )
    await set_flag(blue, move.namespace, migrated=False)
    try:
        await _move(blue, bundles, topics, checking[0])
    finally:
        await set_flag(blue, move.namespace, migrated=True)
    return tuple(bundle.rpartition("/")[2] for bundle in bundles)


async def _move(blue: AdminClient, bundles: Sequence[str], topics: Sequence[TopicName], broker: str) -> None:
    """Let a broker serve these bundles (`tenant/namespace/begin_end`), and load the topics.

    A busy cluster may give a bundle to another broker than the one that is asked for (observed): it is moved again.
    """
    waiting = list(bundles)
    for _ in range(_MOST_MOVES):
        for bundle in waiting:
            await blue.put(f"/namespaces/{bundle}/unload", destinationBroker=broker)
        # What is not served resists behind the flag, and is named there: the others must not wait for it.
        for topic, error in (await load_all(blue, topics)).items():
            log.warning("%s is not served: %s", topic, error)
        owned = await blue.owned_bundles(broker)
        if not (waiting := [bundle for bundle in waiting if bundle not in owned]):
            return
        log.warning("%s did not get the bundles %s", broker, waiting)


async def load_all(admin: AdminClient, topics: Sequence[TopicName]) -> dict[TopicName, FleetError]:
    """Load every partition that exists and wait until each is served; returns those that are not. The flag must be off.

    A broker may act on the flag for a moment after it was cleared: a `Conflict` is repeated for 20 s, another error is
    the answer.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _LOADED_SECONDS
    unserved: dict[TopicName, FleetError] = {}
    waiting = list(topics)
    while waiting:
        answers = await stats_of(admin, waiting, precise=False, together=False)
        errors = {
            topic: answer
            for topic, answer in answers.items()
            if isinstance(answer, FleetError) and not isinstance(answer, NotFound)
        }
        waiting = [topic for topic, error in errors.items() if isinstance(error, Conflict) and loop.time() < end]
        unserved |= {topic: error for topic, error in errors.items() if topic not in waiting}
        await asyncio.sleep(0.2 if waiting else 0)
    return unserved


async def require_loaded(admin: AdminClient, topics: Sequence[TopicName]) -> None:
    """Load every partition that exists; the flag must be off.

    :raises FleetError: the answer of a partition that is not served, when all others are.
    """
    for error in (await load_all(admin, topics)).values():
        raise error


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What blue has terminated.

    :param moved_bundles: bundles moved to another broker, because theirs does not check the flag.
    """

    terminations: Terminations
    moved_bundles: tuple[str, ...]


async def confirm_termination(blue: AdminClient, move: Move, periods: CheckPeriods) -> Confirmation:
    """Wait until every partition is terminated: two check periods, and again after moving bundles if needed.

    :raises PreconditionFailed: blue has terminated none for the migration, so that it can be undone.
    """
    seconds = periods.until_terminated
    terminations = await wait_terminated(blue, move, seconds)
    waiting = terminations.waiting
    movable = waiting and not move.strategy.flags_cluster
    moved = await move_to_checking_brokers(blue, move, waiting, periods) if movable else ()
    if moved:
        terminations = await wait_terminated(blue, move, seconds)
    if terminations.waiting and not terminations.by_migration:
        raise PreconditionFailed(_none_terminated(move, terminations.waiting, seconds, blue.connection.name))
    return Confirmation(terminations, moved)


async def unterminated_causes(
    blue: AdminClient, green: AdminClient, move: Move, terminations: Terminations, periods: CheckPeriods
) -> dict[str, str]:
    """Partition → why it is not terminated, and what to do about it; empty where every one is.

    What its owner had terminated is terminated on green too: only after the cursors behind its copies are set, and not
    where applications use green's topics already.
    """
    ended = frozenset[TopicName]() if move.strategy.is_moved_before else terminations.by_owner
    causes = await _causes(blue, terminations.waiting, periods) if terminations.waiting else {}
    return {**causes, **await end_on_green(green, ended)}


async def unterminated(blue: AdminClient, green: AdminClient, run: Run, moves: Sequence[Move]) -> dict[TopicName, str]:
    """Partitions that the cut-over left unterminated and that still are, each with its cause and what to do.

    The cause is empty for a shadow topic without clients, of which nothing is left to move. A partition that was
    deleted is not among them. No call where the cut-over left none.
    """
    results = run.stored(CUT_OVER) or {}
    causes: dict[str, str] = {}
    for move in moves:
        left = {TopicName.parse(text) for text in (results.get(str(move.namespace)) or {}).get("unterminated") or ()}
        if left:
            read, periods = await asyncio.gather(read_terminations(blue, move), check_periods(blue, run))
            ends = {topic: end for topic, end in read.ends.items() if topic in left}
            causes |= await unterminated_causes(blue, green, move, Terminations(ends, read.by_owner & left), periods)
    return {TopicName.parse(text): cause for text, cause in causes.items()}


def incomplete_text(move: Move, left: Mapping[TopicName, str], blue: str) -> str:
    """What a person does about partitions that were left behind; the run has done everything else."""
    lines = "\n".join(f"  {topic}: {cause}" for topic, cause in left.items())
    return (
        f"{move.namespace} is incomplete: {len(left)} of {counted(len(move.partitions), 'partition')} "
        f"{'is' if len(left) == 1 else 'are'} not terminated on {blue}.\n{lines}\n  Everything else of it was moved "
        f"and verified. Leave its flag; nothing of it was removed from {blue}. Then clear the task wait_drained."
    )


async def end_on_green(green: AdminClient, partitions: Collection[TopicName]) -> dict[str, str]:
    """Terminate on green what its owner had terminated on blue; returns those that failed, with what to do."""
    failed: dict[str, str] = {}
    for partition in sorted(partitions):
        try:
            if not (await green.internal_info(partition)).get("terminatedPosition"):
                await terminate(green, partition)
        except FleetError as error:
            cluster = green.connection.name
            failed[str(partition)] = f"its owner had terminated it, and {cluster} did not terminate it: {error}"
    return failed


def _none_terminated(move: Move, waiting: Sequence[TopicName], seconds: float, cluster: str) -> str:
    on = "let brokers whose check is on serve them, and run again."
    # Where applications were moved before, messages of green are missing on blue by now.
    keep = f"Clear it to keep the namespace on {cluster}, since no partition is terminated; or "
    to_do = on.capitalize() if move.strategy.is_moved_before else f"{keep}{on}"
    return (
        f"{len(waiting)} of {len(move.partitions)} partitions of {move.namespace} were not terminated within "
        f"{seconds:.0f} s, for example {waiting[0]}: its broker's migration check may be off, or the topic was not "
        f"loaded, and its producers may write to both clusters. The flag is set. {to_do}"
    )


async def _causes(blue: AdminClient, waiting: Sequence[TopicName], periods: CheckPeriods) -> dict[str, str]:
    statistics = await stats_of(blue, waiting, precise=False)
    causes = {topic: await _cause(blue, topic, stats, periods) for topic, stats in statistics.items()}
    return {str(topic): cause for topic, cause in causes.items() if cause is not None}


async def _cause(
    blue: AdminClient, topic: TopicName, stats: TopicStats | FleetError, periods: CheckPeriods
) -> str | None:
    """Empty for a partition of which nothing is left to move; None for one that does not exist."""
    match stats:
        case Conflict():
            return (
                "it was not loaded when the flag was set, and a flagged topic cannot be loaded. The task wait_drained "
                "loads it, with the flag off for a moment"
            )
        case NotFound():
            return None
        case FleetError():
            return f"{blue.connection.name} does not serve it: {stats} Repair it there: its broker's log says why"
    if source := await source_of(blue, topic):
        clients = counted(len(stats.clients), "connected client")
        stays = f"it is a shadow topic of {source} with {clients}, and no broker terminates one"
        return f"{stays}. Connect its clients to {source} on the cluster to which it moves" if stats.clients else ""
    if unchecked := sorted(broker for broker, seconds in periods.seconds.items() if seconds <= 0):
        return (
            f"the migration check is off on {listed(unchecked)}. Let a broker whose check is on serve it: "
            f"{', '.join(sorted(periods.seconds.keys() - set(unchecked))) or 'none has it on'}"
        )
    return f"its broker, {await blue.owner(topic)}, has not terminated it: that broker's log says why"


async def source_of(blue: AdminClient, topic: TopicName) -> str:
    """The source of a shadow topic; empty for another topic."""
    properties = (await blue.internal_info(topic)).get("properties") or {}
    return str(properties.get(SHADOW_SOURCE) or "")


log = logging.getLogger(__name__)

_FIRST_TOPICS = 2
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Terminations:
    """Partition → its last entry if it is terminated, by whomever, otherwise None; without those that do not exist.

    :param by_owner: the terminated partitions that the migration has not terminated.
    """

    ends: Mapping[TopicName, Position | None]
    by_owner: frozenset[TopicName] = frozenset()

    @property
    def waiting(self) -> tuple[TopicName, ...]:
        """The partitions that are not terminated."""
        return tuple(partition for partition, end in self.ends.items() if end is None)

    @property
    def by_migration(self) -> tuple[TopicName, ...]:
        """The partitions that the migration has terminated: with the first of them it cannot be undone."""
        return tuple(topic for topic, end in self.ends.items() if end is not None and topic not in self.by_owner)

    @classmethod
    def of(cls, documents: Mapping[TopicName, JsonObject | None], move: Move) -> Terminations:
        """Read the `internal-info` of each partition; None for one that does not exist."""
        ends = {topic: terminated_at(info) for topic, info in documents.items() if info is not None}
        by_owner = (
            topic
            for topic, info in documents.items()
            if info and ends[topic] and (topic in move.ended or (move.strategy.redirects and not _is_marked(info)))
        )
        return cls(ends, frozenset(by_owner))


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
    """Partitions that the migration has not terminated; one call for each topic, whatever its number of partitions.

    A partition that does not exist, since the broker deletes inactive ones, is not terminated.
    """
    terminated = (await read_terminations(blue, move)).by_migration
    return tuple(topic for topic in move.partitions if topic not in terminated)


async def read_terminations(blue: AdminClient, move: Move) -> Terminations:
    """Every partition that exists; one call for each topic, and one more."""
    return Terminations.of(await read_infos(blue, move), move)


async def read_infos(blue: AdminClient, move: Move) -> dict[TopicName, JsonObject | None]:
    """The `internal-info` of every partition, None for one that does not exist; calls as for `read_terminations`."""
    return await _read(blue, move.stored_topics, move, await blue.topics(move.namespace))


async def wait_terminated(blue: AdminClient, move: Move, seconds: float) -> Terminations:
    """Wait until every partition is terminated, at most `seconds`.

    Two topics are polled until they are terminated, then all others at once: brokers terminate theirs together, and
    producers wait for the result.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    documents: dict[TopicName, JsonObject | None] = {}
    waiting, count = move.stored_topics, _FIRST_TOPICS
    while waiting and loop.time() < end:
        polled, rest = waiting[:count], waiting[count:]
        read = await _read(blue, polled, move)
        documents |= read
        parents = {topic.parent for topic in Terminations.of(read, move).waiting}
        unterminated = [topic for topic in polled if topic in parents]
        waiting, count = rest + unterminated, _FIRST_TOPICS if unterminated else len(rest)
        if unterminated:
            await asyncio.sleep(_POLL_SECONDS)
    return Terminations.of(documents | await _read(blue, waiting, move), move)


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


async def _read(
    blue: AdminClient, topics: Sequence[TopicName], move: Move, existing: Collection[TopicName] | None = None
) -> dict[TopicName, JsonObject | None]:
    """The `internal-info` of each partition; None for one that does not exist."""
    parts = {topic: topic.partitions(move.topics[topic]) for topic in topics}

    async def read(existing: Collection[TopicName] | None) -> list[JsonObject]:
        seconds = 0.0 if existing is None else None
        return await asyncio.gather(
            *(
                read_info(
                    blue,
                    topic,
                    parts[topic],
                    parts[topic] if existing is None else existing,
                    answered_retry_seconds=seconds,
                )
                for topic in topics
            )
        )

    try:
        documents = await read(existing)
    except (NotFound, Unavailable):
        # The broker answers 500 for a topic that does not exist, as it does for its own failures.
        documents = await read(await blue.topics(move.namespace))
    return {
        partition: info
        for topic, document in zip(topics, documents, strict=True)
        for partition, info in _by_partition(parts[topic], document)
    }


async def ended_by_owner(
    blue: AdminClient, topic: TopicName, partitions: Collection[TopicName], existing: Collection[TopicName]
) -> tuple[TopicName, ...]:
    """The partitions of a topic that are terminated, and not by a migration; a call, or one for each that exists.

    :param partitions: all partitions by its partition count; `existing`: those that exist.
    """
    document = await read_info(blue, topic, partitions, existing)
    return tuple(
        partition
        for partition, info in _by_partition(partitions, document)
        if info and terminated_at(info) and not _is_marked(info)
    )


def _is_marked(info: JsonObject) -> bool:
    return (info.get("properties") or {}).get(MIGRATED_PROPERTY) == "true"


def _by_partition(
    partitions: Collection[TopicName], document: JsonObject
) -> Iterator[tuple[TopicName, JsonObject | None]]:
    # A plain topic that does not exist is answered as one whose partitions all lack.
    inner = document.get("partitions")
    for partition in partitions:
        yield partition, document if inner is None else inner.get(str(partition))
