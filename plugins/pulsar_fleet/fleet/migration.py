"""Read what the ledger and the artefact store have of a migration while it runs, and afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import sqlalchemy as sa

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.fleet.prepared_run import refused_runs
from pulsar_fleet.ledger.ledger import MIGRATIONS, Ledger
from pulsar_fleet.ledger.rows import RecordedPhase, RecordedRun
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import runs
from pulsar_fleet.migration.artefacts import DRAIN_STATE, WAVES
from pulsar_fleet.migration.drain.state import DrainState
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.waves.planner import Wave, WavePlan
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.report.page import PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRun:
    """A wave of the plan and the run that moves it; None while no run has begun it."""

    wave: Wave
    run: RecordedRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecords:
    """What is recorded of one run.

    :param number: of its wave, from 1.
    :param waves: those of the whole plan; empty before it was made.
    :param moves: None before the gates passed.
    :param drain: as the last poll stored it.
    :param waivable: whether it failed with blockers of which each can be waived.
    """

    read_at: datetime
    run: RecordedRun
    number: int
    waves: tuple[WaveRun, ...]
    moves: Moves | None
    phases: Sequence[RecordedPhase]
    drain: DrainState
    has_report: bool
    waivable: bool = False

    @property
    def newest(self) -> Mapping[str, RecordedPhase]:
        """Namespace → its newest phase."""
        return {entry.namespace: entry for entry in self.phases}


def read_migration(run: Run, now: datetime | None = None) -> MigrationRecords:
    """The records of a migration or failback.

    :raises NotFound: the ledger has no such run, or it is of another procedure.
    """
    recorded = run.ledger.run(run.id)
    if recorded is None or recorded.procedure not in MIGRATIONS:
        raise NotFound(f"The ledger has no migration {run.id!r}.")
    drain = run.stored(DRAIN_STATE)
    return MigrationRecords(
        read_at=now or datetime.now(UTC),
        run=recorded,
        number=int(recorded.conf.get("wave") or 1),
        waves=_waves(run, str(recorded.conf.get("continues") or run.id)),
        moves=find_moves(run),
        phases=run.ledger.phases(run.id),
        drain=DrainState.from_json(drain) if drain else DrainState(),
        has_report=bool(run.artefacts.runs_with(PAGE, [run.id])),
        waivable=bool(refused_runs([recorded], run.ledger, run.artefacts)),
    )


def _waves(run: Run, first: str) -> tuple[WaveRun, ...]:
    """The waves of the plan that the first run made; each later one has a run of its own."""
    stored = Run(first, run.ledger, run.artefacts).stored(WAVES)
    if not stored:
        return ()
    begun = {int(row.conf.get("wave") or 1): row for row in _runs_of(run.ledger, first)}
    return tuple(WaveRun(wave=wave, run=begun.get(wave.number)) for wave in WavePlan.from_json(stored).waves)


def _runs_of(ledger: Ledger, first: str) -> list[RecordedRun]:
    """The runs of one plan, oldest first: of two for one wave the newer one counts."""
    own = sa.or_(runs.c.run_id == first, runs.c.conf["continues"].as_string() == first)
    columns: list[sa.Column[object]] = [runs.c[field.name] for field in fields(RecordedRun)]
    query = sa.select(*columns).where(runs.c.procedure.in_(MIGRATIONS), own).order_by(runs.c.started_at)
    with ledger.engine.connect() as connection:
        return [RecordedRun(**row) for row in connection.execute(query).mappings()]
