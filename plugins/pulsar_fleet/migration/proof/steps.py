"""The verifications of a migration: before the cut-over, right after it, and at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import COPY_PROOF, COPY_VERDICT
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import without_moved
from pulsar_fleet.migration.drain.reload import load_unloaded
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_fleet.migration.prepare.freeze import freeze_blue
from pulsar_fleet.migration.prepare.target import prepare_deleted
from pulsar_fleet.migration.proof.baseline import read_baseline, store_baseline
from pulsar_fleet.migration.proof.lost_entries import lost_entries, require_none_lost
from pulsar_fleet.migration.proof.reader import ProofReader, Unfinished
from pulsar_fleet.migration.proof.records import (
    COPIED,
    DRAINED,
    REPEATED,
    record_copy,
    record_drained,
    record_not_equal,
)
from pulsar_fleet.migration.proof.removed_originals import copied_and_removed
from pulsar_fleet.migration.proof.scope import (
    comparable,
    mapping_of,
    replicated_namespaces,
    transferred_cursors,
    without_cleaned,
)
from pulsar_fleet.migration.subscriptions.comparisons import comparisons_of, consumed_on
from pulsar_fleet.migration.subscriptions.verify import wrong_cursors
from pulsar_fleet.migration.waves.proof_forecast import record_speed
from pulsar_fleet.verification.bounds.freeze import EarlierProofs
from pulsar_fleet.verification.messages.incremental import proofs_in
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import FOLDER, EntryMapping, VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds, record
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions
from pulsar_fleet.verification.subscriptions.steps import record as record_subscriptions

log = logging.getLogger(__name__)

PREPARED = "prepared"


async def verify_copy(sides: Sides, run: Run, moves: Moves, *, reader: ProofReader | None = None) -> JsonObject:
    """Before the cut-over: compare what was replicated so far, and store the baseline that the cut-over checks.

    It freezes blue first, since `restore_blue` may have run in between, so that blue does not change afterwards.
    Namespaces that an earlier attempt cut over are left out. A large proof that was interrupted is continued.

    :raises PreconditionFailed: the verdict is different or inconclusive. No flag was set.
    """
    messages, reader = 0, reader or ProofReader()
    async with sides.open() as (blue, green):
        moves = await without_moved(blue, moves)
        await freeze_blue(sides, run, moves)
        await compact(green, [topic for move in moves.moves if move.strategy.copies for topic in move.compacted])
        begun = Unfinished.read(run, COPY_PROOF, [str(name) for name in replicated_namespaces(moves)])
        baselines = dict(begun[0].baselines) if begun else {}
        for move in moves.moves:
            if str(move.namespace) not in baselines:
                # The cut-over makes what is missing then, and refuses other settings than these.
                await prepare_deleted(blue, green, run, [move])
                baselines[str(move.namespace)] = await read_baseline(blue, green, move, run)
        if replicated_namespaces(moves):
            request = begun[1] if begun else await _frozen(blue, green, moves, reader)
            began = time.monotonic()
            verification = await reader.compare(run, blue, green, request, COPY_PROOF, baselines)
            if not begun and verification.verdict is Verdict.EQUAL:
                record_speed(run, moves, time.monotonic() - began)
            messages = verification.messages
            run.artefacts.write(run.id, COPY_VERDICT, verification.to_bytes())
            record_copy(run, verification)
            if verification.verdict is not Verdict.EQUAL:
                raise PreconditionFailed(
                    f"The copy on {moves.green} was not verified as equal; no flag was set.\n"
                    f"{verification_text(verification)}"
                )
    for move in moves.moves:
        equal = move.strategy.copies
        store_baseline(run, move, baselines[str(move.namespace)], Verdict.EQUAL.value if equal else PREPARED)
        if equal:
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.REPLICATED)
    return {"messages": messages}


async def verify_subscriptions(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Right after the cut-over: compare the cursors of the transferred subscriptions on blue and green.

    They have no consumers on blue, so the cursors do not move until a consumer connects to green. Namespaces whose
    subscriptions an earlier attempt removed from blue are left out.

    :raises PreconditionFailed: a subscription does not continue as stated; the message names it.
    """
    moves = without_cleaned(run, moves)
    if not transferred_cursors(run, moves):
        return {"subscriptions": 0}
    await load_unloaded(sides, run, moves)
    async with sides.open() as (blue, green):
        moves, _ = await comparable(blue, green, run, moves)
        transferred = transferred_cursors(run, moves)
        request = await freeze_bounds(blue, green, replicated_namespaces(moves), mapping=mapping_of(moves))
        verification = await compare_subscriptions(blue, green, request)
        consumed = await consumed_on(green, [(cursor.topic, cursor.subscription) for cursor in transferred])
    record_subscriptions(run, verification)
    comparisons = comparisons_of(verification)
    wrong, moved = wrong_cursors(transferred, comparisons, consumed)
    if moved:
        log.warning(
            "%d transferred subscriptions were consumed on %s before the comparison: %s", len(moved), moves.green, moved
        )
    repeated = {f"{name!r} of {topic}": row.repeated for (topic, name), row in comparisons.items() if row.repeated}
    if repeated:
        log.warning(
            "subscriptions get these numbers of messages again, which %s stores twice: %s", moves.green, repeated
        )
    if wrong:
        listed = "\n".join(f"  {sentence}" for sentence in wrong)
        raise PreconditionFailed(
            f"{len(wrong)} of {len(transferred)} transferred subscriptions do not continue as stated.\n{listed}"
        )
    return {
        "subscriptions": len(transferred) - len(moved),
        "consumed": len(moved),
        "repeated": sum(repeated.values()),
    }


