"""The steps of a migration, in the order of the runbook. Each may be run again at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pulsar_fleet.change.findings import Finding, count_line
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration import gates
from pulsar_fleet.migration.basis import require_fresh
from pulsar_fleet.migration.finish import finish
from pulsar_fleet.migration.freeze import freeze, remember, thaw
from pulsar_fleet.migration.frozen import FROZEN_SETTINGS, REPLICATION_START, Frozen
from pulsar_fleet.migration.moves import Move, Moves, plan_move
from pulsar_fleet.migration.notes import Notes
from pulsar_fleet.migration.phases import Phase, Strategy, is_reversible
from pulsar_fleet.migration.redirect import Redirect, redirect_to
from pulsar_fleet.migration.remedies import record_moved
from pulsar_fleet.migration.replicate import allow_cluster, introduce, replication_lag, set_replication
from pulsar_fleet.migration.reserving import remember_reserved, reserve
from pulsar_fleet.migration.rosters import known_rosters, with_roster
from pulsar_fleet.migration.standing import Singles
from pulsar_fleet.migration.survey import survey, survey_partitions
from pulsar_fleet.migration.surveyed import Expectations, Survey, View
from pulsar_fleet.migration.switch import QUIET_SECONDS, Switched, switch
from pulsar_fleet.migration.termination import open_partitions
from pulsar_fleet.migration.waivers import Judged, Waiver, judge
from pulsar_fleet.migration.wave_text import members
from pulsar_fleet.migration.waves import Limits, plan_waves
from pulsar_fleet.records.artefacts import Reference
from pulsar_fleet.records.fingerprint_key import open_seal
from pulsar_fleet.records.run import Run

log = logging.getLogger(__name__)

MOVES = "moves.json"
FINDINGS = "findings.json"
WAIVERS = "waivers.json"
FINDINGS_AGAIN = "findings-before-the-switch.json"
WAIVERS_AGAIN = "waivers-before-the-switch.json"
WAVES = "waves.json"
REDIRECT = "redirect.json"
BEFORE = "blue-before.json"
SWITCHED = "switched.json"
LIVE_ENTRIES = 20
"""Entries per partition that may be on their way while producers write: at most about a second's worth."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a migration; `retry_seconds`: for how long a step waits for one that does not answer."""

    blue: ClusterConnection
    green: ClusterConnection
    retry_seconds: float = 30.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
        """A client for each side."""
        async with (
            AdminClient(self.blue, retry_seconds=self.retry_seconds) as blue,
            AdminClient(self.green, retry_seconds=self.retry_seconds) as green,
        ):
            yield blue, green


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
    seen = await _survey(sides, names)
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
    seen = await _survey(sides, [move.namespace for move in moves.moves])
    ready = replace(expected, prepares_green=False)
    view = View(survey=seen, strategies=_strategies(moves.moves), expected=ready)
    judged = judge(_found(run, FINDINGS_AGAIN, view), waivers, all_looked_at=False)
    _stop(run, WAIVERS_AGAIN, judged, "No topic was closed, and blue's clients are where they were.")
    return judged.findings


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
        settings = dict(FROZEN_SETTINGS)
        if any(move.strategy is Strategy.REPLICATE for move in moves.moves):
            settings |= dict([REPLICATION_START])
        await freeze(blue, remembered, settings)
        for move in moves.moves:
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.FROZEN)
    return known


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
            await set_replication(blue, moves.blue, move.namespace, [moves.blue, moves.green])
            # A replicator starts when its topic is loaded.
            await survey_partitions(blue, move.partitions)
    return len(replicated)


async def replication_progress(sides: Sides, moves: Moves) -> tuple[bool, str]:
    """Whether green has caught up with blue, and a line that says how far it is.

    Under live traffic a few entries are always on their way; the switch itself waits for none, with writers quieted.
    """
    async with sides.open() as (blue, _green):
        lags = [await replication_lag(blue, moves.green, list(move.partitions)) for move in _replicated(moves)]
    unlinked = [topic for lag in lags for topic in lag.unlinked]
    entries = sum(lag.entries for lag in lags)
    caught_up = not unlinked and entries <= LIVE_ENTRIES * sum(len(move.partitions) for move in _replicated(moves))
    late = f"; no link yet for {unlinked[0]}" if unlinked else ""
    return caught_up, f"{entries:,} entries still to replicate{late}"


async def switch_over(
    sides: Sides,
    run: Run,
    moves: Moves,
    before: Frozen,
    *,
    quiet_seconds: float = QUIET_SECONDS,
    singles: Singles = Singles.CARRY,
    proof_max_age_minutes: float | None = None,
) -> Reference:
    """Switch one namespace after the other; what is done already is only confirmed, by the cluster's own word.

    :param quiet_seconds: how long writers are held to 1 message/s before the flag; longer only adds silence.
    :param singles: what becomes of messages that were acknowledged one by one in what was replicated.
    :param proof_max_age_minutes: refuse a namespace whose proof is older, or does not hold any more; None does not ask.
    """
    redirect = redirect_of(sides, run)
    if redirect.placeholders:
        log.info("redirect: green has no service for %s; placeholders are stored", ", ".join(redirect.placeholders))
    known = run.artefacts.find(run.id, SWITCHED)
    done: dict[str, JsonObject] = run.artefacts.read_json(known) if known else {}
    async with sides.open() as (blue, green):
        for move in moves.moves:
            name = str(move.namespace)
            open_ = await open_partitions(blue, move)
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
                quiet_seconds=quiet_seconds,
                singles=singles,
            )
            done[name] = result.to_json()
            _keep(run, moves, done, result)
    return run.artefacts.write_json(run.id, SWITCHED, done)


def _keep(run: Run, moves: Moves, done: dict[str, JsonObject], result: Switched) -> None:
    if result.moved:
        record_moved(run, moves.blue, result.namespace, result.moved)
    run.artefacts.write_json(run.id, SWITCHED, done)
    run.ledger.enter_phase(run.id, result.namespace, Phase.SWITCHED, result.to_json())


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
            cleaned = await finish(
                blue, move, run, own=moves.blue, replication=replication, remove_topics=remove_topics
            )
            done[name] = {**cleaned.to_json(), "text": cleaned.left.text(moves.blue)}
            log.info("%s", done[name]["text"])
            phase = Phase.FINISHED if cleaned.left.nothing_lives else Phase.CLEANED
            run.ledger.enter_phase(run.id, name, phase, done[name])
    return done


async def release(sides: Sides, run: Run, before: Frozen, *, delete_topics: bool) -> tuple[str, ...]:
    """Restore what `hold_still` and `switch_over` overrode on blue; returns what had to be restored.

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


def redirect_of(sides: Sides, run: Run) -> Redirect:
    """Where the run sends blue's clients: the addresses that its gates proved, or those of the connection."""
    proven = run.artefacts.find(run.id, REDIRECT)
    return Redirect.from_json(run.artefacts.read_json(proven)) if proven else redirect_to(sides.green)


def _replicated(moves: Moves) -> list[Move]:
    return [move for move in moves.moves if move.strategy is Strategy.REPLICATE]


async def _survey(sides: Sides, names: Sequence[NamespaceName]) -> Survey:
    async with sides.open() as (blue, green):
        seen = await survey(blue, green, names, seal=open_seal())
    log.info("%s", seen.headline())
    return seen


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
        listed = "\n".join(finding.text() for finding in judged.stopping)
        raise Refused(f"{count_line(judged.findings)}. {state}\n{listed}")
