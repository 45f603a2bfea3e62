"""The ledger: what runs did and saw, in SQL, readable after Airflow has forgotten them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from pulsar_fleet.cluster.errors import InvalidRequest, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.artefacts import LEDGER_VARIABLE, ledger_url
from pulsar_fleet.ledger.rows import Intent, NewChange, RecordedChange, RecordedPhase, RecordedRun, RecordedVerdict
from pulsar_fleet.ledger.tables import changes, intents, phases, runs, verdicts

NEWEST = "0004"
MIGRATIONS = ("migrate_namespaces", "fail_back_namespaces")
"""The procedures that hold namespaces while they run."""

_MIGRATING = sa.and_(runs.c.state == "running", runs.c.procedure.in_(MIGRATIONS))
_LOCK_WAIT_SECONDS = 30
# Alembic's own table.
_VERSIONS = sa.table("fleet_ledger_version", sa.column("version_num"))
# Any number will do that nobody else locks in the same database.
_POSTGRESQL_LOCK = 5_081_250_417


class Ledger:
    """Runs, changes, phases and verdicts. Safe for several processes; each call is one transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str | None = None) -> Self:
        """Open the ledger at `url` (SQLAlchemy; default PULSAR_FLEET_LEDGER) and bring its tables up to date.

        Opening again changes nothing. An unusable URL is `InvalidRequest`, a database that does not answer
        `Unavailable`.
        """
        chosen = url or ledger_url()
        try:
            parsed = sa.make_url(chosen)
        except sa.exc.ArgumentError as error:
            raise InvalidRequest(f"{LEDGER_VARIABLE} is not a SQLAlchemy URL: {error}.") from error
        options: dict[str, Any] = {"poolclass": sa.NullPool}
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            options["connect_args"] = {"timeout": _LOCK_WAIT_SECONDS}
        try:
            engine = sa.create_engine(parsed, **options)
        except ImportError as error:
            raise InvalidRequest(
                f"{LEDGER_VARIABLE} needs the package {error.name!r}, which is not installed."
            ) from error
        try:
            _migrate(engine)
        except sa.exc.OperationalError as error:
            raise Unavailable(f"The ledger ({LEDGER_VARIABLE}) cannot be opened: {error.orig}.") from error
        return cls(engine)

    @property
    def engine(self) -> sa.Engine:
        """The database, for records that have a module of their own."""
        return self._engine

    def start_run(self, run_id: str, procedure: str, conf: JsonObject) -> None:
        """Note that a run began. A second call for the same run (a retried task) keeps the first begin."""
        with self._engine.begin() as connection:
            known = connection.execute(sa.select(runs.c.run_id).where(runs.c.run_id == run_id)).first()
            if known is None:
                connection.execute(
                    runs.insert().values(
                        run_id=run_id, procedure=procedure, conf=conf, started_at=_now(), state="running"
                    )
                )

    def finish_run(self, run_id: str, state: str) -> None:
        """Note how a run ended: `succeeded` or `failed`; later `undone`."""
        with self._engine.begin() as connection:
            connection.execute(runs.update().where(runs.c.run_id == run_id).values(ended_at=_now(), state=state))

    def run(self, run_id: str) -> RecordedRun | None:
        """What was asked for in a run; None if there was none."""
        wanted = [runs.c[name] for name in RecordedRun.__slots__]
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(*wanted).where(runs.c.run_id == run_id)).mappings().first()
            return RecordedRun(**row) if row else None

    def migrations(self) -> Sequence[RecordedRun]:
        """The migrations and ways back that have not ended, as far as the ledger knows."""
        wanted = [runs.c[name] for name in RecordedRun.__slots__]
        with self._engine.connect() as connection:
            found = connection.execute(sa.select(*wanted).where(_MIGRATING).order_by(runs.c.run_id))
            return [RecordedRun(**row) for row in found.mappings()]

    def in_migration(self) -> frozenset[str]:
        """The namespaces that such a run has touched: their policies differ on purpose."""
        wanted = sa.select(phases.c.namespace).where(phases.c.run_id.in_(sa.select(runs.c.run_id).where(_MIGRATING)))
        with self._engine.connect() as connection:
            return frozenset(connection.scalars(wanted.distinct()))

    def record(self, run_id: str, *, intended: Sequence[Intent] = (), made: Sequence[NewChange] = ()) -> None:
        """Append intents and changes in one transaction: all of them are kept when this returns, or none."""
        with self._engine.begin() as connection:
            for table, rows in ((intents, intended), (changes, made)):
                if rows:
                    values = [{"run_id": run_id, "at": _now(), **asdict(row)} for row in rows]
                    connection.execute(table.insert(), values)

    def intents(self, run_id: str) -> Sequence[Intent]:
        """What the run was about to write, in the order in which it began, whether it was written or not."""
        wanted = [intents.c[name] for name in Intent.__slots__]
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(*wanted).where(intents.c.run_id == run_id).order_by(intents.c.id))
            return [Intent(**row) for row in rows.mappings()]

    def changes(self, run_id: str) -> Sequence[RecordedChange]:
        """The run's changes in the order in which they happened."""
        wanted = [changes.c[name] for name in RecordedChange.__slots__]
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(*wanted).where(changes.c.run_id == run_id).order_by(changes.c.id))
            return [RecordedChange(**row) for row in rows.mappings()]

    def enter_phase(self, run_id: str, namespace: str, phase: str, detail: Json = None) -> None:
        """Note that a namespace entered `phase`; again for the same phase (a retried task) adds nothing."""
        with self._engine.begin() as connection:
            newest = connection.execute(
                sa.select(phases.c.phase)
                .where(phases.c.run_id == run_id, phases.c.namespace == namespace)
                .order_by(phases.c.id.desc())
            ).first()
            if newest is None or newest.phase != phase:
                connection.execute(
                    phases.insert().values(run_id=run_id, namespace=namespace, phase=phase, detail=detail, at=_now())
                )

    def phases(self, run_id: str) -> Sequence[RecordedPhase]:
        """The run's phases in the order in which they were entered, of all its namespaces."""
        wanted = [phases.c[name] for name in RecordedPhase.__slots__]
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(*wanted).where(phases.c.run_id == run_id).order_by(phases.c.id))
            return [RecordedPhase(**row) for row in rows.mappings()]

    def entered(self, run_id: str, namespace: str, phase: str | None = None) -> bool:
        """Whether a namespace ever entered `phase` in a run, or with None any phase."""
        wanted = sa.select(phases.c.id).where(phases.c.run_id == run_id, phases.c.namespace == namespace)
        if phase is not None:
            wanted = wanted.where(phases.c.phase == phase)
        with self._engine.connect() as connection:
            return connection.execute(wanted.limit(1)).first() is not None

    def last_phase(self, namespace: str) -> str | None:
        """The phase that a namespace entered last, in any run; None if it never entered one."""
        with self._engine.connect() as connection:
            wanted = sa.select(phases.c.phase).where(phases.c.namespace == namespace)
            newest = connection.execute(wanted.order_by(phases.c.id.desc())).first()
        return str(newest.phase) if newest else None

    def record_verdict(
        self, run_id: str, scope: str, *, verdict: str, messages: int, summary: str, artefact: JsonObject | None
    ) -> None:
        """Keep a verdict; the same run and scope again (a retried task) replaces its own earlier one."""
        with self._engine.begin() as connection:
            connection.execute(verdicts.delete().where(verdicts.c.run_id == run_id, verdicts.c.scope == scope))
            connection.execute(
                verdicts.insert().values(
                    run_id=run_id,
                    scope=scope,
                    verdict=verdict,
                    messages=messages,
                    summary=summary,
                    artefact=artefact,
                    at=_now(),
                )
            )

    def verdicts(self, run_id: str) -> Sequence[RecordedVerdict]:
        """The run's verdicts, by scope."""
        wanted = [verdicts.c[name] for name in RecordedVerdict.__slots__]
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(*wanted).where(verdicts.c.run_id == run_id).order_by(verdicts.c.scope))
            return [RecordedVerdict(**row) for row in rows.mappings()]

    def verdicts_of(self, scope: str, newest: int = 20) -> Sequence[RecordedVerdict]:
        """The newest verdicts on one scope, of all runs, newest first."""
        wanted = [verdicts.c[name] for name in RecordedVerdict.__slots__]
        with self._engine.connect() as connection:
            rows = connection.execute(
                sa.select(*wanted).where(verdicts.c.scope == scope).order_by(verdicts.c.at.desc()).limit(newest)
            )
            return [RecordedVerdict(**row) for row in rows.mappings()]


def _now() -> datetime:
    return datetime.now(UTC)


def _migrate(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        known = sa.inspect(connection).has_table(_VERSIONS.name)
        if known and connection.scalar(sa.select(_VERSIONS.c.version_num)) == NEWEST:
            return
    # Importing Alembic takes a third of a second, which a ledger that is up to date can spare every process.
    from alembic import command
    from alembic.config import Config

    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            # Two processes that open a new ledger at once must not both create its tables.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
