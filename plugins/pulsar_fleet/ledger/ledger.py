"""The ledger: the records of runs in SQL, readable after Airflow has deleted its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotFound, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.artefacts import LEDGER_VARIABLE, ledger_url
from pulsar_fleet.ledger.audit import (
    CHAIN_LOCK,
    CHANGE,
    FACT,
    INTENT,
    MIGRATION_LOCK,
    PHASE,
    RUN,
    VERDICT,
    append,
    lock,
    record_digest,
    run_digest,
)
from pulsar_fleet.ledger.rows import (
    Intent,
    NewChange,
    RecordedChange,
    RecordedFact,
    RecordedPhase,
    RecordedRun,
    RecordedVerdict,
)
from pulsar_fleet.ledger.tables import changes, facts, intents, phases, runs, verdicts

_NOT_OURS = "name another file in {variable}, or move this one away: a new ledger is then created"
_SET = f"set {LEDGER_VARIABLE} to sqlite:///…/ledger.db or postgresql://…"
_RIGHTS = "give this process the right to write it and its folder, or name another database in {variable}"
_CAUSES: Mapping[str, tuple[type[FleetError], str]] = {
    "is full": (Unavailable, "the disk is full: free some space, then run again"),
    "no space left": (Unavailable, "the disk is full: free some space, then run again"),
    "is locked": (Unavailable, "another process holds it for more than 30 s: let that process end, then run again"),
    "readonly": (InvalidRequest, f"it is read-only: {_RIGHTS}"),
    "read-only": (InvalidRequest, f"it is read-only: {_RIGHTS}"),
    "permission denied": (InvalidRequest, f"permission denied: {_RIGHTS}"),
    "unable to open": (InvalidRequest, f"it cannot be opened: {_RIGHTS}"),
    "not a database": (InvalidRequest, f"it is not a database: {_NOT_OURS}"),
    "malformed": (InvalidRequest, "it is damaged: restore it from a backup"),
    "disk i/o error": (InvalidRequest, "its disk has an error: check the disk"),
}
"""Part of the driver's message, in lower case → the error and its sentence."""


def parsed_url(text: str) -> sa.URL:
    """The URL of a ledger; `InvalidRequest` for a text that is none, without its password."""
    try:
        return sa.make_url(text)
    except sa.exc.ArgumentError as error:
        raise InvalidRequest(f"The ledger cannot be opened: it is not a URL; {_SET}.") from error
    except ValueError as error:
        raise InvalidRequest(f"The ledger cannot be opened: its port is not a number; {_SET}.") from error


def created_engine(url: sa.URL, options: Mapping[str, Any]) -> sa.Engine:
    """The database of a URL, not connected yet.

    :raises InvalidRequest: SQLAlchemy has no such database, or its driver is not installed.
    """
    try:
        return sa.create_engine(url, **options)
    except sa.exc.NoSuchModuleError as error:
        raise InvalidRequest(
            f"The ledger cannot be opened: {url.drivername!r} is no database of SQLAlchemy; {_SET}."
        ) from error
    except ImportError as error:
        raise InvalidRequest(f"{LEDGER_VARIABLE} needs the package {error.name!r}, which is not installed.") from error


def explain_errors(engine: sa.Engine) -> None:
    """From now on every failure of this database that an operator can remove is a `FleetError`.

    Others, such as violated constraints, are raised by SQLAlchemy as before.
    """
    name = engine.url.render_as_string(hide_password=True)

    @sa.event.listens_for(engine, "handle_error")
    def explain(context: sa.ExceptionContext) -> None:
        problem = database_problem(name, context.original_exception)
        if problem is None and isinstance(context.sqlalchemy_exception, sa.exc.OperationalError):
            problem = Unavailable(f"The ledger {name} cannot be used: {_line(context.original_exception)}.")
        if problem is not None:
            raise problem from context.original_exception


