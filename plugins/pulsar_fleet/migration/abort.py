"""Stop a migration before its first topic is closed: everything that it changed is taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import ABORTED
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.cutover.termination import open_partitions
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.prepare.freeze import known_before
from pulsar_fleet.migration.prepare.original_settings import Frozen
from pulsar_fleet.migration.prepare.replication import end_replication, known_reserved
from pulsar_fleet.migration.steps import release
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Plan
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.snapshot.documents import topics_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What was taken back, in words.

    :param kept: what the run created and somebody uses, or what cannot be taken back.
    """

    flags: tuple[str, ...]
    replication: tuple[str, ...]
    overrides: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)


async def undo_before_switch(sides: Sides, run: Run, moves: Moves) -> Undone:
    """Take back everything that the run has changed: flags, replication, overrides, and what nobody uses on green.

    Green is left as it was before, except for what somebody uses meanwhile. Again takes back what is left.

    :raises Refused: a topic is closed already, so that only a second migration leads back; nothing was taken back. Or
        something could not be restored; everything else was.
    """
    before = known_before(run)
    async with sides.open() as (blue, green):
        for move in moves.moves:
            await _require_open(blue, move)
        flags = [str(move.namespace) for move in moves.moves if await _clear(blue, move)]
        replication = await _end_replication(blue, moves, before) if before else []
        overrides = await release(sides, run, before, delete_topics=True) if before else ()
        await _drop_reserved(green, run)
        removed, kept = await _take_back(green, run, [move.namespace for move in moves.moves])
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.ABORTED)
    done = Undone(flags=tuple(flags), replication=tuple(replication), overrides=overrides, removed=removed, kept=kept)
    run.artefacts.write_json(run.id, ABORTED, done.to_json())
    return done


def unused_only(plan: Plan, used: Collection[TopicName]) -> tuple[Plan, tuple[str, ...]]:
    """The part of an undo plan that touches no topic in use, and no namespace or tenant around one; and what is left.

    :param used: topics by their own names that have a client, or that the run did not create.
    """
    around = {str(topic.namespace) for topic in used} | {topic.namespace.tenant for topic in used}
    topics = {str(topic) for topic in used}
    kept = [one for one in plan.changes if _deletes(one) and (one.name in around or one.name in topics)]
    ids = {one.id for one in kept}
    rest = tuple(one for one in plan.changes if one.id not in ids)
    left = [f"{one.label} (in use)" for one in kept]
    left += [f"{one.resource.value} {one.name} {one.field}: {one.reason}" for one in plan.left_alone]
    return replace(plan, changes=rest), tuple(left)


def _deletes(change: Change) -> bool:
    return change.action is Action.DELETE and change.resource in (Resource.TOPIC, Resource.NAMESPACE, Resource.TENANT)


async def _require_open(blue: AdminClient, move: Move) -> None:
    if len(open_ := await open_partitions(blue, move)) != len(move.partitions):
        closed = sorted(str(topic) for topic in move.partitions if topic not in open_)
        raise PreconditionFailed(
            f"{len(closed)} of {len(move.partitions)} partitions of {move.namespace} are closed for good, {closed[0]} "
            "among them: nothing was taken back. Finish the migration; fail_back_namespaces leads back after it."
        )


async def _clear(blue: AdminClient, move: Move) -> bool:
    if not (await blue.namespace(move.namespace) or {}).get("migrated"):
        return False
    await set_flag(blue, move.namespace, migrated=False)
    # A broker may have looked at the flag in the meantime.
    await _require_open(blue, move)
    return True


async def _end_replication(blue: AdminClient, moves: Moves, before: Frozen) -> list[str]:
    return [
        str(move.namespace)
        for move in moves.moves
        if await end_replication(blue, moves.blue, move.namespace, moves.green, before.replication[str(move.namespace)])
    ]


async def _drop_reserved(green: AdminClient, run: Run) -> None:
    for topic, names in known_reserved(run).items():
        for name in names:
            try:
                await green.delete_subscription(topic, name)
            except NotFound:
                log.info("subscription %r of %s is gone already", name, topic)


async def _take_back(
    green: AdminClient, run: Run, namespaces: list[NamespaceName]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        planned = plan_undo(run.ledger, run.id)
    except NotFound:
        return (), ()
    gone = [name for name in namespaces if await green.namespace(name) is None]
    planned = replace(planned, changes=tuple(one for one in planned.changes if one.namespace not in gone))
    created = {TopicName.parse(one.name) for one in planned.changes if _deletes(one) and one.resource is Resource.TOPIC}
    used = await _used(green, [name for name in namespaces if name not in gone], created)
    plan, kept = unused_only(planned, used)
    allowed = {one.id for one in plan.changes}
    applied = await apply_plan(plan, green, run.ledger, f"{run.id}/stop", seal=open_seal(), allow=allowed)
    removed = [one.change.label for one in applied.results if one.outcome is Outcome.APPLIED]
    left = [f"{one.change.label}: {one.detail}" for one in applied.not_in_place()]
    return tuple(removed), (*kept, *left)


async def _used(green: AdminClient, namespaces: list[NamespaceName], created: Collection[TopicName]) -> set[TopicName]:
    """Topics on green that have a client, or that were there before."""
    found: set[TopicName] = set()
    for name in namespaces:
        for topic, count in (await topics_of(green, name)).items():
            documents = await asyncio.gather(*(green.stats(each, precise=False) for each in topic.partitions(count)))
            if topic not in created or any(TopicStats.of(topic, stats).clients for stats in documents):
                found.add(topic)
    return found
