"""Wait until the messages of a migration are copied, and say why the copy stands still."""

from __future__ import annotations

import time

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.steps import replication_progress
from pulsar_fleet.replication.doctor.model import Diagnosis, Examination
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.replication.doctor.steps import examine

EQUAL_LOOKS = 5
EXAMINE_AGAIN_SECONDS = 600.0


class CopyWait:
    """The looks of one wait for a copy by geo-replication.

    After `EQUAL_LOOKS` looks with the same figures the doctor examines the namespaces, and again every ten minutes
    while the figures stay; its cause follows them. A look at a copy that goes on costs nothing more.
    """

    def __init__(self, sides: Sides, run: Run, moves: Moves) -> None:
        self.sides, self.run, self.moves = sides, run, moves
        self._figures, self._equal = "", 0
        self._cause, self._examined = "", 0.0

    async def look(self) -> tuple[bool, str]:
        """Whether the copy is near its end, and a line with the figures and, while they stay, the cause.

        :raises Unavailable: a cluster does not answer.
        """
        done, figures = await replication_progress(self.sides, self.run, self.moves)
        self._equal = self._equal + 1 if figures == self._figures else 1
        if self._equal == 1:
            self._figures, self._cause, self._examined = figures, "", 0.0
        now = time.monotonic()
        due = not self._examined or now - self._examined >= EXAMINE_AGAIN_SECONDS
        if not done and self._equal >= EQUAL_LOOKS and due:
            self._cause, self._examined = await self._read_cause(), now
        return done, f"{figures}; {self._cause}" if self._cause and not done else figures

    async def _read_cause(self) -> str:
        names = frozenset(move.namespace for move in self.moves.moves if move.strategy.copies)
        request = Request(selection=Selection(namespaces=names), connect_seconds=0.0)
        try:
            examination = await examine((self.sides.blue, self.sides.green), request)
        except FleetError as error:
            return f"it stands still, and the doctor could not examine why: {error}"
        return cause_of(examination, self.moves)


def cause_of(examination: Examination, moves: Moves) -> str:
    """What the doctor says of a copy that stands still, with what to do, as a part of a line."""
    found = [row for row in examination.faults if row.source == moves.blue and row.target in (moves.blue, moves.green)]
    if not found:
        known = "no cause that is known" if examination.is_complete else "no cause, and could not read everything"
        return f"it stands still, and the doctor found {known}"
    first = found[0]
    more = f" The doctor lists {counted(len(found) - 1, 'more fault')}." if len(found) > 1 else ""
    return f"it stands still: {_text(first)}{more}"


def _text(row: Diagnosis) -> str:
    calls = "".join(f" {call.text()}." for call in row.calls)
    return f"{row.id}, {row.resource}: {row.evidence} Do: {row.remedy}{calls}"
