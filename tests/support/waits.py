"""The waits of a migration in a test that calls its steps one by one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.polling import wait_until
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.drain.monitor import DrainStatus
from pulsar_fleet.migration.drain.steps import monitor_drain
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.repoint.steps import repoint_progress
from pulsar_fleet.procedures.copy_wait import CopyWait

log = logging.getLogger(__name__)


async def wait_replicated(
    sides: Sides, run: Run, moves: Moves, *, seconds: float, poll_seconds: float, progress: Callable[[str], None]
) -> str:
    """Wait until replication is near its end; for callers without a scheduler. Returns the last line of progress.

    :param progress: receives a line after each poll.
    :raises PreconditionFailed: it is not near after `seconds`; the message says what is missing, and why if known.
    """
    return await wait_until(
        CopyWait(sides, run, moves).look,
        seconds=seconds,
        poll_seconds=poll_seconds,
        progress=progress,
        missed="the namespaces are not replicated",
    )


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


async def monitor_until_drained(
    sides: Sides,
    run: Run,
    moves: Moves,
    *,
    seconds: float,
    poll_seconds: float,
    progress: Callable[[str], None] = log.info,
) -> DrainStatus:
    """Monitor until every namespace is drained; for callers without a scheduler.

    :param progress: receives a line after each poll.
    :raises PreconditionFailed: a namespace is not drained after `seconds`; the message says what is missing.
    """
    end = time.monotonic() + seconds
    while not (status := await monitor_drain(sides, run, moves)).is_done:
        if time.monotonic() > end:
            raise PreconditionFailed(f"The drain has not ended after {duration(seconds)}: {status.line()}")
        progress(status.line())
        await asyncio.sleep(poll_seconds)
    return status
