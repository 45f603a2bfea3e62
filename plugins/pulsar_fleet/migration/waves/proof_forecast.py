"""How long the proof of a wave's copied messages will take, by an earlier proof of these clusters (client)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.text import byte_size, counted, duration
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import PROOF_SPEED
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.waves.planner import Member

log = logging.getLogger(__name__)

SLOWEST, FASTEST = 7 << 20, 130 << 20
"""Bytes per second of each cluster that one task read on two cores: messages of 1 kB stored alone, and 100 of them
in an entry (`tests/bench/test_proof_by_job.py` and `test_verify_growth.py`)."""

LEAST_BYTES = 64 << 20
"""The time of a smaller proof is that of its start, and says nothing of a larger one."""

_NEWEST_RUNS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSpeed(Document):
    """What a whole proof of copied messages took, without an interruption.

    :param stored_bytes: of the compared topics on the source when the run was planned.
    """

    SCHEMA_VERSION = 1

    blue: str
    green: str
    stored_bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Bytes of each cluster per second."""
        return self.stored_bytes / self.seconds

    def is_between(self, blue: str, green: str) -> bool:
        """Whether it compared these two clusters, in either direction."""
        return {self.blue, self.green} == {blue, green}


def record_speed(run: Run, moves: Moves, seconds: float) -> None:
    """Record what a proof took, for the plans of later runs; a second call replaces it."""
    stored = sum(move.stored_bytes or 0 for move in moves.moves if move.strategy.copies)
    if stored >= LEAST_BYTES:
        speed = ProofSpeed(blue=moves.blue, green=moves.green, stored_bytes=stored, seconds=seconds)
        run.artefacts.write_json(run.id, PROOF_SPEED, speed.to_json())


def largest_proof(run: Run, blue: str, green: str) -> tuple[str, ProofSpeed] | None:
    """The largest recorded proof between two clusters among the newest runs, and its run; None without any."""
    ids = [recorded.run_id for recorded in run.ledger.newest_runs(_NEWEST_RUNS)]
    found = {run_id: _speed(run, run_id) for run_id in run.artefacts.runs_with(PROOF_SPEED, ids)}
    between = [(run_id, speed) for run_id, speed in found.items() if speed and speed.is_between(blue, green)]
    return max(between, key=lambda entry: (entry[1].stored_bytes, entry[0]), default=None)


def proof_sentence(
    members: Sequence[Member], known: tuple[str, ProofSpeed] | None, limit: int | None = None
) -> str | None:
    """How long the proof of a wave is expected to take; None where no messages are copied.

    :param limit: bytes per second that may be read from a broker, None for no limit.
    """
    copied = [member for member in members if member.strategy.copies]
    if not copied:
        return None
    if unknown := [member for member in copied if member.stored_bytes is None]:
        return f"Expected proof: not known, what {counted(len(unknown), 'namespace')} stores was not read."
    stored = sum(member.stored_bytes or 0 for member in copied)
    size = f"{byte_size(stored)} on each cluster"
    if stored < LEAST_BYTES:
        return f"Expected proof: within a minute, for {size}."
    if known is None:
        least, most = (duration(_seconds(stored, speed, limit)) for speed in (FASTEST, SLOWEST))
        span = least if least == most else f"{least} to {most}"
        return f"Expected proof: about {span} for {size}; no proof of these clusters is on record yet.{_slowed(limit)}"
    run_id, speed = known
    return (
        f"Expected proof: about {duration(_seconds(stored, speed.per_second, limit))} for {size}, by run {run_id}, "
        f"which compared {byte_size(speed.stored_bytes)} in {duration(speed.seconds)}.{_slowed(limit)}"
    )


def _speed(run: Run, run_id: str) -> ProofSpeed | None:
    reference = run.artefacts.find(run_id, PROOF_SPEED)
    try:
        return ProofSpeed.from_json(run.artefacts.read_json(reference)) if reference else None
    except FleetError as error:
        log.info("what the proof of %s took is not used: %s", run_id, error)
        return None


def _seconds(stored: int, per_second: float, limit: int | None) -> float:
    return stored / min(per_second, limit or per_second)


def _slowed(limit: int | None) -> str:
    return f" At most {byte_size(limit)} per second is read from each broker." if limit else ""
