"""Create on green everything that blue's clients will need, before any of them is sent there."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import PLAN
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.prepare.freeze import known_before
from pulsar_fleet.migration.prepare.original_settings import as_before
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Applied
from pulsar_fleet.planning.apply.secrets import read_secrets
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.snapshot.collect import collect


async def prepare(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Make green's namespaces equal to blue's: tenants, policies, topics, schemas, topic policies, subscriptions.

    Only what is missing or differs is written, and read back; a second call changes nothing. Called after blue was
    held still, it still gives green what blue had before. Returns counts.

    :raises Refused: something could not be made, or would need the operator's permission; the message names it.
    """
    selection = Selection(namespaces=frozenset(move.namespace for move in moves.moves))
    seal = open_seal()
    # Replicated messages would fill a subscription that waits at the earliest position: those are placed at the switch.
    subscriptions = any(move.strategy is Strategy.REDIRECT for move in moves.moves)
    async with sides.open() as (blue, green):
        held, there = await asyncio.gather(
            collect(blue, selection, seal=seal, must_exist=True), collect(green, selection, seal=seal)
        )
        if before := known_before(run):
            held = as_before(held, before, moves.green)
        plan = plan_changes(held, there, subscriptions=subscriptions)
        run.artefacts.write_json(run.id, PLAN, plan.to_json())
        known = await read_secrets(plan, blue, seal)
        applied = await apply_plan(plan, green, run.ledger, run.id, seal=seal, secrets=known)
    if not applied.complete:
        raise PreconditionFailed(_incomplete(applied))
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.PREPARED, applied.counts())
    return {"plan": plan.id, "changes": len(plan.changes), **applied.counts()}


def _incomplete(applied: Applied) -> str:
    open_results = applied.not_in_place()
    listed = "\n".join(
        f"  {result.outcome.value:10} {result.change.id}  {result.change.label}: {result.detail}"
        for result in open_results[:20]
    )
    return (
        f"{len(open_results)} of {len(applied.results)} changes are not in place on {applied.target}; blue was not "
        f"touched. Correct what is named, then clear this task.\n{listed}"
    )