def database_problem(name: str, error: BaseException) -> FleetError | None:
    """The error that an operator can act on; None for others."""
    text = str(error).lower()
    for part, (kind, cause) in _CAUSES.items():
        if part in text:
            return kind(f"The ledger {name} cannot be used: {cause.format(variable=LEDGER_VARIABLE)}.")
    return None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


NEWEST = "0009"
MIGRATIONS = ("migrate_namespaces", "fail_back_namespaces")
"""The procedures that reserve namespaces while they run."""

_MIGRATING = sa.and_(runs.c.state == "running", runs.c.procedure.in_(MIGRATIONS))
Record = TypeVar("Record", Intent, RecordedChange, RecordedFact, RecordedPhase, RecordedRun, RecordedVerdict)
_LOCK_WAIT_SECONDS = 30
_NAME_LENGTH = 250
# Alembic's own table.
_VERSIONS = sa.table("fleet_ledger_version", sa.column("version_num"))


class Ledger:
    """Runs, changes, phases, facts and verdicts. Safe for several processes; each call is one transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str | None = None) -> Self:
        """Open the ledger at `url` (SQLAlchemy; default PULSAR_FLEET_LEDGER) and migrate its tables.

        A second call changes nothing.

        :raises InvalidRequest: the URL cannot be used, or the database cannot be written.
        :raises Unavailable: the database does not answer, or its disk is full.
        """
        parsed = parsed_url(url or ledger_url())
        options: dict[str, Any] = {"poolclass": sa.NullPool}
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            # `file:/srv/ledger.db?mode=ro` is a URI of SQLite, whose folder exists or whose error is SQLite's.
            if not parsed.database.startswith("file:"):
                _make_folder(Path(parsed.database).parent)
            options["connect_args"] = {"timeout": _LOCK_WAIT_SECONDS}
        engine = created_engine(parsed, options)
        explain_errors(engine)
        _migrate(engine)
        return cls(engine)

    @property
    def engine(self) -> sa.Engine:
        """The database, for the stores of other modules."""
        return self._engine

    def start_run(self, run_id: str, procedure: str, conf: JsonObject, requested_by: str | None = None) -> None:
        """Record the start of a run. A second call for the same run (a retried task) changes nothing.

        :param requested_by: the user who asked for it; None of a part of another run.
        """
        with self._writing() as connection:
            existing = connection.execute(sa.select(runs.c.run_id).where(runs.c.run_id == run_id)).first()
            if existing is None:
                row = {"run_id": run_id, "procedure": procedure, "conf": conf, "started_at": _now(), "state": "running"}
                row["requested_by"] = requested_by and requested_by[:_NAME_LENGTH]
                connection.execute(runs.insert().values(row))
                _append_state(connection, run_id, "running")

    def resume_run(self, run_id: str) -> None:
        """Record that a run goes on after a failed attempt; it reserves its namespaces again."""
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(ended_at=None, state="running"))
            _append_state(connection, run_id, "running")

    def finish_run(self, run_id: str, state: str) -> None:
        """Record the end of a run: `succeeded` or `failed`; later `undone`."""
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(ended_at=_now(), state=state))
            _append_state(connection, run_id, state)

    def run(self, run_id: str) -> RecordedRun | None:
        """The request and the state of a run; None if the ledger has no such run."""
        rows = self._read(RecordedRun, runs, runs.c.run_id == run_id)
        return rows[0] if rows else None

    def require_run(self, run_id: str) -> RecordedRun:
        """The same of a run that a person named.

        :raises NotFound: the ledger has no such run.
        """
        if (recorded := self.run(run_id)) is None:
            raise NotFound(f"The ledger has no run {run_id!r}: name it as the Fleet page and pulsar-fleet runs do.")
        return recorded

    def runs_below(self, run_id: str) -> Sequence[RecordedRun]:
        """A run, then those that it recorded below its name, such as `RUN/contents`, in their order."""
        below = runs.c.run_id.startswith(f"{run_id}/", autoescape=True)
        # A database sorts texts by a collation of its own; evidence is compared in this order.
        found = self._read(RecordedRun, runs, sa.or_(runs.c.run_id == run_id, below))
        return sorted(found, key=lambda row: row.run_id)

    def newest_runs(self, count: int) -> Sequence[RecordedRun]:
        """The runs that began last, newest first."""
        return self._read(RecordedRun, runs, sa.true(), order=runs.c.started_at.desc(), limit=count)

    def last_run_of(self, procedure: str) -> RecordedRun | None:
        """The run of a procedure that began last; None if there is none."""
        condition, order = runs.c.procedure == procedure, runs.c.started_at.desc()
        return next(iter(self._read(RecordedRun, runs, condition, order=order, limit=1)), None)

    def migrations(self) -> Sequence[RecordedRun]:
        """The migrations and failbacks that the ledger records as running."""
        return self._read(RecordedRun, runs, _MIGRATING, order=runs.c.run_id)

    def in_migration(self) -> frozenset[str]:
        """The namespaces for which a running migration has recorded a phase: their policies differ on purpose."""
        query = sa.select(phases.c.namespace).where(phases.c.run_id.in_(sa.select(runs.c.run_id).where(_MIGRATING)))
        with self._engine.connect() as connection:
            return frozenset(connection.scalars(query.distinct()))

    def record(self, run_id: str, *, new_intents: Sequence[Intent] = (), new_changes: Sequence[NewChange] = ()) -> None:
        """Append intents and changes in one transaction."""
        with self._writing() as connection:
            for kind, table, rows in ((INTENT, intents, new_intents), (CHANGE, changes, new_changes)):
                values = [{"run_id": run_id, "at": _now(), **asdict(row)} for row in rows]
                _append_rows(connection, run_id, kind, table, values)

    def intents(self, run_id: str) -> Sequence[Intent]:
        """The writes that the run intended, in the order in which they began, with or without success."""
        return self._read(Intent, intents, intents.c.run_id == run_id, order=intents.c.id)

    def changes(self, run_id: str) -> Sequence[RecordedChange]:
        """The run's changes, oldest first."""
        return self._read(RecordedChange, changes, changes.c.run_id == run_id, order=changes.c.id)

    def has_intents(self, run_id: str) -> bool:
        """Whether the run intended a write, so that it can be undone."""
        return self._has(intents, intents.c.run_id == run_id)

    def has_written(self, run_id: str, *, applied: str, before: Collection[str]) -> bool:
        """Whether a run, or one below its name, intended or made a change, or has a namespace in a phase of its own.

        :param applied: the outcome of a change that was made.
        :param before: the phases in which nothing has been written yet.
        """

        def of_run(table: sa.Table) -> sa.ColumnElement[bool]:
            return sa.or_(table.c.run_id == run_id, table.c.run_id.startswith(f"{run_id}/", autoescape=True))

        return (
            self._has(intents, of_run(intents))
            or self._has(changes, of_run(changes), changes.c.outcome == applied)
            or self._has(phases, of_run(phases), phases.c.phase.not_in(before))
        )

    def enter_phase(self, run_id: str, namespace: str, phase: str, detail: Json = None) -> None:
        """Record that a namespace entered `phase`. A second call for the same phase (a retried task) adds nothing."""
        with self._writing() as connection:
            newest = connection.execute(
                sa.select(phases.c.phase)
                .where(phases.c.run_id == run_id, phases.c.namespace == namespace)
                .order_by(phases.c.id.desc())
            ).first()
            if newest is None or newest.phase != phase:
                row = {"run_id": run_id, "namespace": namespace, "phase": phase, "detail": detail, "at": _now()}
                _append_rows(connection, run_id, PHASE, phases, [row])

    def phases(self, run_id: str) -> Sequence[RecordedPhase]:
        """The phases of all namespaces of the run, oldest first."""
        return self._read(RecordedPhase, phases, phases.c.run_id == run_id, order=phases.c.id)

    def entered(self, run_id: str, namespace: str, phase: str | None = None) -> bool:
        """Whether a namespace entered `phase` in a run; with None, whether it entered any phase."""
        wanted = [] if phase is None else [phases.c.phase == phase]
        return self._has(phases, phases.c.run_id == run_id, phases.c.namespace == namespace, *wanted)

    def _has(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> bool:
        with self._engine.connect() as connection:
            return connection.execute(sa.select(table.c.id).where(*conditions).limit(1)).first() is not None

    def last_phase(self, namespace: str, run_id: str | None = None) -> str | None:
        """The newest phase of a namespace in a run, or in any; None if it entered none."""
        with self._engine.connect() as connection:
            query = sa.select(phases.c.phase).where(phases.c.namespace == namespace)
            if run_id is not None:
                query = query.where(phases.c.run_id == run_id)
            newest = connection.execute(query.order_by(phases.c.id.desc())).first()
        return str(newest.phase) if newest else None

    def last_run_in(self, namespace: str, phase: str | None = None) -> str | None:
        """The newest run in which a namespace entered `phase`, or any; None if there is none."""
        wanted = [] if phase is None else [phases.c.phase == phase]
        return self._newest_run(phases.c.namespace == namespace, *wanted)

    def newest_phase(self, namespace: str, phase: str) -> RecordedPhase | None:
        """The newest time that a namespace entered a phase, in any run; None if it never did."""
        condition = (phases.c.namespace == namespace) & (phases.c.phase == phase)
        return next(iter(self._read(RecordedPhase, phases, condition, order=phases.c.id.desc(), limit=1)), None)

    def run_behind(self, run_id: str, namespace: str, *, reading: str, undone: str) -> str | None:
        """The newest other run that has changed a namespace after this one did, and was not undone.

        :param reading: the phase in which a run has changed nothing.
        :param undone: the last phase of a run that was undone.
        """
        of_namespace, changes = phases.c.namespace == namespace, phases.c.phase.not_in((reading, undone))
        newest = sa.select(sa.func.max(phases.c.id)).where(phases.c.run_id == run_id, of_namespace, changes)
        last = sa.select(sa.func.max(phases.c.id)).where(of_namespace, phases.c.phase != reading)
        undone_runs = sa.select(phases.c.run_id).where(
            phases.c.id.in_(last.group_by(phases.c.run_id)), phases.c.phase == undone
        )
        return self._newest_run(
            of_namespace,
            changes,
            phases.c.run_id != run_id,
            phases.c.run_id.not_in(undone_runs),
            phases.c.id > newest.scalar_subquery(),
        )

    def _newest_run(self, *conditions: sa.ColumnElement[bool]) -> str | None:
        query = sa.select(phases.c.run_id).where(*conditions).order_by(phases.c.id.desc()).limit(1)
        with self._engine.connect() as connection:
            return connection.scalar(query)

    def record_fact(self, run_id: str, kind: str, content: JsonObject) -> None:
        """Record what is known of a run besides its writes; what equals the newest fact of its kind adds nothing."""
        with self._writing() as connection:
            query = sa.select(facts.c.content).where(facts.c.run_id == run_id, facts.c.kind == kind)
            newest = connection.scalar(query.order_by(facts.c.id.desc()).limit(1))
            if newest != content:
                row = {"run_id": run_id, "kind": kind, "content": content, "at": _now()}
                _append_rows(connection, run_id, FACT, facts, [row])

    def facts(self, run_id: str, kind: str) -> Sequence[RecordedFact]:
        """The facts of a run of one kind, oldest first."""
        return self._read(
            RecordedFact, facts, sa.and_(facts.c.run_id == run_id, facts.c.kind == kind), order=facts.c.id
        )

    def runs_with_facts(self, kind: str) -> list[str]:
        """The ids of the runs that have a fact of this kind, in their order."""
        query = sa.select(facts.c.run_id).where(facts.c.kind == kind).distinct().order_by(facts.c.run_id)
        with self._engine.connect() as connection:
            return [*connection.scalars(query)]

    def record_verdict(
        self, run_id: str, scope: str, *, verdict: str, messages: int, summary: str, artefact: JsonObject | None
    ) -> None:
        """Record a verdict; a second one for the same run and scope (a retried task) replaces the first."""
        row = {
            "run_id": run_id,
            "scope": scope,
            "verdict": verdict,
            "messages": messages,
            "summary": summary,
            "artefact": artefact,
            "at": _now(),
        }
        with self._writing() as connection:
            connection.execute(verdicts.delete().where(verdicts.c.run_id == run_id, verdicts.c.scope == scope))
            connection.execute(verdicts.insert().values(row))
            append(connection, run_id, [(VERDICT, scope, record_digest(row))])

    def verdicts(self, run_id: str) -> Sequence[RecordedVerdict]:
        """The run's verdicts, by scope."""
        found = self._read(RecordedVerdict, verdicts, verdicts.c.run_id == run_id)
        return sorted(found, key=lambda row: row.scope)

    def verdicts_of(self, scope: str, newest: int = 20) -> Sequence[RecordedVerdict]:
        """The verdicts of all runs for one scope, newest first."""
        order = verdicts.c.at.desc()
        return self._read(RecordedVerdict, verdicts, verdicts.c.scope == scope, order=order, limit=newest)

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that may append to the audit chain."""
        with self._engine.begin() as connection:
            lock(connection)
            yield connection

    def _read(
        self,
        record: type[Record],
        table: sa.Table,
        condition: sa.ColumnElement[bool],
        *,
        order: sa.ColumnElement[Any] | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        columns = [table.c[column.name] for column in fields(record)]
        query = sa.select(*columns).where(condition).order_by(order).limit(limit)
        with self._engine.connect() as connection:
            return [record(**row) for row in connection.execute(query).mappings()]


def _append_state(connection: sa.Connection, run_id: str, state: str) -> None:
    """Add a state of a run to the audit chain, if the ledger has the run."""
    row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).mappings().first()
    if row is not None:
        append(connection, run_id, [(RUN, state, run_digest(row, state))])


def _append_rows(
    connection: sa.Connection, run_id: str, kind: str, table: sa.Table, rows: Sequence[dict[str, Any]]
) -> None:
    """Insert rows, with an entry of the audit chain for each."""
    if rows:
        insert = table.insert().returning(table.c.id, sort_by_parameter_order=True)
        numbers = connection.scalars(insert, rows).all()
        entries = [(kind, str(number), record_digest(row)) for number, row in zip(numbers, rows, strict=True)]
        append(connection, run_id, entries)


def _now() -> datetime:
    return datetime.now(UTC)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"The ledger's folder {str(folder)!r} cannot be created: {error.strerror}. "
            f"Name another place in {LEDGER_VARIABLE}, or in AIRFLOW_HOME."
        ) from error


def _migrate(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        has_versions = sa.inspect(connection).has_table(_VERSIONS.name)
        if has_versions and connection.scalar(sa.select(_VERSIONS.c.version_num)) == NEWEST:
            return
    # The import of Alembic takes a third of a second: a process with a current ledger does not pay for it.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    with engine.begin() as connection:
        # Of two processes that open a new ledger at the same time, one creates the tables. A process of an earlier
        # release may append to the chain now, and a migration may too.
        lock(connection, MIGRATION_LOCK, CHAIN_LOCK)
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise InvalidRequest(
                f"The ledger {engine.url.render_as_string(hide_password=True)} was written by another release of this "
                f"package ({error}): use that release, or name another database in {LEDGER_VARIABLE}."
            ) from error
