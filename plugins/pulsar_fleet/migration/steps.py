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
from collections.abc import Sequence

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import (
    allow_cluster,
    begin_replication,
    copy_from,
    register_cluster,
    topics_without,
)
from pulsar_fleet.links.lag import read_replication_progress
from pulsar_fleet.links.partition_stats import required_stats
from pulsar_fleet.migration import cleanup
from pulsar_fleet.migration.artefacts import MOVES, WAVES
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import without_moved
from pulsar_fleet.migration.drain.poll import list_loaded
from pulsar_fleet.migration.model import Move, Moves, Strategy
from pulsar_fleet.migration.preflight.evaluation import evaluate_gates, recheck_gates
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare import freeze, restore, target
from pulsar_fleet.migration.prepare.lease import holding, release, renew_while_waiting, require_free
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.target import reserve_subscriptions, store_reserved_subscriptions
from pulsar_fleet.migration.proof import steps as proof
from pulsar_fleet.migration.proof.steps import verify_subscriptions
from pulsar_fleet.migration.third_clusters import restore_thirds
from pulsar_fleet.migration.unread_brokers import accepted_as_unread
from pulsar_fleet.migration.wave_cutover import cut_over
from pulsar_fleet.migration.waves.approval_text import wave_members
from pulsar_fleet.migration.waves.planner import Limits, plan_waves
from pulsar_fleet.migration.waves.steps import find_moves
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
    earlier attempt cut over are left out, and those whose applications were moved before: both clusters have them.
    """
    original = freeze.find_original_settings(run)
    async with sides.open() as (blue, green):
        waiting = _replicated(await without_moved(blue, moves))
        replicated = [move for move in waiting if not move.strategy.is_moved_before]
        if replicated:
            await register_cluster(blue, moves.green, sides.green)
        for move in replicated:
            await allow_cluster(blue, move.namespace.tenant, moves.green)
            await target.prepare_deleted(blue, green, run, [move])
            consumed = not move.strategy.redirects
            reserving = (reserve_subscriptions(blue, green, topic, consumed=consumed) for topic in move.partitions)
            names = await asyncio.gather(*reserving)
            store_reserved_subscriptions(run, dict(zip(move.partitions, names, strict=True)))
            lists = original.own_lists(move.namespace) if original else {}
            missing = await topics_without(blue, move.namespace, moves.green, move.topics)
            copying = (copy_from(blue, topic, moves.green) for topic in move.partitions if topic.parent in missing)
            await asyncio.gather(*copying)
            await begin_replication(blue, moves.blue, move.namespace, moves.green, lists)
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
        accepted = accepted_as_unread(run)
        listed = (await list_loaded(blue, by_namespace, time.time(), accepted)).states if partitions else {}
        unsent = {topic: state.unsent for topic, state in listed.items()}
        ordered = sorted(partitions, key=lambda topic: -unsent.get(topic, 0))
        progress = await read_replication_progress(blue, moves.green, ordered)
    unread = ordered[len(ordered) - progress.unread_partitions :]
    entries = progress.lag.entries + sum(unsent.get(topic, 0) for topic in unread)
    return progress.is_near, f"{counted(entries, 'entry')} still to replicate{progress.text()}"


async def restore_blue(
    sides: Sides, run: Run, original: OriginalSettings, *, delete_topics: bool, replicates: bool = False
) -> tuple[str, ...]:
    """As `restore.restore_blue`; then other runs may change the namespaces. After a failure the lease stays."""
    restored = await restore.restore_blue(sides, run, original, delete_topics=delete_topics, replicates=replicates)
    moves = find_moves(run)
    on_thirds = await restore_thirds(sides, run, moves) if moves else ()
    await release(sides, run)
    return (*restored, *on_thirds)


def _replicated(moves: Moves) -> list[Move]:
    return [move for move in moves.moves if move.strategy.copies]
