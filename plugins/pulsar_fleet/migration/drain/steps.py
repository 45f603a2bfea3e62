"""Watch the switched namespaces of a run and treat what goes wrong; what is known is kept with the run's records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import STATE
from pulsar_fleet.migration.clusters import Sides, redirect_of
from pulsar_fleet.migration.drain.incident import Incident, Kind, Treatment
from pulsar_fleet.migration.drain.monitor import Look, Watch
from pulsar_fleet.migration.drain.remediate import Ward, is_exhausted, may_treat, treat, treated
from pulsar_fleet.migration.drain.state import WatchState
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.prepare.freeze import known_before
from pulsar_fleet.migration.prepare.original_settings import Frozen
from pulsar_fleet.migration.subscriptions.checkpoint import known_rosters, with_roster

_PATIENCE_SECONDS = 4.0
"""A broker that does not answer for longer is a fact to report, not to wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """What a look saw and what was done about it.

    :param waiting: incidents for which there is a remedy that may be tried now.
    """

    look: Look
    waiting: tuple[Incident, ...]

    @property
    def is_done(self) -> bool:
        """Nothing is left to wait for."""
        return self.look.is_done

    @property
    def needs_hand(self) -> bool:
        """Whether `attend` has something to do that `look` must not: end, treat, or try a topic."""
        return self.is_done or bool(self.waiting) or self.look.suspicious

    def line(self) -> str:
        """One line for the log."""
        return self.look.line()


async def look(sides: Sides, run: Run, moves: Moves) -> Attended:
    """Look once and keep what was seen; nothing is changed on the clusters."""
    async with _watching(sides, run, moves, probing=False) as watch:
        return await _look(watch, run)


async def attend(sides: Sides, run: Run, moves: Moves) -> Attended:
    """Look once, and treat what may be treated. A remedy that a process died in is seen, and tried again, next time."""
    async with _watching(sides, run, moves, probing=True) as watch:
        found = await _look(watch, run)
        recovered: set[str] = set()
        for incident in found.waiting:
            # One recovery loads all of a namespace, whichever of its bundles is told; a fenced topic needs its own.
            recovers = incident.treatment is Treatment.RECOVER
            if recovers and incident.namespace in recovered and incident.kind is not Kind.FENCED:
                continue
            # A remedy must not be given up as early as a look.
            async with sides.open() as (blue, green):
                done = await _treat(watch, replace(watch, blue=blue, green=green), incident, run)
            if done and recovers:
                recovered.add(incident.namespace)
        if found.is_done:
            _record_end(watch, run)
        return found


async def attend_until_done(sides: Sides, run: Run, moves: Moves, *, seconds: float, poll_seconds: float) -> Attended:
    """Attend until everything has arrived; for whoever has no scheduler to wait with.

    :raises Refused: it has not after `seconds`; the message says what is missing.
    """
    end = time.monotonic() + seconds
    while not (found := await attend(sides, run, moves)).is_done:
        if time.monotonic() > end:
            raise PreconditionFailed(f"After {seconds:.0f} s not everything has arrived: {found.line()}")
        await asyncio.sleep(poll_seconds)
    return found


@asynccontextmanager
async def _watching(sides: Sides, run: Run, moves: Moves, *, probing: bool) -> AsyncIterator[Watch]:
    reference = run.artefacts.find(run.id, STATE)
    state = WatchState.from_json(run.artefacts.read_json(reference)) if reference else WatchState()
    rosters = known_rosters(run, moves)
    async with (
        AdminClient(sides.blue, retry_seconds=_PATIENCE_SECONDS) as blue,
        AdminClient(sides.green, retry_seconds=_PATIENCE_SECONDS) as green,
    ):
        try:
            yield Watch(
                blue=blue,
                green=green,
                moves=[with_roster(move, rosters) for move in moves.moves],
                rosters=rosters,
                redirect=redirect_of(sides, run),
                state=state,
                probing=probing,
            )
        finally:
            run.artefacts.write_json(run.id, STATE, state.to_json())


async def _look(watch: Watch, run: Run) -> Attended:
    now = time.time()
    found = await watch.look(now)
    tried = treated(run)
    for incident in found.incidents:
        if is_exhausted(incident, tried):
            known = watch.state.namespaces[incident.namespace].incidents[incident.id]
            known["sentence"] = (
                f"{incident.sentence} Its remedy was tried and did not help; by hand: {incident.treatment}."
            )
    return Attended(look=found, waiting=tuple(one for one in found.incidents if may_treat(one, tried, now)))


async def _treat(watch: Watch, patient: Watch, incident: Incident, run: Run) -> bool:
    move = next(move for move in watch.moves if str(move.namespace) == incident.namespace)
    ward = Ward(blue=patient.blue, green=patient.green, move=move, redirect=watch.redirect, before=_before(run))
    done = await treat(incident, ward, run)
    one = watch.state.namespaces[incident.namespace]
    one.incidents[incident.id]["treated"] = done.text if done else "The remedy failed; the ledger says why."
    if done is not None:
        one.blue.begin_again(move.partitions, time.time())
        one.green.begin_again((), time.time())
        one.closed.clear()
    return done is not None


def _record_end(watch: Watch, run: Run) -> None:
    for name, one in watch.state.namespaces.items():
        error = one.error.to_json() if one.error else None
        run.ledger.enter_phase(run.id, name, Phase.DRAINED, {"forecast_error": error, "incidents": len(one.incidents)})


def _before(run: Run) -> Frozen:
    before = known_before(run)
    if before is None:
        raise PreconditionFailed(f"Run {run.id!r} has not held blue still: there is nothing to watch.")
    return before
