"""What the flag has terminated, and what resists it: with the first terminated topic the run goes on to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import SHADOW_SOURCE, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.artefacts import CUT_OVER
from pulsar_fleet.migration.cutover.checking_brokers import CheckPeriods, check_periods, move_to_checking_brokers
from pulsar_fleet.migration.cutover.termination import Terminations, read_terminations, terminate, wait_terminated
from pulsar_fleet.migration.model import Move


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
    blue: AdminClient, green: AdminClient, terminations: Terminations, periods: CheckPeriods
) -> dict[str, str]:
    """Partition → why it is not terminated, and what to do about it; empty where every one is.

    What its owner had terminated is terminated on green too: only after the cursors behind its copies are set.
    """
    causes = await _causes(blue, terminations.waiting, periods) if terminations.waiting else {}
    return {**causes, **await end_on_green(green, terminations.by_owner)}


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
            causes |= await unterminated_causes(blue, green, Terminations(ends, read.by_owner & left), periods)
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
    return (
        f"{len(waiting)} of {len(move.partitions)} partitions of {move.namespace} were not terminated within "
        f"{seconds:.0f} s, for example {waiting[0]}: its broker's migration check may be off, or the topic was not "
        "loaded, and its producers may write to both clusters. The flag is set. Clear it to keep the namespace on "
        f"{cluster}, since no partition is terminated; or let brokers whose check is on serve them, and run again."
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
    if source := await _source_of(blue, topic):
        clients = counted(len(stats.clients), "connected client")
        stays = f"it is a shadow topic of {source} with {clients}, and no broker terminates one"
        return f"{stays}. Connect its clients to {source} on the cluster to which it moves" if stats.clients else ""
    if unchecked := sorted(broker for broker, seconds in periods.seconds.items() if seconds <= 0):
        return (
            f"the migration check is off on {listed(unchecked)}. Let a broker whose check is on serve it: "
            f"{', '.join(sorted(periods.seconds.keys() - set(unchecked))) or 'none has it on'}"
        )
    return f"its broker, {await blue.owner(topic)}, has not terminated it: that broker's log says why"


async def _source_of(blue: AdminClient, topic: TopicName) -> str:
    """The source of a shadow topic; empty for another topic."""
    properties = (await blue.internal_info(topic)).get("properties") or {}
    return str(properties.get(SHADOW_SOURCE) or "")