async def verify_messages(sides: Sides, run: Run, moves: Moves, *, reader: ProofReader | None = None) -> JsonObject:
    """At the end: compare what was replicated, message by message; a redirected namespace must have drained.

    Namespaces that an earlier attempt verified and cleaned up are left out. Entries do not change once they are stored,
    so what `verify_copy` proved is not read again. A topic that blue has emptied since is *copied*. Returns the
    verdict, the messages that both proofs cover, and how many of them were read now.

    :raises PreconditionFailed: the verdict is different or inconclusive, the message names the first differences; or a
        redirected namespace has not drained; or blue stored messages behind the end of a topic.
    """
    moves = without_cleaned(run, moves)
    drained = {entry.namespace for entry in run.ledger.phases(run.id) if entry.phase == Phase.DRAINED}
    messages = read = repeated = 0
    await load_unloaded(sides, run, replace(moves, moves=tuple(move for move in moves.moves if move.strategy.copies)))
    async with sides.open() as (blue, green):
        moves, skipped = await comparable(blue, green, run, moves)
        for move in moves.moves:
            if move.namespace not in replicated_namespaces(moves):
                record_drained(run, move, drained)
        copied = bool(replicated_namespaces(moves))
        verification = (
            await _compare_rest(run, blue, green, moves, reader or ProofReader(), skipped) if copied else None
        )
        removed = await copied_and_removed(blue, moves, verification) if verification else frozenset()
        lost = await lost_entries(blue, moves)
    if verification:
        record(run, verification)
        messages, read = verification.proven, verification.messages
        if not all(map(_has_all, _topics(verification, without=removed))):
            raise PreconditionFailed(
                f"The copy on {moves.green} was not verified as equal.\n{verification_text(verification)}"
            )
        repeated = record_not_equal(run, verification, removed)
    require_none_lost(lost, moves)
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.VERIFIED)
    return {"verdict": _verdict(copied, removed, repeated), "messages": messages, "read": read, "repeated": repeated}


def _verdict(copied: bool, removed: Collection[str], repeated: int) -> str:
    if not copied:
        return DRAINED
    return COPIED if removed else REPEATED if repeated else Verdict.EQUAL.value


async def _compare_rest(
    run: Run, blue: AdminClient, green: AdminClient, moves: Moves, reader: ProofReader, skipped: Collection[str]
) -> Verification:
    """Continue the proof of `verify_copy`; compare everything where that does not prove equality.

    Where producers write to the target too, the copies behind a proof cannot be told by their number: all are compared.
    """
    copy = _proof_of_copy(run)
    if copy and mapping_of(moves) is EntryMapping.REPLICATED:
        rest = await _compare(
            run, blue, green, moves, reader, skipped, lambda _, source, target: proofs_in(copy, run.id, source, target)
        )
        if rest.verdict is Verdict.EQUAL:
            return rest
        log.warning("everything is compared again, since the proof of verify_copy cannot be continued: %s", rest.topics)
    return await _compare(run, blue, green, moves, reader, skipped)


def _proof_of_copy(run: Run) -> Verification | None:
    """What `verify_copy` proved in this run; None if it proved nothing that this release can continue."""
    reference = run.artefacts.find(run.id, COPY_VERDICT)
    try:
        return Verification.from_bytes(run.artefacts.read(reference)) if reference else None
    except FleetError as error:
        log.info("the proof of verify_copy is not continued: %s", error)
        return None


async def _compare(
    run: Run,
    blue: AdminClient,
    green: AdminClient,
    moves: Moves,
    reader: ProofReader,
    skipped: Collection[str],
    continues: EarlierProofs | None = None,
) -> Verification:
    """
    :param skipped: partitions that blue did not terminate: clients may still write to them.
    """
    begun = Unfinished.read(run, FOLDER, [str(name) for name in replicated_namespaces(moves)])
    request = begun[1] if begun else await _frozen(blue, green, moves, reader, continues)
    if skipped:
        log.warning("not compared, since %s has not terminated them: %s", moves.blue, ", ".join(sorted(skipped)))
    return await reader.compare(run, blue, green, request.without(skipped), FOLDER, {})


async def _frozen(
    blue: AdminClient, green: AdminClient, moves: Moves, reader: ProofReader, continues: EarlierProofs | None = None
) -> VerifyRequest:
    return await freeze_bounds(
        blue,
        green,
        replicated_namespaces(moves),
        mapping=mapping_of(moves),
        continues=continues,
        max_bytes_per_second=reader.max_bytes_per_second,
    )


def _topics(verification: Verification, without: Collection[str]) -> Iterator[TopicVerdict]:
    rows = (topic for namespace in verification.namespaces for topic in namespace.topics)
    return (topic for topic in rows if topic.topic not in without)


def _has_all(topic: TopicVerdict) -> bool:
    """Whether green has every message in order, perhaps some of them twice."""
    return topic.verdict is Verdict.EQUAL or bool(topic.repeated and not topic.reordered)
