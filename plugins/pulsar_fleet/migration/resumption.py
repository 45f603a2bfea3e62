"""What an earlier attempt of a run has done, by the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.planning.apply.outcome import Outcome


def has_written(run: Run) -> bool:
    """Whether the ledger knows of a write of the run, or of one below it; its check alone is none."""
    return run.ledger.has_written(run.id, applied=Outcome.APPLIED.value, before={Phase.CHECKED.value})


_ORDER = [Phase.ABORTED, *(phase for phase in Phase if phase is not Phase.ABORTED)]
"""After an abort everything is to be done again."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The newest phase of each namespace of a run; none before its first step."""

    phases: Mapping[str, Phase]

    @classmethod
    def of(cls, run: Run) -> Self:
        """Read the ledger."""
        return cls({entry.namespace: Phase(entry.phase) for entry in run.ledger.phases(run.id)})

    def any(self, phase: Phase) -> bool:
        """Whether a namespace is in `phase` or beyond it."""
        return any(_rank(reached) >= _rank(phase) for reached in self.phases.values())

    def all(self, moves: Moves, phase: Phase) -> bool:
        """Whether every namespace that moves is in `phase` or beyond it."""
        return not self.before(moves, phase).moves

    def before(self, moves: Moves, phase: Phase) -> Moves:
        """The moves of the namespaces that have not reached `phase`."""
        waiting = (move for move in moves.moves if _rank(self.phases.get(str(move.namespace))) < _rank(phase))
        return replace(moves, moves=tuple(waiting))


def _rank(phase: Phase | None) -> int:
    return _ORDER.index(phase) if phase else -1
