"""Evaluate every gate of a migration, and decide how each namespace moves, in which wave. Changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import FINDINGS, FINDINGS_AGAIN, MOVES, REDIRECT, WAIVERS, WAIVERS_AGAIN, WAVES
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy, plan_move
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.survey import survey
from pulsar_fleet.migration.preflight.view import Expectations, Survey, View
from pulsar_fleet.migration.preflight.waivers import Judged, Waiver, judge
from pulsar_fleet.migration.prepare.freeze import known_before
from pulsar_fleet.migration.prepare.original_settings import as_before
from pulsar_fleet.migration.waves.approval_text import members
from pulsar_fleet.migration.waves.planner import Limits, plan_waves
from pulsar_fleet.preflight.findings import Finding, refusal_text

log = logging.getLogger(__name__)


async def check(
    sides: Sides,
    run: Run,
    names: Sequence[NamespaceName],
    strategy: Strategy | None,
    *,
    expected: Expectations | None = None,
    waivers: Sequence[Waiver] = (),
    limits: Limits | None = None,
) -> tuple[Reference, tuple[Finding, ...]]:
    """Evaluate every gate and decide how each namespace moves. Changes nothing; loads the topics on blue.

    Findings and waivers are kept as artefacts; without a blocker also moves, waves and the redirect that was proven.

    :param strategy: for all of them; None lets each namespace have the one that loses nothing.
    :param limits: of a wave.
    :param waivers: blockers that somebody takes on; each must meet one.
    :raises Refused: there are blockers; the message names each of them. Or a waiver of what is never waived.
    :raises Rejected: a waiver that meets no blocker.
    """
    seen = await _survey(sides, run, names)
    chosen = tuple(plan_move(one, strategy, seen.green.name) for one in seen.namespaces)
    view = View(survey=seen, strategies=_strategies(chosen), expected=expected or Expectations())
    # On the way back each waiver has met its blocker at the interlocks.
    judged = judge(_found(run, FINDINGS, view), waivers, all_looked_at=not view.expected.returns)
    _stop(run, WAIVERS, judged, "Nothing has been changed.")
    run.artefacts.write_json(run.id, REDIRECT, seen.redirecting.to_json())
    moves = Moves(seen.blue.name, seen.green.name, chosen)
    for move in moves.moves:
        log.info("%s: %s, because %s", move.namespace, move.strategy, move.reason)
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.CHECKED, {"strategy": move.strategy.value})
    plan = plan_waves(members(seen.namespaces, chosen, judged.findings), limits)
    run.artefacts.write_json(run.id, WAVES, plan.to_json())
    return run.artefacts.write_json(run.id, MOVES, moves.to_json()), judged.findings


async def check_again(
    sides: Sides, run: Run, moves: Moves, *, expected: Expectations, waivers: Sequence[Waiver] = ()
) -> tuple[Finding, ...]:
    """Evaluate every gate once more for what was planned, right before the first step that cannot be taken back.

    Green must hold everything by now, and nothing may have got in the way since. Call it after green was prepared and
    before replication starts, which makes the two sides differ. Waivers may be of other namespaces of the run.

    :raises Refused: there are blockers, as `check` says.
    """
    seen = await _survey(sides, run, [move.namespace for move in moves.moves])
    ready = replace(expected, prepares_green=False)
    view = View(survey=seen, strategies=_strategies(moves.moves), expected=ready)
    judged = judge(_found(run, FINDINGS_AGAIN, view), waivers, all_looked_at=False)
    _stop(run, WAIVERS_AGAIN, judged, "No topic was closed, and blue's clients are where they were.")
    return judged.findings


async def _survey(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> Survey:
    async with sides.open() as (blue, green):
        seen = await survey(blue, green, names, seal=open_seal())
    log.info("%s", seen.headline())
    before = known_before(run)
    if before is None:
        return seen
    # The task was cleared after blue was held still.
    held = as_before(seen.blue.snapshot, before, seen.green.name)
    return replace(seen, blue=replace(seen.blue, snapshot=held))


def _strategies(moves: Iterable[Move]) -> dict[NamespaceName, Strategy]:
    return {move.namespace: move.strategy for move in moves}


def _found(run: Run, artefact: str, view: View) -> tuple[Finding, ...]:
    found = gates.check(view)
    run.artefacts.write_json(run.id, artefact, [finding.to_json() for finding in found])
    for finding in found:
        log.warning("%s", finding.text())
    return found


def _stop(run: Run, artefact: str, judged: Judged, state: str) -> None:
    run.artefacts.write_json(run.id, artefact, judged.to_json())
    if judged.stopping:
        raise PreconditionFailed(refusal_text(judged.findings, state, judged.stopping))
