"""The verifications of a migration before the cut-over, right after it and at the end: scope, verdicts, losses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import cursors_in_stats, replicator_cursor
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers, entries_behind, terminated_at
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.migration.artefacts import COPY_PROOF, COPY_VERDICT
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import read_infos, unterminated, without_moved
from pulsar_fleet.migration.drain.remediate import load_unloaded
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_fleet.migration.prepare.freeze import freeze_blue
from pulsar_fleet.migration.prepare.target import prepare_deleted
from pulsar_fleet.migration.proof.baseline import read_baseline, store_baseline
from pulsar_fleet.migration.proof.reader import ProofReader, Unfinished
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor, stored_transfers
from pulsar_fleet.migration.subscriptions.verify import comparisons_of, consumed_on, wrong_cursors
from pulsar_fleet.migration.waves.approval_text import record_speed
from pulsar_fleet.verification.bounds.freeze import EarlierProofs
from pulsar_fleet.verification.messages.incremental import proofs_in
from pulsar_fleet.verification.messages.report import namespace_summary, verification_text
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import FOLDER, EntryMapping, VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds, record
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions
from pulsar_fleet.verification.subscriptions.steps import record as record_subscriptions


def without_cleaned(run: Run, moves: Moves) -> Moves:
    """The moves of namespaces that this run has not cleaned up: after it, blue lacks what continues on green."""
    cleaned = {entry.namespace for entry in run.ledger.phases(run.id) if entry.phase in (Phase.CLEANED, Phase.FINISHED)}
    return replace(moves, moves=tuple(move for move in moves.moves if str(move.namespace) not in cleaned))


async def comparable(blue: AdminClient, green: AdminClient, run: Run, moves: Moves) -> tuple[Moves, frozenset[str]]:
    """The moves without partitions that blue did not terminate, or that were deleted there since; and the former."""
    left, narrowed = await unterminated(blue, green, run, moves.moves), []
    for move in moves.moves:
        existing = set(await blue.topics(move.namespace)) if move.strategy.copies else move.partitions.keys()
        clients = {topic: own for topic, own in move.partitions.items() if topic in existing and topic not in left}
        narrowed.append(replace(move, partitions=clients))
    return replace(moves, moves=tuple(narrowed)), frozenset(map(str, left))


def transferred_cursors(run: Run, moves: Moves) -> list[TransferredCursor]:
    """The cursors that the cut-over set for these partitions."""
    return [
        cursor
        for move in moves.moves
        for topic, partition in stored_transfers(run, str(move.namespace)).items()
        if topic in move.partitions
        for cursor in partition.cursors
    ]


def mapping_of(moves: Moves) -> EntryMapping:
    """Where owners connect the applications, producers may write to green while blue is still replicated to it."""
    redirected = all(move.strategy.redirects for move in moves.moves if move.strategy.compares)
    return EntryMapping.REPLICATED if redirected else EntryMapping.COPIES


def replicated_namespaces(moves: Moves) -> list[NamespaceName]:
    """Those whose messages are compared: of a namespace without persistent topics there is none."""
    return [move.namespace for move in moves.moves if move.strategy.compares and move.partitions]


async def copied_and_removed(blue: AdminClient, moves: Moves, verification: Verification) -> frozenset[str]:
    """The inconclusive topics of which blue has nothing left that it had not copied to green.

    Blue empties a terminated topic when nothing retains its messages and nobody has them to read (observed). It removes
    only what all cursors have passed, and that of the replicator passes what green has stored. One call for each such
    topic.
    """
    inconclusive = {
        verdict.topic
        for namespace in verification.namespaces
        for verdict in namespace.topics
        if verdict.verdict is Verdict.INCONCLUSIVE
    }
    unproven = [topic for move in moves.moves for topic in move.partitions if str(topic) in inconclusive]
    stats = [await blue.internal_stats(topic) for topic in unproven]
    return frozenset(
        str(topic)
        for topic, document in zip(unproven, stats, strict=True)
        if _is_copied_and_removed(document, verification.target)
    )


def _is_copied_and_removed(stats: JsonObject, green: str) -> bool:
    """
    :param green: the cluster's name.
    """
    is_replicated = replicator_cursor(green) in cursors_in_stats(stats)
    return is_replicated and stats["state"] == "Terminated" and not len(Ledgers.of(stats))


DRAINED = "drained"
REPEATED = "repeated"
"""Green has every message, and stores some of them twice."""
COPIED = "copied"
"""Blue had copied all messages to green, but removed them before they were compared."""
_COPY = "copy of {}"


def record_copy(run: Run, verification: Verification) -> None:
    """Record it under its own scope: the verdict on the migration comes at the end."""
    for result in verification.namespaces:
        run.ledger.record_verdict(
            run.id,
            _COPY.format(result.namespace),
            verdict=result.verdict,
            messages=result.messages,
            summary=f"before the cut-over: {namespace_summary(result, verification.restriction)}",
            artefact=None,
        )


def record_not_equal(run: Run, verification: Verification, copied: Collection[str]) -> int:
    """Record a verdict of its own for namespaces that green has whole although they were not compared as equal.

    :param copied: the topics whose messages blue removed before they were compared.
    :returns: how many messages green stores more than once.
    """
    results = {row.namespace: row for row in verification.namespaces}
    for stored in run.ledger.verdicts(run.id):
        row = results.get(stored.scope)
        repeated = sum(topic.repeated for topic in row.topics) if row else 0
        removed = sorted(row.names & set(copied)) if row else []
        if sentences := [*_repeated(verification, repeated), *_removed(verification, removed)]:
            log.warning("%s: %s", stored.scope, "; ".join(sentences))
            run.ledger.record_verdict(
                run.id,
                stored.scope,
                verdict=COPIED if removed else REPEATED,
                messages=stored.messages,
                summary="; ".join(sentences),
                artefact=stored.artefact,
            )
    return sum(topic.repeated for row in verification.namespaces for topic in row.topics)


def _repeated(verification: Verification, messages: int) -> Iterator[str]:
    if messages:
        yield (
            f"{verification.target} has every message, and {counted(messages, 'message')} more than once: a replicator "
            f"lost its connection and sent again what {verification.target} had not confirmed; consumers there get "
            "these again"
        )


def _removed(verification: Verification, topics: Sequence[str]) -> Iterator[str]:
    if topics:
        yield (
            f"{verification.source} removed all messages of {listed(topics)} by its own retention before they were "
            f"compared; its replicator had copied them all to {verification.target}"
        )


def record_drained(run: Run, move: Move, drained: Collection[str]) -> None:
    if str(move.namespace) not in drained:
        raise PreconditionFailed(
            f"{move.namespace} has not drained in this run: its unread messages were not copied. Clear wait_drained."
        )
    run.ledger.record_verdict(
        run.id,
        str(move.namespace),
        verdict=DRAINED,
        messages=0,
        summary="every subscription read its backlog; no message is on both clusters to compare",
        artefact=None,
    )


async def record_sent(run: Run, blue: AdminClient, move: Move, green: str) -> None:
    """Record that green has confirmed every entry of blue's topics, which take no more. Two calls for each, or more.

    These are not compared: applications on green read them, and its brokers remove what was read.

    :raises PreconditionFailed: green has not confirmed all after a minute.
    """
    end = time.monotonic() + _SENT_SECONDS
    while unsent := [text for topic in move.partitions if (text := await _unsent(blue, topic, green))]:
        if time.monotonic() > end:
            raise PreconditionFailed(
                f"{green} has not confirmed every entry of {move.namespace}: {listed(unsent)}. Nothing is removed from "
                f"{blue.connection.name}. Repair the replication to {green}, then clear this task.",
                cluster=blue.connection.name,
            )
        await asyncio.sleep(1)
    run.ledger.record_verdict(
        run.id,
        str(move.namespace),
        verdict=COPIED,
        messages=0,
        summary=f"{green} has confirmed every entry; not compared, since applications read and remove them there",
        artefact=None,
    )


async def _unsent(blue: AdminClient, topic: TopicName, green: str) -> str:
    try:
        stats = await blue.internal_stats(topic)
    except NotFound:
        return ""
    entries = Ledgers.of(stats)
    confirmed = replicated_up_to(entries, stats, green) or 0
    return f"{len(entries) - confirmed:,} of {topic}" if confirmed < len(entries) else ""


async def lost_entries(blue: AdminClient, moves: Moves) -> tuple[str, ...]:
    """A sentence for each partition on blue with entries behind its terminated position.

    One call for each topic, one more for each partition with a ledger behind its end. Of a topic that has been deleted
    on blue nothing is read.
    """
    sentences: list[str] = []
    for move in moves.moves:
        infos = await read_infos(blue, move)
        sentences += await asyncio.gather(*(_sentence(blue, topic, info) for topic, info in infos.items() if info))
    return tuple(sentence for sentence in sentences if sentence)


def require_none_lost(lost: Sequence[str], moves: Moves) -> None:
    """Refuse with `PreconditionFailed`; only when all that consumers can get was read or copied.

    :param lost: as `lost_entries`.
    """
    if lost:
        listed = "\n  ".join(lost)
        raise PreconditionFailed(
            f"{moves.blue} stored messages behind the end of {counted(len(lost), 'terminated partition')}: producers "
            f"got a confirmation for them, and no consumer gets them, on no cluster.\n  {listed}\n"
            "Let their applications publish again, to the same topics, what they sent in the minute before the "
            f"cut-over. Everything else of these topics was read or copied: delete them on {moves.blue} then, and "
            "clear this task.",
        )


async def _sentence(blue: AdminClient, topic: TopicName, info: JsonObject) -> str:
    entries = await entries_behind(blue, topic, info)
    listed = ", ".join(f"{count:,} in ledger {ledger}" for ledger, count in entries.items())
    return f"{topic}: {sum(entries.values()):,} entries behind {terminated_at(info)}: {listed}" if entries else ""


log = logging.getLogger(__name__)

PREPARED = "prepared"
_SENT_SECONDS = 60.0


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
            if str(move.namespace) not in baselines and not move.strategy.is_moved_before:
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
        if (name := str(move.namespace)) in baselines:
            verdict = Verdict.EQUAL.value if move.strategy.compares else PREPARED
            store_baseline(run, move, baselines[name], verdict)
        if move.strategy.copies and not run.ledger.entered(run.id, str(move.namespace), Phase.RETURN_ENDED):
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.REPLICATED)
    return {"messages": messages}


async def verify_subscriptions(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Right after the cut-over: compare the cursors of the transferred subscriptions on blue and green.

    They have no consumers on blue, so the cursors do not move until a consumer connects to green. Namespaces whose
    subscriptions an earlier attempt removed from blue are left out.

    :raises PreconditionFailed: a subscription does not continue as stated; the message names it.
    """
    moves = without_cleaned(run, moves)
    # Of applications that moved before green has the positions, and blue has older ones.
    moves = replace(moves, moves=tuple(move for move in moves.moves if not move.strategy.is_moved_before))
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
            if move.strategy.is_moved_before:
                await record_sent(run, blue, move, moves.green)
            elif move.namespace not in replicated_namespaces(moves):
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
    sent = any(move.strategy.is_moved_before for move in moves.moves)
    return {
        "verdict": _verdict(copied, sent or bool(removed), repeated),
        "messages": messages,
        "read": read,
        "repeated": repeated,
    }


def _verdict(copied: bool, removed: bool, repeated: int) -> str:
    if not copied and not removed:
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
