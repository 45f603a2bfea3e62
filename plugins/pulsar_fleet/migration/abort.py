"""Abort a migration before its first topic is terminated, and undo everything that it changed."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from http import HTTPStatus

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import end_replication
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.artefacts import ABORTED
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import clear_flag
from pulsar_fleet.migration.cutover.termination import unterminated_partitions
from pulsar_fleet.migration.failback.steps import close_reopened
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.lease import held, release
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.restore import restore_blue
from pulsar_fleet.migration.prepare.target import read_reserved_subscriptions
from pulsar_fleet.migration.repoint.both_ways import (
    end_back,
    forget_back,
    require_returned,
    require_unwritten,
    settle_back,
)
from pulsar_fleet.migration.repoint.steps import read_state
from pulsar_fleet.migration.third_clusters import restore_thirds
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Plan
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.snapshot.resources import read_partition_counts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortResult(Document):
    """What an abort undid, one text for each change.

    :param kept: what the run created and a client uses, or what cannot be undone.
    :param closed: of a failback, the namespaces that the cluster they left redirects again.
    """

    flags: tuple[str, ...] = ()
    replication: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


async def abort_migration(sides: Sides, run: Run, moves: Moves) -> AbortResult:
    """Undo everything that the run has changed: flags, replication, overrides, and what it created on green.

    It keeps what a client uses on green by now. A second call undoes what is left.

    :raises PreconditionFailed: a topic is terminated, so that only a second migration leads back, or one has led back,
        or applications that a document has led to green are there, and nothing was undone; or a setting could not be
        restored, and everything else was.
    """
    original = find_original_settings(run)
    names = [move.namespace for move in moves.moves]
    async with held(sides, run, names), sides.open() as (blue, green):
        for move in moves.moves:
            await _require_open(blue, run, move)
        await require_returned(sides, run, moves)
        flags = [str(move.namespace) for move in moves.moves if await _clear(blue, run, move)]
        replication, replicating = await _end_replication(blue, moves, original) if original else ([], [])
        await settle_back(green, run, moves)
        back, returning = await end_back(green, run, moves)
        overrides = await restore_blue(sides, run, original, delete_topics=True) if original else ()
        held_back: tuple[str, ...] = ()
        try:
            overrides = (*overrides, *(await restore_thirds(sides, run, moves)))
        except FleetError as error:
            # One that is away for good must not keep the rest from being undone.
            held_back = (str(error),)
        await require_unwritten(blue, green, run)
        in_use = await _delete_reserved_subscriptions(green, run)
        removed, kept = await _undo_changes(green, run, names)
    await release(sides, run)
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.ABORTED)
    forget_back(run)
    result = AbortResult(
        flags=tuple(flags),
        replication=(*back, *replication),
        overrides=overrides,
        removed=removed,
        kept=(*kept, *in_use, *returning, *replicating, *held_back),
    )
    run.artefacts.write_json(run.id, ABORTED, result.to_json())
    return result


async def abort_failback(clusters: Sides, run: Run, moves: Moves | None) -> AbortResult:
    """As `abort_migration`, of a failback: blue redirects again what the run has reopened, then the rest is undone.

    :param clusters: blue, to which the namespaces return, comes first.
    :param moves: None if the run has reopened namespaces only.
    """
    sides = clusters.reversed()
    if moves:
        await require_reversible(sides, run, moves)
    names = touched_namespaces(run)
    async with held(sides, run, names):
        closed = await close_reopened(clusters, run, names)
    if moves:
        return replace(await abort_migration(sides, run, moves), closed=closed)
    await release(sides, run)
    result = AbortResult(closed=closed)
    run.artefacts.write_json(run.id, ABORTED, result.to_json())
    return result


def touched_namespaces(run: Run) -> list[NamespaceName]:
    """The namespaces that a run moves or has entered a phase for."""
    moves = find_moves(run)
    moved = [move.namespace for move in moves.moves] if moves else []
    entered = [NamespaceName.parse(entry.namespace) for entry in run.ledger.phases(run.id)]
    return [*dict.fromkeys([*moved, *entered])]


def later_runs(run: Run) -> dict[str, str]:
    """Namespace that a run has changed → the later run that has moved it since, and was not aborted."""
    changed = {entry.namespace for entry in run.ledger.phases(run.id) if entry.phase != Phase.CHECKED}
    later = {
        name: run.ledger.run_behind(run.id, name, reading=Phase.CHECKED, undone=Phase.ABORTED)
        for name in sorted(changed)
    }
    return {name: run_id for name, run_id in later.items() if run_id}


async def require_reversible(sides: Sides, run: Run, moves: Moves) -> None:
    """Refuse by `PreconditionFailed` a run that has terminated a topic, as an abort does; nothing is changed."""
    async with sides.open() as (blue, _):
        for move in moves.moves:
            await _require_open(blue, run, move)
    await require_returned(sides, run, moves)


def without_used_topics(plan: Plan, used: Collection[TopicName]) -> tuple[Plan, tuple[str, ...]]:
    """An undo plan without the used topics, their namespaces and tenants; and what the plan keeps.

    :param used: topics (never partitions) that have a client, or that the run did not create.
    """
    parents = {str(topic.namespace) for topic in used} | {topic.namespace.tenant for topic in used}
    topics = {str(topic) for topic in used}
    kept = [change for change in plan.changes if _deletes(change) and (change.name in parents or change.name in topics)]
    ids = {change.id for change in kept}
    rest = tuple(change for change in plan.changes if change.id not in ids)
    remaining = [f"{change.label} (in use)" for change in kept]
    remaining += [
        f"{change.resource.value} {change.name} {change.field}: {change.reason}" for change in plan.left_alone
    ]
    return replace(plan, changes=rest), tuple(remaining)


def _deletes(change: Change) -> bool:
    return change.action is Action.DELETE and change.resource in (Resource.TOPIC, Resource.NAMESPACE, Resource.TENANT)


async def _require_open(blue: AdminClient, run: Run, move: Move) -> None:
    if len(open_ := await unterminated_partitions(blue, move)) != len(move.partitions):
        terminated = sorted(str(topic) for topic in move.partitions if topic not in open_)
        raise PreconditionFailed(
            f"{len(terminated)} of {len(move.partitions)} partitions of {move.namespace} are terminated, first "
            f"{terminated[0]}: nothing was undone. Finish the migration, then run fail_back_namespaces."
        )
    if run.ledger.entered(run.id, str(move.namespace), Phase.RETURN_ENDED):
        raise PreconditionFailed(
            f"The cut-over of {move.namespace} has begun: what applications write on the new cluster does not come to "
            f"{blue.connection.name} any more. Nothing was undone. Finish the migration (clear cut_over, or --resume)."
        )
    if run.ledger.entered(run.id, str(move.namespace), Phase.CUT_OVER):
        # To undo what it prepared would delete what applications use now.
        raise PreconditionFailed(
            f"The run {run.id} has moved {move.namespace}, and its topics are open on {blue.connection.name} again: "
            "it was moved back, or created again. Nothing was undone: applications may use what the run has made. "
            "Overrides that it left on other namespaces are restored by watch_overrides."
        )


async def _clear(blue: AdminClient, run: Run, move: Move) -> bool:
    if not await clear_flag(blue, move):
        return False
    # A broker may have checked the flag in the meantime.
    await _require_open(blue, run, move)
    return True


async def _end_replication(blue: AdminClient, moves: Moves, original: OriginalSettings) -> tuple[list[str], list[str]]:
    """The namespaces whose replication to green was ended, and what goes on."""
    ended, remaining = [], []
    for move in moves.moves:
        if not move.strategy.copies:
            continue
        name = str(move.namespace)
        try:
            clusters, topics = original.replication[name], original.own_lists(move.namespace)
            if await end_replication(blue, moves.blue, move.namespace, moves.green, clusters, topics):
                ended.append(name)
        except PreconditionFailed as error:
            remaining.append(str(error))
    return ended, remaining


async def _delete_reserved_subscriptions(green: AdminClient, run: Run) -> list[str]:
    """Delete what no application has used on green; returns the others, which hold what theirs have not read."""
    state, in_use = read_state(run), []
    for topic, names in read_reserved_subscriptions(run).items():
        arrived = state.namespace(str(topic.namespace)).partition(topic).arrived
        in_use += [
            f"subscription {name!r} of {topic} (in use)"
            for name in names
            if name in arrived or not await _deleted(green, topic, name)
        ]
    return in_use


async def _deleted(green: AdminClient, topic: TopicName, name: str) -> bool:
    """Delete a subscription without consumers; whether it is gone."""
    try:
        await green.delete_subscription(topic, name)
    except NotFound:
        log.info("subscription %r of %s does not exist any more", name, topic)
    except FleetError as error:
        if error.status != HTTPStatus.PRECONDITION_FAILED:
            raise
        return False
    return True


async def _undo_changes(
    green: AdminClient, run: Run, namespaces: list[NamespaceName]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        planned = plan_undo(run.ledger, run.id)
    except NotFound:
        return (), ()
    gone = [name for name in namespaces if await green.namespace(name) is None]
    planned = replace(planned, changes=tuple(change for change in planned.changes if change.namespace not in gone))
    deletions = [change for change in planned.changes if _deletes(change) and change.resource is Resource.TOPIC]
    created = {TopicName.parse(change.name) for change in deletions}
    used = await _used(green, [name for name in namespaces if name not in gone], created) | _arrived(run)
    plan, kept = without_used_topics(planned, used)
    allowed = {change.id for change in plan.changes}
    applied = await apply_plan(plan, green, run.ledger, f"{run.id}/stop", redactor=open_redactor(), allow=allowed)
    removed = [result.change.label for result in applied.results if result.outcome is Outcome.APPLIED]
    remaining = [f"{result.change.label}: {result.detail}" for result in applied.not_in_place()]
    return tuple(removed), (*kept, *remaining)


def _arrived(run: Run) -> set[TopicName]:
    """Topics on green to which owners have connected applications, which may be restarting now."""
    watched = (item for namespace in read_state(run).namespaces.values() for item in namespace.partitions.items())
    return {topic.parent for topic, watch in watched if watch.arrived or watch.written}


async def _used(green: AdminClient, namespaces: list[NamespaceName], created: Collection[TopicName]) -> set[TopicName]:
    """Topics on green that have a client, or that existed before the run."""
    used: set[TopicName] = set()
    for name in namespaces:
        for topic, count in (await read_partition_counts(green, name)).items():
            statistics = await stats_of(green, topic.partitions(count), precise=False)
            if topic not in created or any(_has_clients(stats) for stats in statistics.values()):
                used.add(topic)
    return used


def _has_clients(stats: TopicStats | FleetError) -> bool:
    if isinstance(stats, NotFound):
        return False  # An inactive partition that the broker has deleted.
    if isinstance(stats, FleetError):
        raise stats
    return bool(stats.clients)
