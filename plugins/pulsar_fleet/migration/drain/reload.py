"""Load what blue has unloaded under the flag, before a proof reads it: a restarted broker, a moved bundle."""

from __future__ import annotations

import time

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.drain.incident import Incident, IncidentKind, Remedy
from pulsar_fleet.migration.drain.poll import read_partitions
from pulsar_fleet.migration.drain.remediate import RemedyContext, attempts_of, may_attempt, remediate
from pulsar_fleet.migration.model import Move, Moves
from pulsar_fleet.migration.preflight.redirect_probe import redirect_of
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.stats.partition_state import Absence


async def load_unloaded(sides: Sides, run: Run, moves: Moves) -> None:
    """Load the partitions that blue answers as already migrated: their cursors and bounds cannot be read otherwise.

    As the drain does: the flag of their namespace is cleared for a moment, and the remedy is recorded; after some
    attempts, or where it fails, they stay unloaded. One call for each partition.
    """
    before = find_original_settings(run)
    if before is None:
        return
    async with sides.open() as (blue, green):
        for move in moves.moves:
            incident = await _incident(blue, move) if move.strategy.redirects else None
            if incident and may_attempt(incident, attempts_of(run), time.time()):
                redirect = redirect_of(sides, run)
                context = RemedyContext(blue=blue, green=green, move=move, redirect=redirect, before=before, run=run)
                await remediate(incident, context)


async def _incident(blue: AdminClient, move: Move) -> Incident | None:
    states = await read_partitions(blue, move.partitions, time.time(), together=True)
    unloaded = [str(topic) for topic, state in states.items() if state.absence is Absence.UNLOADED]
    if not unloaded:
        return None
    return Incident(
        kind=IncidentKind.UNLOADED,
        namespace=str(move.namespace),
        subject=unloaded[0],
        sentence=f"{blue.connection.name} has unloaded {listed(unloaded)} under the flag: nothing of it can be read.",
        remedy=Remedy.RELOAD,
        topics=tuple(unloaded),
    )
