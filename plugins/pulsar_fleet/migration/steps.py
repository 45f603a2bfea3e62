"""The steps of a migration, in the order of the runbook. Each may be run again at any time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import BEFORE, CUT_OVER
from pulsar_fleet.migration.cleanup import finish
from pulsar_fleet.migration.clusters import Sides, redirect_of
from pulsar_fleet.migration.cutover.switch import QUIET_SECONDS, Switched, switch
from pulsar_fleet.migration.cutover.termination import open_partitions
from pulsar_fleet.migration.drain.poll import list_loaded
from pulsar_fleet.migration.drain.remediate import record_moved
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy, is_reversible
from pulsar_fleet.migration.preflight.survey import survey_partitions
from pulsar_fleet.migration.prepare.freeze import freeze, remember, thaw
from pulsar_fleet.migration.prepare.original_settings import FROZEN_SETTINGS, REPLICATION_START, Frozen
from pulsar_fleet.migration.prepare.replication import (
    allow_cluster,
    begin_replication,
    introduce,
    remember_reserved,
    reserve,
)
from pulsar_fleet.migration.prepare.replication_lag import approach
from pulsar_fleet.migration.proof_baseline import require_fresh
from pulsar_fleet.migration.subscriptions.checkpoint import Notes, known_rosters, with_roster
from pulsar_fleet.migration.subscriptions.cursors import Singles

log = logging.getLogger(__name__)


async def hold_still(sides: Sides, run: Run, moves: Moves) -> Reference:
    """Remember how blue is, then stop everything on it that could unload or delete a topic.

    Called again it keeps what was remembered first: the overrides of this run are never taken for the original.
    """
    async with sides.open() as (blue, _green):
        known = run.artefacts.find(run.id, BEFORE)
        if known is None:
            before = await remember(blue, [move.namespace for move in moves.moves])
            known = run.artefacts.write_json(run.id, BEFORE, before.to_json())
        remembered = Frozen.from_json(run.artefacts.read_json(known))
        await freeze(blue, remembered, _frozen_settings(moves))
        for move in moves.moves:
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.FROZEN)
    return known


def _frozen_settings(moves: Moves) -> dict[str, str]:
    return {**FROZEN_SETTINGS, **dict([REPLICATION_START] if _replicated(moves) else ())}


async def start_replication(sides: Sides, run: Run, moves: Moves) -> int:
    """Replicate from the first stored message on, blue to green, where the move asks for it; returns how many.

    Green first gets the subscriptions without which it would remove what it is sent.
    """
    replicated = _replicated(moves)
    async with sides.open() as (blue, green):
        if replicated:
            await introduce(blue, moves.green, sides.green)
        for move in replicated:
            await allow_cluster(blue, move.namespace.tenant, moves.green)
            names = await asyncio.gather(*(reserve(blue, green, topic) for topic in move.partitions))
            remember_reserved(run, dict(zip(move.partitions, names, strict=True)))
            await begin_replication(blue, moves.blue, move.namespace, moves.green)
            # A replicator starts when its topic is loaded.
            await survey_partitions(blue, move.partitions)
    return len(replicated)


async def replication_progress(sides: Sides, moves: Moves) -> tuple[bool, str]:
    """Whether green has caught up with blue, and a line that says how far it is.

    Under live traffic something is always on its way: it is near enough when every link carries what is left within
    two seconds; the switch itself waits for all of it, with writers quieted. The partitions that are furthest behind
    by the brokers' lists are asked first, and the others only when these are near: most looks cost few calls.
    """
    replicated = _replicated(moves)
    partitions = [topic for move in replicated for topic in move.partitions]
    wanted = {move.namespace: frozenset(move.partitions) for move in replicated}
    async with sides.open() as (blue, _green):
        listed = (await list_loaded(blue, wanted, time.time())).states if partitions else {}
        behind = {topic: state.unsent for topic, state in listed.items()}
        ordered = sorted(partitions, key=lambda topic: -behind.get(topic, 0))
        found = await approach(blue, moves.green, ordered)
    left = found.lag.entries + sum(behind.get(topic, 0) for topic in ordered[len(ordered) - found.unasked :])
    return found.is_near, f"{left:,} entries still to replicate{found.text()}"


async def cut_over(
    sides: Sides,
    run: Run,
    moves: Moves,
    before: Frozen,
    *,
    quiesce_seconds: float = QUIET_SECONDS,
    singles: Singles = Singles.CARRY,
    proof_max_age_minutes: float | None = None,
) -> Reference:
    """Switch one namespace after the other; what is done already is only confirmed, by the cluster's own word.

    Blue is held still first, again if it was let go meanwhile: a try that failed before was cleaned up behind.

    :param quiesce_seconds: how long writers are held to 1 message/s before the flag; longer only adds silence.
    :param singles: what becomes of messages that were acknowledged one by one in what was replicated.
    :param proof_max_age_minutes: refuse a namespace whose proof is older, or does not hold any more; None does not ask.
    """
    redirect = redirect_of(sides, run)
    if redirect.placeholders:
        log.info("redirect: green has no service for %s; placeholders are stored", ", ".join(redirect.placeholders))
    known = run.artefacts.find(run.id, CUT_OVER)
    done: dict[str, JsonObject] = run.artefacts.read_json(known) if known else {}
    async with sides.open() as (blue, green):
        await freeze(blue, before, _frozen_settings(moves))
        for move in moves.moves:
            name = str(move.namespace)
            open_ = await _open_partitions(blue, run, move)
            if name in done and not open_:
                continue
            if proof_max_age_minutes and len(open_) == len(move.partitions):
                await require_fresh(blue, green, move, run, max_age_minutes=proof_max_age_minutes)
            run.ledger.enter_phase(run.id, name, Phase.QUIESCED)
            result = await switch(
                blue,
                green,
                with_roster(move, known_rosters(run, replace(moves, moves=(move,)))),
                redirect=redirect,
                before=before,
                notes=Notes(run, name),
                open_=open_,
                quiesce_seconds=quiesce_seconds,
                singles=singles,
            )
            done[name] = result.to_json()
            _keep(run, moves, done, result)
    return run.artefacts.write_json(run.id, CUT_OVER, done)


async def _open_partitions(blue: AdminClient, run: Run, move: Move) -> tuple[TopicName, ...]:
    """Those that are not handed over yet; they are asked only where a flag is, or was in this run."""
    flagged = (await blue.namespace(move.namespace) or {}).get("migrated")
    tried = run.ledger.entered(run.id, str(move.namespace), Phase.QUIESCED)
    return await open_partitions(blue, move) if flagged or tried else tuple(move.partitions)


def _keep(run: Run, moves: Moves, done: dict[str, JsonObject], result: Switched) -> None:
    if result.moved:
        record_moved(run, moves.blue, result.namespace, result.moved)
    run.artefacts.write_json(run.id, CUT_OVER, done)
    run.ledger.enter_phase(run.id, result.namespace, Phase.CUT_OVER, result.to_json())


async def clean_up(
    sides: Sides, run: Run, moves: Moves, before: Frozen, *, remove_topics: bool = False
) -> dict[str, JsonObject]:
    """End replication and remove from blue what continues on green; only after the verdict. By namespace.

    A namespace is finished when nothing of it lives on blue any more, else only cleaned; the ledger says what is left.

    :param remove_topics: remove its closed topics too; see `finish`.
    """
    done: dict[str, JsonObject] = {}
    async with sides.open() as (blue, _green):
        for move in moves.moves:
            name = str(move.namespace)
            replication = before.replication[name]
            cleaned = await finish(blue, move, run, moves, replication=replication, remove_topics=remove_topics)
            done[name] = {**cleaned.to_json(), "text": cleaned.left.text(moves.blue)}
            log.info("%s", done[name]["text"])
            phase = Phase.FINISHED if cleaned.left.nothing_lives else Phase.CLEANED
            run.ledger.enter_phase(run.id, name, phase, done[name])
    return done


async def release(sides: Sides, run: Run, before: Frozen, *, delete_topics: bool) -> tuple[str, ...]:
    """Restore what `hold_still` and `cut_over` overrode on blue; returns what had to be restored.

    :param delete_topics: let blue delete inactive topics again even after namespaces were handed over.
    :raises Refused: something is not as it was; everything was tried, the message lists what is left.
    """
    async with sides.open() as (blue, _green):
        keep = frozenset[str]() if delete_topics else await _handed_over(blue, run, before)
        return await thaw(blue, before, keep_topics=keep)


async def _handed_over(blue: AdminClient, run: Run, before: Frozen) -> frozenset[str]:
    """Namespaces whose clients are on green, by the ledger or by the cluster: a try may have died in between."""
    by_ledger = {entry.namespace for entry in run.ledger.phases(run.id) if not is_reversible(Phase(entry.phase))}
    others = [name for name in before.namespaces if str(name) not in by_ledger]
    policies = await asyncio.gather(*(blue.namespace(name) for name in others), return_exceptions=True)
    # What cannot be read keeps its topics; that it cannot be read is what `thaw` is about to say.
    flagged = {
        str(name)
        for name, found in zip(others, policies, strict=True)
        if isinstance(found, BaseException) or (found or {}).get("migrated")
    }
    return frozenset(by_ledger | flagged)


def _replicated(moves: Moves) -> list[Move]:
    return [move for move in moves.moves if move.strategy is Strategy.REPLICATE]
