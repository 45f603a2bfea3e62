"""Look at a switched namespace on both sides, and clean up on blue when all of it has arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Conflict, Missing, Refused
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.resources import by_name
from pulsar_fleet.migration.drain import Progress, progress
from pulsar_fleet.migration.facts import PartitionFacts
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.phases import Strategy
from pulsar_fleet.migration.replicate import set_replication
from pulsar_fleet.migration.survey import survey_partitions
from pulsar_fleet.records.ledger import Ledger
from pulsar_fleet.records.rows import NewChange

log = logging.getLogger(__name__)


async def look(blue: AdminClient, green: AdminClient, moves: Sequence[Move]) -> tuple[Progress, ...]:
    """Where each namespace stands now; two calls per partition."""
    green_name = await green.cluster_name()
    return tuple([await _look_at(blue, green, move, green_name) for move in moves])


def require_loaded(found: Sequence[Progress]) -> None:
    """`Refused` when blue no longer serves a partition that has not drained: waiting longer cannot help."""
    for state in found:
        if state.unloaded:
            raise Refused(
                f"{state.unloaded[0]} is no longer served by blue: it was unloaded while it drained, and a flagged "
                f"topic cannot be loaded again. Its backlog is intact. Do: clear the flag of {state.namespace} on blue,"
                " let fresh consumers drain it there, set the flag again."
            )


async def finish(
    blue: AdminClient, move: Move, *, own: str, replication: Sequence[str], ledger: Ledger, run: str
) -> int:
    """End replication and remove the carried subscriptions from blue; returns how many were removed.

    A consumer that still found them on blue would read there what green gives it again. Call it only after the verdict.
    Again changes nothing.
    """
    if move.strategy is not Strategy.REPLICATE:
        return 0
    await set_replication(blue, own, move.namespace, replication or [own])
    removed = 0
    for topic, clients in move.partitions.items():
        for name, consumers in clients.consumers.items():
            if consumers == 0:
                removed += await _remove(blue, topic, name, own, ledger, run)
    return removed


async def _remove(blue: AdminClient, topic: TopicName, name: str, own: str, ledger: Ledger, run: str) -> int:
    cursor = by_name((await blue.internal_stats(topic))["cursors"]).get(name)
    if cursor is None:
        return 0
    await blue.delete_subscription(topic, name)
    removed = NewChange(
        change_id=f"subscription:{topic}:{name}",
        cluster=own,
        resource=f"{topic} · {name}",
        action="remove subscription",
        hazard="irreversible",
        before={"markDeletePosition": cursor["markDeletePosition"]},
        after=None,
        outcome="applied",
        detail="continues on green, where it was placed at the switch",
    )
    ledger.record(run, made=(removed,))
    return 1


async def _look_at(blue: AdminClient, green: AdminClient, move: Move, green_name: str) -> Progress:
    partitions = tuple(move.partitions)
    on_blue = await asyncio.gather(*(_survey_flagged(blue, topic) for topic in partitions))
    on_green = await survey_partitions(green, partitions)
    return progress(move, dict(zip(partitions, on_blue, strict=True)), on_green, green_name)


async def _survey_flagged(blue: AdminClient, topic: TopicName) -> PartitionFacts | None:
    try:
        return PartitionFacts.from_stats(topic, await blue.stats(topic))
    except (Conflict, Missing) as error:
        log.warning("blue does not serve %s any more: %s", topic, error)
        return None
