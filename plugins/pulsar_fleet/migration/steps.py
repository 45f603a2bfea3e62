"""The steps of a migration, one function for each task of `migrate_namespaces`, in the order of its tasks.

`check_gates`, `prepare_green`, `recheck_gates`, `freeze_blue`, `start_replication`, `replication_progress` (for
`wait_replicated`), `verify_copy`, `cut_over`, `verify_subscriptions`, `verify_messages`,
`clean_up_blue`, `restore_blue`; `repoint.steps` has those of `wait_repointed` and `drain.steps` those of
`wait_drained`. Each step may be run again at any time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import cleanup, proof
from pulsar_fleet.migration.artefacts import CUT_OVER, MOVES, WAVES
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult, cut_over_namespace
from pulsar_fleet.migration.cutover.termination import is_moved, unterminated_partitions, without_moved
from pulsar_fleet.migration.drain.poll import list_loaded
from pulsar_fleet.migration.drain.remediate import record_moved_bundles
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy
from pulsar_fleet.migration.polling import wait_until
from pulsar_fleet.migration.preflight.evaluation import evaluate_gates, recheck_gates
from pulsar_fleet.migration.preflight.redirect_probe import redirect_of
from pulsar_fleet.migration.preflight.settled_brokers import require_settled_brokers
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare import freeze, restore, target
from pulsar_fleet.migration.prepare.inactive_topics import recreate_missing
from pulsar_fleet.migration.prepare.lease import holding, release, renew, renew_while_waiting, require_free
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
from pulsar_fleet.migration.prepare.replication import (
    allow_cluster,
    begin_replication,
    copy_from_the_beginning,
    register_cluster,
    replicates_to,
    reserve_subscriptions,
    store_reserved_subscriptions,
)
from pulsar_fleet.migration.prepare.replication_lag import read_replication_progress
from pulsar_fleet.migration.proof import verify_subscriptions
from pulsar_fleet.migration.proof_baseline import require_fresh
from pulsar_fleet.migration.repoint.steps import read_state
from pulsar_fleet.migration.repoint.terminate import terminate_namespace
from pulsar_fleet.migration.request import QUIESCE_SECONDS
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.stats.read import required_stats
from pulsar_fleet.migration.subscriptions.checkpoint import Checkpoint, stored_clients, with_clients
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged
from pulsar_fleet.migration.waves.approval_text import wave_members
from pulsar_fleet.migration.waves.planner import Limits, plan_waves
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver

__all__ = [
    "check_gates",
    "clean_up_blue",
    "cut_over",
    "freeze_blue",
    "prepare_green",
    "recheck_gates",
    "replication_progress",
    "restore_blue",
    "start_replication",
    "verify_copy",
    "verify_messages",
    "verify_subscriptions",
    "wait_replicated",
]

log = logging.getLogger(__name__)

prepare_green = holding(target.prepare)
freeze_blue = holding(freeze.freeze_blue)
verify_copy = holding(proof.verify_copy)
verify_messages = holding(proof.verify_messages)
clean_up_blue = holding(cleanup.clean_up_blue)


async def check_gates(
    sides: Sides,
    run: Run,
    names: Sequence[NamespaceName],
    strategy: Strategy | None,
    *,
    expected: Expectations | None = None,
    waivers: Sequence[Waiver] = (),
    limits: Limits | None = None,
) -> tuple[Reference, tuple[Finding, ...]]:
    """Evaluate every gate, decide how each namespace moves and plan the waves. Changes nothing; loads topics on blue.

    It stores findings and waivers; without a blocker also moves, waves and the redirect. Returns moves and findings.

    :param strategy: for all namespaces; None gives each the strategy that loses nothing.
    :param limits: of a wave.
    :param waivers: blockers whose risk a person accepts; each must match a blocker.
    :raises PreconditionFailed: another run has a namespace; there are blockers, the message names each; or a waiver of
        what is never waived.
    :raises InvalidRequest: a waiver matches no blocker.
    """
    unread = await require_free(sides, run, names)
    passed = await evaluate_gates(sides, run, names, strategy, expected=expected or Expectations(), waivers=waivers)
    if unread:
        raise unread
    plan = plan_waves(wave_members(passed.namespaces, passed.moves.moves, passed.findings), limits)
    run.artefacts.write_json(run.id, WAVES, plan.to_json())
    return run.artefacts.write_json(run.id, MOVES, passed.moves.to_json()), passed.findings


@holding
async def start_replication(sides: Sides, run: Run, moves: Moves) -> int:
    """Replicate from the first stored message on, blue to green, where the strategy needs it; returns how many.

    Green first gets subscriptions that keep what is replicated: without one green deletes it. Namespaces that an
    earlier attempt cut over are left out.
    """
    async with sides.open() as (blue, green):
        replicated = _replicated(await without_moved(blue, moves))
        if replicated:
            await register_cluster(blue, moves.green, sides.green)
        for move in replicated:
            await allow_cluster(blue, move.namespace.tenant, moves.green)
            await recreate_missing(green, move.namespace, move.topics, blue)
            consumed = not move.strategy.redirects
            reserving = (reserve_subscriptions(blue, green, topic, consumed=consumed) for topic in move.partitions)
            names = await asyncio.gather(*reserving)
            store_reserved_subscriptions(run, dict(zip(move.partitions, names, strict=True)))
            if not await replicates_to(blue, move.namespace, moves.green):
                copying = (copy_from_the_beginning(blue, topic, moves.green) for topic in move.partitions)
                await asyncio.gather(*copying)
            await begin_replication(blue, moves.blue, move.namespace, moves.green)
            # A replicator starts when its topic is loaded: reading the statistics loads it.
            await required_stats(blue, move.partitions)
    return len(replicated)


async def replication_progress(sides: Sides, run: Run, moves: Moves) -> tuple[bool, str]:
    """Whether replication to green is near the end, and a line that says how far it is.

    With producers connected the backlog never stays 0. It is near when every replicator sends its backlog within two
    seconds; the cut-over waits for all of it while producers are throttled. Partitions with the largest backlog by the
    brokers' lists are read first, the others only when these are near: most calls of this function are cheap.
    """
    await renew_while_waiting(sides, run, moves)
    async with sides.open() as (blue, _green):
        replicated = _replicated(await without_moved(blue, moves))
        partitions = [topic for move in replicated for topic in move.partitions]
        by_namespace = {move.namespace: frozenset(move.partitions) for move in replicated}
        listed = (await list_loaded(blue, by_namespace, time.time())).states if partitions else {}
        unsent = {topic: state.unsent for topic, state in listed.items()}
        ordered = sorted(partitions, key=lambda topic: -unsent.get(topic, 0))
        progress = await read_replication_progress(blue, moves.green, ordered)
    unread = ordered[len(ordered) - progress.unread_partitions :]
    entries = progress.lag.entries + sum(unsent.get(topic, 0) for topic in unread)
    return progress.is_near, f"{counted(entries, 'entry')} still to replicate{progress.text()}"


async def wait_replicated(
    sides: Sides, run: Run, moves: Moves, *, seconds: float, poll_seconds: float, progress: Callable[[str], None]
) -> str:
    """Wait until replication is near its end; for callers without a scheduler. Returns the last line of progress.

    :param progress: receives a line after each poll.
    :raises PreconditionFailed: it is not near after `seconds`; the message says what is missing.
    """
    return await wait_until(
        lambda: replication_progress(sides, run, moves),
        seconds=seconds,
        poll_seconds=poll_seconds,
        progress=progress,
        missed="the namespaces are not replicated",
    )


@holding
async def cut_over(
    sides: Sides,
    run: Run,
    moves: Moves,
    original: OriginalSettings,
    *,
    quiesce_seconds: float = QUIESCE_SECONDS,
    individually_acknowledged: IndividuallyAcknowledged = IndividuallyAcknowledged.CARRY,
    proof_max_age_minutes: float | None = None,
) -> Reference:
    """Cut over one namespace after the other; a namespace that is cut over already is only confirmed, by the cluster.

    It freezes blue first: after a failed attempt `restore_blue` may have run. When every namespace is drained, blue is
    left as it is.

    :param quiesce_seconds: how long producers are throttled before the flag; more prolongs the publish
        pause.
    :param individually_acknowledged: what happens to individually acknowledged messages in what was replicated.
    :param proof_max_age_minutes: refuse a namespace whose proof is older, or stale for another reason; None: no check.
    """
    redirect = redirect_of(sides, run)
    if redirect.placeholders and any(move.strategy.redirects for move in moves.moves):
        log.info("redirect: green has no service for %s; placeholders are stored", ", ".join(redirect.placeholders))
    reference = run.artefacts.find(run.id, CUT_OVER)
    done: dict[str, JsonObject] = run.artefacts.read_json(reference) if reference else {}
    watched = read_state(run)
    async with sides.open() as (blue, green):
        if not Reached.of(run).all(moves, Phase.DRAINED):
            await freeze.freeze(blue, run, original)
        if (waiting := await without_moved(blue, moves)).moves:
            await require_settled_brokers(blue, green, run, waiting)
        for move in moves.moves:
            name = str(move.namespace)
            if name not in done and not await is_moved(blue, move):
                await recreate_missing(blue, move.namespace, move.topics, green)
                await recreate_missing(green, move.namespace, move.topics, blue)
            unterminated = await _open_partitions(blue, run, move)
            if name in done and not unterminated:
                continue
            redirects = move.strategy.redirects
            # Applications have written to a copy that their owners connected them to.
            if proof_max_age_minutes and redirects and len(unterminated) == len(move.partitions):
                await require_fresh(blue, green, move, run, max_age_minutes=proof_max_age_minutes)
            await renew(sides, run, [name])
            run.ledger.enter_phase(run.id, name, Phase.QUIESCED)
            if redirects:
                result = await cut_over_namespace(
                    blue,
                    green,
                    with_clients(move, stored_clients(run, replace(moves, moves=(move,)))),
                    redirect=redirect,
                    before=original,
                    checkpoint=Checkpoint(run, name),
                    unterminated=unterminated,
                    quiesce_seconds=quiesce_seconds,
                    individually_acknowledged=individually_acknowledged,
                )
            else:
                result = await terminate_namespace(
                    blue,
                    green,
                    move,
                    before=original,
                    checkpoint=Checkpoint(run, name),
                    watch=watched.namespace(name),
                    unterminated=unterminated,
                    quiesce_seconds=quiesce_seconds,
                )
            done[name] = result.to_json()
            _store(run, moves, done, result)
    return run.artefacts.write_json(run.id, CUT_OVER, done)


async def restore_blue(sides: Sides, run: Run, original: OriginalSettings, *, delete_topics: bool) -> tuple[str, ...]:
    """As `restore.restore_blue`; then other runs may change the namespaces. After a failure the lease stays."""
    restored = await restore.restore_blue(sides, run, original, delete_topics=delete_topics)
    await release(sides, run)
    return restored


async def _open_partitions(blue: AdminClient, run: Run, move: Move) -> tuple[TopicName, ...]:
    """Partitions that are not terminated; calls them only where a flag is set, or was set in this run."""
    flagged = (await blue.namespace(move.namespace) or {}).get("migrated")
    attempted = run.ledger.entered(run.id, str(move.namespace), Phase.QUIESCED)
    return await unterminated_partitions(blue, move) if flagged or attempted else tuple(move.partitions)


def _store(run: Run, moves: Moves, done: dict[str, JsonObject], result: CutOverResult) -> None:
    if result.moved_bundles:
        record_moved_bundles(run, moves.blue, result.namespace, result.moved_bundles)
    run.artefacts.write_json(run.id, CUT_OVER, done)
    run.ledger.enter_phase(run.id, result.namespace, Phase.CUT_OVER, result.to_json())


def _replicated(moves: Moves) -> list[Move]:
    return [move for move in moves.moves if move.strategy.copies]
