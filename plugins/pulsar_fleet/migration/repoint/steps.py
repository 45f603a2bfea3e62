"""Watch the applications of namespaces that their owners connect to green; the state is stored with the run.

While a subscription has consumers on blue and none on green, green's cursor follows blue's: a consumer that leaves blue
and arrives on green gets again what was acknowledged on blue since the last poll, and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.polling import wait_until
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import required_stats
from pulsar_fleet.migration.artefacts import REPOINT_STATE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import read_clients
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.prepare.lease import renew_while_waiting
from pulsar_fleet.migration.prepare.target import prepare_deleted
from pulsar_fleet.migration.repoint.state import (
    NamespaceWatch,
    PartitionWatch,
    RepointProgress,
    RepointState,
    progress_line,
)
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.stats.clients import ConnectedClients
from pulsar_fleet.migration.subscriptions.checkpoint import Checkpoint, stored_clients
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer

log = logging.getLogger(__name__)

NOTHING_TO_WATCH = "no owner has to connect an application: clients are redirected, or they have left it"
_CONCURRENT_PARTITIONS = 16


def read_state(run: Run) -> RepointState:
    """What the last poll stored; empty before the first."""
    document = run.stored(REPOINT_STATE)
    return RepointState.from_json(document) if document else RepointState()


async def repoint_progress(sides: Sides, run: Run, moves: Moves) -> tuple[bool, str]:
    """Poll once: whether every application has left blue, and a line that says who has not.

    It sets cursors on green that no consumer uses. Calls: two for each topic, two for each namespace, four and more for
    each partition with a subscription that has not arrived.
    """
    moves = replace(moves, moves=tuple(move for move in moves.moves if not move.strategy.redirects))
    moves = Reached.of(run).before(moves, Phase.CUT_OVER)
    if not moves.moves:
        return True, NOTHING_TO_WATCH
    await renew_while_waiting(sides, run, moves)
    state = read_state(run)
    async with sides.open() as (blue, green):
        await prepare_deleted(blue, green, run, moves.moves, used=True)
        connected = {move.namespace: await _clients_at_first(blue, run, move) for move in moves.moves}
        try:
            progress = [
                await _watch(blue, green, move, state.namespace(str(move.namespace)), connected[move.namespace])
                for move in moves.moves
            ]
        finally:
            run.artefacts.write_json(run.id, REPOINT_STATE, state.to_json())
    return all(namespace.is_done for namespace in progress), progress_line(progress, moves.names)


async def wait_repointed(
    sides: Sides, run: Run, moves: Moves, *, seconds: float, poll_seconds: float, progress: Callable[[str], None]
) -> str:
    """Wait until every application has left blue; for callers without a scheduler. Returns the last line.

    :param progress: receives a line after each poll.
    :raises PreconditionFailed: some have not after `seconds`; the message names them.
    """
    return await wait_until(
        lambda: repoint_progress(sides, run, moves),
        seconds=seconds,
        poll_seconds=poll_seconds,
        progress=progress,
        missed=f"applications are still on {moves.blue}",
    )


async def _clients_at_first(blue: AdminClient, run: Run, move: Move) -> ConnectedClients:
    """The clients that were connected to blue at the first poll, stored for all later ones."""
    name = str(move.namespace)
    if stored := stored_clients(run, Moves("", "", (move,))):
        return stored[name]
    connected = await read_clients(blue, move)
    Checkpoint(run, name).store_clients(connected)
    return connected


async def _watch(
    blue: AdminClient, green: AdminClient, move: Move, watch: NamespaceWatch, before: ConnectedClients
) -> RepointProgress:
    on_blue = await required_stats(blue, move.partitions, precise=False)
    on_green = await required_stats(green, move.partitions, precise=False)
    now = time.time()
    watch.record_clients(on_blue, now)
    for topic, stats in on_green.items():
        watch.partition(topic).record_green(stats)
    transfer, slots = CursorTransfer(blue, green), asyncio.Semaphore(_CONCURRENT_PARTITIONS)

    async def follow(topic: TopicName) -> None:
        async with slots:
            await _follow(transfer, topic, watch.partition(topic), set(on_blue[topic].subscriptions))

    await asyncio.gather(*(follow(topic) for topic in move.partitions))
    return RepointProgress.of(
        str(move.namespace),
        before,
        on_blue,
        on_green,
        cluster=await green.cluster_name(),
        left_seconds=now - watch.left_since if watch.left_since is not None else 0.0,
    )


async def _follow(transfer: CursorTransfer, topic: TopicName, watch: PartitionWatch, names: set[str]) -> None:
    if waiting := names - watch.arrived:
        try:
            watch.followed |= await transfer.follow(topic, waiting, watch.followed, written=watch.written)
        except Conflict as error:
            # A consumer arrived on green in this moment: the next poll sees it.
            log.info("%s", error)
