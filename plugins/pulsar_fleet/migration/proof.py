"""The proofs of a migration: before the switch, right after it, and at the end; the verification's own reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy
from pulsar_fleet.migration.proof_baseline import keep_basis, take_basis
from pulsar_fleet.migration.steps import hold_still
from pulsar_fleet.migration.subscriptions.checkpoint import known_placed
from pulsar_fleet.migration.subscriptions.verify import Compared, Name, misplaced
from pulsar_fleet.verification.messages.report import namespace_summary, verification_text
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import Mapping
from pulsar_fleet.verification.steps import freeze_bounds, record, verify_in_process
from pulsar_fleet.verification.subscriptions.correspondence import Unit
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions
from pulsar_fleet.verification.subscriptions.steps import record as record_subscriptions
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerdict, SubscriptionVerification

log = logging.getLogger(__name__)

DRAINED = "drained"
PREPARED = "prepared"
COPY = "copy of {}"


async def verify_copy(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Before the switch: compare what was replicated so far, and keep on what the switch may rely.

    Blue is held still first, again if it was let go meanwhile, so that the switch finds it as it is proven. What an
    earlier try has switched is left out.

    :raises Refused: the messages are not equal, or it cannot be told. Nothing was flagged.
    """
    messages = 0
    async with sides.open() as (blue, green):
        flagged = [(await blue.namespace(move.namespace) or {}).get("migrated") for move in moves.moves]
        moves = replace(moves, moves=tuple(move for move, done in zip(moves.moves, flagged, strict=True) if not done))
        await hold_still(sides, run, moves)
        bases = {move.namespace: await take_basis(blue, green, move) for move in moves.moves}
        if _replicated(moves):
            found = await _compare(blue, green, moves)
            messages = found.messages
            _record_copy(run, found)
            if found.verdict is not Verdict.EQUAL:
                raise PreconditionFailed(
                    f"The copy is not proven equal; nothing was flagged.\n{verification_text(found)}"
                )
    for move in moves.moves:
        equal = move.strategy is Strategy.REPLICATE
        keep_basis(run, move, bases[move.namespace], Verdict.EQUAL.value if equal else PREPARED)
        if equal:
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.REPLICATED)
    return {"messages": messages}


async def prove_placements(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Right after the switch: do the carried subscriptions stand on green where they stood on blue?

    Nobody consumes them on blue, so both sides stand still until a consumer comes to green.

    :raises Refused: one does not continue as stated; the message names it.
    """
    topics = [each for move in moves.moves for each in known_placed(run, str(move.namespace)).values()]
    placed = [one for topic in topics for one in topic.placed]
    if not placed:
        return {"subscriptions": 0}
    async with sides.open() as (blue, green):
        request = await freeze_bounds(blue, green, _replicated(moves), mapping=Mapping.REPLICATED)
        found = await compare_subscriptions(blue, green, request)
        consumed = await _consumed(green, [(one.topic, one.subscription) for one in placed])
    record_subscriptions(run, found)
    wrong, moved = misplaced(placed, _by_name(found), consumed)
    if moved:
        log.warning("%d carried subscriptions were consumed on green before they were compared: %s", len(moved), moved)
    if wrong:
        listed = "\n".join(f"  {one}" for one in wrong)
        raise PreconditionFailed(
            f"{len(wrong)} of {len(placed)} carried subscriptions do not continue as stated.\n{listed}"
        )
    return {"subscriptions": len(placed) - len(moved), "consumed": len(moved)}


async def prove(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """At the end: compare what was replicated, message by message; where nothing was, everything was read on blue.

    :raises Refused: the messages are not equal, or it cannot be told; the message names the first differences. Or a
        namespace that was only redirected has not drained.
    """
    drained = {entry.namespace for entry in run.ledger.phases(run.id) if entry.phase == Phase.DRAINED}
    for move in moves.moves:
        if move.strategy is Strategy.REDIRECT:
            _record_drained(run, move, drained)
    messages = 0
    copied = bool(_replicated(moves))
    if copied:
        async with sides.open() as (blue, green):
            found = await _compare(blue, green, moves)
        record(run, found)
        messages = found.messages
        if found.verdict is not Verdict.EQUAL:
            raise PreconditionFailed(f"The copy on green is not proven equal.\n{verification_text(found)}")
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.VERIFIED)
    return {"verdict": Verdict.EQUAL.value if copied else DRAINED, "messages": messages}


async def _compare(blue: AdminClient, green: AdminClient, moves: Moves) -> Verification:
    request = await freeze_bounds(blue, green, _replicated(moves), mapping=Mapping.REPLICATED)
    return await verify_in_process(blue, green, request)


def _replicated(moves: Moves) -> list[NamespaceName]:
    return [move.namespace for move in moves.moves if move.strategy is Strategy.REPLICATE]


def _record_copy(run: Run, found: Verification) -> None:
    """Under a scope of its own: it is no verdict on the migration, whose end is still to come."""
    for each in found.namespaces:
        run.ledger.record_verdict(
            run.id,
            COPY.format(each.namespace),
            verdict=each.verdict,
            messages=each.messages,
            summary=f"before the switch: {namespace_summary(each, found.restriction)}",
            artefact=None,
        )


def _record_drained(run: Run, move: Move, drained: Collection[str]) -> None:
    if str(move.namespace) not in drained:
        raise PreconditionFailed(
            f"{move.namespace} has not drained in this run: what is left on blue is nowhere else. Clear wait_drained."
        )
    run.ledger.record_verdict(
        run.id,
        str(move.namespace),
        verdict=DRAINED,
        messages=0,
        summary="every subscription read all that blue held; nothing was stored on both sides to compare",
        artefact=None,
    )


def _by_name(found: SubscriptionVerification) -> dict[Name, Compared]:
    topics = [topic for namespace in found.namespaces for topic in namespace.topics]
    return {(topic.topic, one.subscription): _compared(one) for topic in topics for one in topic.subscriptions}


def _compared(one: SubscriptionVerdict) -> Compared:
    return Compared(
        redelivered=one.redelivered,
        skipped=one.skipped,
        by_entries=one.unit is Unit.ENTRIES,
        settings=tuple(f"{name} is {here} on blue and {there} on green" for name, here, there in one.settings),
        reason=one.reason,
    )


async def _consumed(green: AdminClient, names: list[Name]) -> set[Name]:
    """Those of them that have a consumer on green, or had one since its topic was loaded."""
    topics = sorted({topic for topic, _ in names})
    documents = await asyncio.gather(*(green.stats(TopicName.parse(topic), precise=False) for topic in topics))
    stats = {
        topic: TopicStats.of(TopicName.parse(topic), document)
        for topic, document in zip(topics, documents, strict=True)
    }
    return {
        (topic, name)
        for topic, name in names
        if (found := stats[topic].subscriptions.get(name)) and (found.consumers or found.delivered)
    }
