"""A migration while it runs and afterwards: what the records have of it, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import sqlalchemy as sa
from markupsafe import Markup

from pulsar_fleet.clients.store import followed_groups
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.fleet.actions import NOBODY, Action, Step, Visitor, approval_action, failure_steps, shown_steps
from pulsar_fleet.fleet.layout import PHASES, RUN_STATES, Frame, Links, age, part_of, render
from pulsar_fleet.fleet.prepared_run import Errand, may_return, refused_runs
from pulsar_fleet.ledger.ledger import MIGRATIONS, Ledger
from pulsar_fleet.ledger.rows import RecordedPhase, RecordedRun, utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import runs
from pulsar_fleet.migration.artefacts import DRAIN_STATE, WAVES
from pulsar_fleet.migration.drain.forecast import Forecast
from pulsar_fleet.migration.drain.state import DrainState, NamespaceState
from pulsar_fleet.migration.model import Moves, Phase, is_reversible
from pulsar_fleet.migration.waves.planner import Wave, WavePlan
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.report.migration_timeline import migration_picture, no_picture_text
from pulsar_fleet.report.page import PAGE, html_text, svg_element


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
    :param can_return: whether it was the last to lead the clients of a group, which nothing has completed.
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
    can_return: bool = False

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
        can_return=any(one.published.run == run.id and one.can_return for one in followed_groups(run.ledger)),
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


PAGE_SIZE = 100
_REVERSIBLE = frozenset(phase.value for phase in Phase if is_reversible(phase))
_OVER = frozenset(
    {Phase.FINISHED.value, Phase.CLEANED.value, Phase.ABORTED.value, Phase.INCOMPLETE.value, Phase.MOVED.value}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationView:
    """Which namespaces are shown.

    :param number: of the page, from 1.
    :param live: see `Frame`.
    """

    number: int = 1
    live: bool = False


def migration_page(records: MigrationRecords, links: Links, view: MigrationView, visitor: Visitor = NOBODY) -> str:
    """The page as HTML."""
    run = records.run
    query: dict[str, str | int] = {"run": run.run_id, "page": view.number}
    frame = Frame(here=run.run_id, links=links, read_at=records.read_at, query=query, live=view.live)
    part = part_of(sorted(records.newest), view.number, PAGE_SIZE)
    symbol, css = RUN_STATES.get(run.state, ("…", "open"))
    return render(
        "migration.html",
        frame,
        _summary(records),
        state=f"{symbol} {run.state}",
        css=css,
        headline=_headline(records),
        actions=[(row.text, shown_steps(row.steps, links, visitor)) for row in _actions(records, links, visitor)],
        picture=_picture(records),
        no_picture=html_text(no_picture_text()),
        waves=[_wave(row, links, records) for row in records.waves],
        namespaces=[_namespace(records, name) for name in part.rows],
        shown=f"{len(part.rows):,} of {counted(part.matching, 'namespace')}",
        pages=list(part.numbers(frame)),
        incidents=_incidents(records),
        report=links.report(run.run_id) if records.has_report else "",
        evidence=links.evidence(run.run_id),
        airflow=links.run(run.run_id),
    )


def _summary(records: MigrationRecords) -> str:
    began = f"Began {age(utc(records.run.started_at), records.read_at)} ago."
    polled = max((row.samples[-1].at for row in records.drain.namespaces.values() if row.samples), default=None)
    if polled is None:
        return began
    return f"{began} Backlogs were read {age(datetime.fromtimestamp(polled, UTC), records.read_at)} ago."


def _actions(records: MigrationRecords, links: Links, visitor: Visitor) -> list[Action]:
    """What a person may have to do about this run: answer, see to what failed, abort."""
    run = records.run
    actions = [approval_action(approval) for approval in visitor.approvals if approval.run_id == run.run_id]
    if run.state == "failed":
        refused = (run.run_id,) if records.waivable else ()
        actions.append(Action(text="The run failed", steps=failure_steps(run, links, refused)))
    phases = {entry.phase for entry in records.newest.values()}
    # After a return the rest of a run that has ended can be undone.
    has_returned = any(entry.phase == Phase.MOVED for entry in records.phases) and Phase.ABORTED.value not in phases
    if phases and (has_returned or not run.over) and all(phase in _REVERSIBLE for phase in phases):
        step = Step(label="Abort it", prepares=(Errand.ABORT, run.run_id))
        actions.append(Action(text="An abort still undoes everything", steps=(step,)))
    if phases == {Phase.MOVED.value} and may_return(run.run_id) and records.can_return:
        step = Step(label="Move the clients back", prepares=(Errand.RETURN, run.run_id))
        actions.append(Action(text="The applications can return", steps=(step,)))
    return actions


def _headline(records: MigrationRecords) -> str:
    """Where the wave is, what is left to drain, and when that will have ended."""
    newest = records.newest
    done = sum(entry.phase in _OVER for entry in newest.values())
    moves = f" from {records.moves.blue} to {records.moves.green}" if records.moves else ""
    wave = f"Wave {records.number} of {len(records.waves)}" if records.waves else "Before the plan of waves"
    first = f"{wave}: {done:,} of {counted(len(newest), 'namespace')}{moves} done"
    draining = _draining(records)
    if not draining:
        return f"{first}."
    left = sum(row.samples[-1].entries for row in draining.values())
    expected = [forecast for name in draining if (forecast := _forecast(records, name))]
    if len(expected) < len(draining):
        return f"{first}; backlog {counted(left, 'entry')}, its end is not known yet."
    last = max(expected, key=lambda forecast: forecast.end)
    return f"{first}; backlog {counted(left, 'entry')}, {_end(last, records.read_at)}."


def _draining(records: MigrationRecords) -> Mapping[str, NamespaceState]:
    """The namespaces with a backlog on the old cluster."""
    rows = records.drain.namespaces.items()
    return {name: row for name, row in rows if row.ended is None and row.samples and row.samples[-1].entries}


def _forecast(records: MigrationRecords, name: str) -> Forecast | None:
    row = _draining(records).get(name)
    return row.forecasts[-1] if row and row.forecasts else None


def _end(expected: Forecast, now: datetime) -> str:
    """`done in about 2 min 20 s (± 30 s)`, counted from now."""
    seconds = max(0.0, expected.end - now.timestamp())
    return f"done in about {duration(seconds)} (± {duration(expected.margin)})"


def _picture(records: MigrationRecords) -> Markup | str:
    drain = records.drain.namespaces
    samples = {name: [(sample.at, sample.entries) for sample in row.samples] for name, row in drain.items()}
    forecasts = {name: expected for name in drain if (expected := _forecast(records, name))}
    now = records.read_at if records.run.state == "running" else None
    picture = migration_picture(records.phases, samples, forecasts, now)
    return svg_element(picture) if picture else ""


def _wave(row: WaveRun, links: Links, records: MigrationRecords) -> dict[str, str]:
    symbol, css = RUN_STATES.get(row.run.state, ("…", "open")) if row.run else ("○", "quiet")
    began = f"{age(utc(row.run.started_at), records.read_at)} ago" if row.run else ""
    here = row.run is not None and row.run.run_id == records.run.run_id
    return {
        "number": f"{row.wave.number}{' (canary)' if row.wave.is_canary else ''}",
        "state": f"{symbol} {row.run.state if row.run else 'planned'}",
        "css": css,
        "began": began,
        "namespaces": f"{len(row.wave.members):,}",
        "topics": f"{row.wave.total('topics'):,}",
        "clients": f"{row.wave.total('producers') + row.wave.total('consumers'):,}",
        "link": links.migration(row.run.run_id) if row.run and not here else "",
    }


def _namespace(records: MigrationRecords, name: str) -> dict[str, str]:
    entry, drain = records.newest[name], records.drain.namespaces.get(name)
    symbol, css = PHASES.get(entry.phase, ("…", "open"))
    expected = _forecast(records, name)
    return {
        "name": name,
        "phase": f"{symbol} {entry.phase}",
        "css": css,
        "since": f"{age(utc(entry.at), records.read_at)} ago",
        "backlog": f"{drain.samples[-1].entries:,}" if drain and drain.samples else "",
        "rate": f"{expected.rate:,.0f}" if expected else "",
        "end": _end(expected, records.read_at) if expected else "",
        "undo": _undo(entry),
    }


def _undo(entry: RecordedPhase) -> str:
    if entry.phase not in {phase.value for phase in Phase}:
        return ""
    if entry.phase == Phase.MOVED:
        return "return_clients leads the applications back"
    return "abort undoes everything" if is_reversible(Phase(entry.phase)) else "point of no return passed"


def _incidents(records: MigrationRecords) -> Sequence[dict[str, str]]:
    """Those that are not over first."""
    rows = [(name, incident) for name, row in records.drain.namespaces.items() for incident in row.incidents.values()]
    rows.sort(key=lambda pair: (pair[1]["outcome"] == "over", pair[0], pair[1]["first"]))
    return [
        {
            "namespace": name,
            "kind": str(incident["kind"]),
            "state": "✓ over" if incident["outcome"] == "over" else "✗ not over",
            "css": "good" if incident["outcome"] == "over" else "bad",
            "sentence": str(incident.get("sentence") or ""),
            "remedied": str(incident.get("remediated") or "Nothing was changed for it."),
            "since": f"{age(datetime.fromtimestamp(float(incident['first']), UTC), records.read_at)} ago",
        }
        for name, incident in rows
    ]
