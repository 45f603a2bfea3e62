"""The wave of a run: each run moves one wave of the plan that the first run made; the next wave is another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import MOVES, REDIRECT, WAVE_MOVES, WAVE_TEXT, WAVES
from pulsar_fleet.migration.cutover.redirect import Redirect
from pulsar_fleet.migration.cutover.termination import unterminated_partitions
from pulsar_fleet.migration.model import NOBODY, Move, Moves, Phase, Strategy
from pulsar_fleet.migration.preflight.gates import GATE_CHECKS
from pulsar_fleet.migration.waves.approval_text import (
    approval_markdown,
    drain_sentence,
    largest_proof,
    plan_markdown,
    proof_sentence,
    verification_sentence,
)
from pulsar_fleet.migration.waves.planner import Wave, WavePlan
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.resources import read_partition_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedWave:
    """The wave of a run.

    :param waves: number of waves in the plan.
    :param moves: reference of what moves in the wave; `text` is the approval text.
    """

    number: int
    waves: int
    headline: str
    moves: Reference
    text: Reference


def read_plan(run: Run) -> WavePlan:
    """The plan that a run made; `NotFound` if it made none."""
    document = run.stored(WAVES)
    if document is None:
        raise NotFound(f"Run {run.id!r} has no plan of waves: start a new run without 'continues'.")
    return WavePlan.from_json(document)


def wave_of(plan: WavePlan, number: int) -> Wave:
    """A wave by its number, counted from 1; `InvalidRequest` for a number that the plan does not have."""
    if not 1 <= number <= len(plan.waves):
        raise InvalidRequest(
            f"The plan has {counted(len(plan.waves), 'wave')}, so there is no wave {number!r}: correct 'wave'."
        )
    return plan.waves[number - 1]


def wave_moves(run: Run, checked: Reference, *, planned_by: Run, number: int) -> Moves:
    """What moves in one wave.

    :param checked: the moves of all namespaces that this run checked.
    :param planned_by: the run that made the plan; this run itself for the first wave.
    """
    moves = Moves.from_json(run.artefacts.read_json(checked))
    names = set(wave_of(read_plan(planned_by), number).namespaces)
    return replace(moves, moves=tuple(move for move in moves.moves if move.namespace in names))


def find_moves(run: Run) -> Moves | None:
    """What a run moves: its wave, or all that it checked where there are no waves; None before the gates passed."""
    document = run.stored(WAVE_MOVES) or run.stored(MOVES)
    return Moves.from_json(document) if document else None


def recorded_moves(run: Run) -> Moves:
    """As `find_moves`, for who undoes a run; `NotFound` before the gates passed."""
    moves = find_moves(run)
    if moves is None:
        raise NotFound(f"The records contain no migration {run.id!r} with a plan: it has changed nothing.")
    return moves


def select_wave(
    run: Run,
    moves: Moves,
    findings: Sequence[Finding],
    *,
    planned_by: Run,
    number: int,
    transfers: str = "",
    bytes_per_second: int | None = None,
) -> SelectedWave:
    """Store what this run moves, and its approval text. Idempotent but for the ages in the text.

    :param moves: the result of `wave_moves`.
    :param planned_by: the run that made the plan; this run itself for the first wave.
    :param transfers: what the cut-over will do to the wave's subscriptions, in Markdown.
    :param bytes_per_second: the limit of what a proof reads from a broker; None for no limit.
    """
    plan = read_plan(planned_by)
    wave = wave_of(plan, number)
    text = approval_markdown(
        plan,
        wave,
        (moves.blue, moves.green),
        findings,
        gates=len(GATE_CHECKS),
        transfers=transfers,
        sentences=_sentences(run, wave, (moves.blue, moves.green), bytes_per_second),
        redirect=_addresses(run),
    )
    if number == 1 and len(plan.waves) > 1:
        text += "\n" + plan_markdown(plan, moves.blue, moves.green)
    stored = run.artefacts.write_json(run.id, WAVE_MOVES, moves.to_json())
    return _selected(plan, number, moves, stored, run.artefacts.write(run.id, WAVE_TEXT, text.encode()))


def _addresses(run: Run) -> list[str]:
    """Where the cut-over redirects clients to, without addresses that nothing listens at."""
    document = run.stored(REDIRECT)
    redirect = Redirect.from_json(document) if document else None
    return [url for key, url in redirect.document.items() if key not in redirect.placeholders] if redirect else []


def begun_namespaces(run: Run) -> frozenset[str]:
    """The namespaces that a run has begun to cut over or has moved, and has not given up since."""
    begun: set[str] = set()
    for entry in run.ledger.phases(run.id):
        if entry.phase in (Phase.QUIESCED, Phase.MOVED):
            begun.add(entry.namespace)
        elif entry.phase == Phase.ABORTED:
            begun.discard(entry.namespace)
    return frozenset(begun)


def begun_wave(run: Run, *, planned_by: Run, number: int) -> SelectedWave | None:
    """The stored wave of a run that has begun to cut over, for a task that is cleared then; None before.

    The gates would refuse the run's own flags, and another plan would not know what the run has changed.
    """
    references = (run.artefacts.find(run.id, WAVE_MOVES), run.artefacts.find(run.id, WAVE_TEXT))
    moves, (stored, text) = find_moves(run), references
    if moves is None or stored is None or text is None or not begun_namespaces(run):
        return None
    return _selected(read_plan(planned_by), number, moves, stored, text)


def _selected(plan: WavePlan, number: int, moves: Moves, stored: Reference, text: Reference) -> SelectedWave:
    size = counted(len(moves.moves), "namespace")
    headline = f"Wave {number} of {len(plan.waves)}: {size} from {moves.blue} to {moves.green}"
    return SelectedWave(number=number, waves=len(plan.waves), headline=headline, moves=stored, text=text)


def _sentences(run: Run, wave: Wave, clusters: tuple[str, str], limit: int | None) -> list[str]:
    """The last verification, the expected drain and proof, by this run's own survey: the plan may be days old."""
    newest = ((name, run.ledger.verdicts_of(str(name), newest=1)) for name in wave.namespaces)
    verdicts = {name: stored[0] for name, stored in newest if stored}
    surveyed = [member for own in read_plan(run).waves for member in own.members if member.namespace in wave.namespaces]
    proof = proof_sentence(surveyed, largest_proof(run, *clusters), limit)
    sentences = (verification_sentence(wave.namespaces, verdicts, datetime.now(UTC)), drain_sentence(surveyed), proof)
    return [sentence for sentence in sentences if sentence]


async def already_moved(blue: AdminClient, names: Sequence[NamespaceName], ledger: Ledger) -> tuple[NamespaceName, ...]:
    """Namespaces that an earlier run has moved, so that the same selection goes on with the others.

    A namespace counts as moved when the ledger says so, and blue still has its flag or accepts no producer for it.
    """
    finished = [name for name in names if ledger.last_phase(str(name)) in (Phase.CLEANED, Phase.FINISHED)]
    return tuple([name for name in finished if await _is_left(blue, name)])


async def _is_left(blue: AdminClient, name: NamespaceName) -> bool:
    document = await blue.namespace(name)
    if document is None or document.get("migrated"):
        return document is not None
    topics = await read_partition_counts(blue, name)
    stored = {topic: count for topic, count in topics.items() if topic.persistent}
    partitions = {part: NOBODY for topic, count in stored.items() for part in topic.partitions(count)}
    move = Move(name, Strategy.REPOINT, "", topics, partitions)
    return bool(partitions) and not await unterminated_partitions(blue, move)
