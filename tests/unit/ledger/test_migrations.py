"""A ledger of an earlier release is migrated when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger import ledger as ledger_module
from pulsar_fleet.ledger.event_store import EventStore, StoredDocument, field_digest
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import MergeBase, ReconciliationStore, StoredObservation
from pulsar_fleet.ledger.tables import metadata

NOW = datetime(2026, 11, 22, tzinfo=UTC)
RUN = "return_namespaces/manual__1"
NAMESPACE = {"kind": "namespace", "name": "acme/orders"}
FLEET = {"fleet": "blue+green", **NAMESPACE}
NewDatabase = Callable[[], str]
TOPIC = {"topic": "events", "cluster": "*", "version": 1, "at": NOW}


@pytest.fixture
def engine(new_database: NewDatabase) -> sa.Engine:
    """A ledger as revision 0004 left it, with a row in each table and of each kind that 0005 changes."""
    engine = sa.create_engine(new_database(), poolclass=sa.NullPool)
    migrate(engine, "0004")
    insert(engine, "fleet_runs", run_id=RUN, procedure="return_namespaces", conf={}, started_at=NOW, state="running")
    for phase in ("switched", "undone", "drained"):
        insert(engine, "fleet_phases", run_id=RUN, namespace="acme/orders", phase=phase, at=NOW)
    change = {"run_id": RUN, "change_id": "1f", "cluster": "green", "before": None, "after": {"ttl": 1}, "at": NOW}
    insert(engine, "fleet_intents", **change, kind="policy", name="acme/orders", field="ttl")
    insert(engine, "fleet_changes", **change, resource="ttl", action="set", hazard="none", outcome="applied")
    insert(engine, "fleet_verdicts", run_id=RUN, scope="acme/orders", verdict="PASS", messages=7, summary="", at=NOW)
    insert(engine, "fleet_agreements", **FLEET, document={"ttl": 1}, clusters=["blue"], gone=["green"], at=NOW)
    fields = {"seen": {"ttl": ["x", 0, 1, []]}, "expected": {}}
    insert(engine, "fleet_observations", **FLEET, cluster="blue", looked=7.5, fields=fields)
    sides = {"blue": {"value": 1}, "green": {"value": 2}}
    conflict = {"field": "ttl", "rule": "latest time", "winner": "blue", "sides": sides, "chosen": "green", "at": NOW}
    insert(engine, "fleet_conflicts", id="1f", run_id=RUN, **FLEET, **conflict, settled_at=None)
    insert(engine, "fleet_marks", **TOPIC, kind="look", name="", document={"topics": True})
    insert(engine, "fleet_marks", **TOPIC, kind="silent since", name="green", document={"since": None})
    return engine


def migrate(engine: sa.Engine, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(ledger_module.__file__).with_name("migrations")))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        (command.downgrade if revision < "0005" and has_newest(connection) else command.upgrade)(config, revision)


def has_newest(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table("fleet_merge_bases")


def insert(engine: sa.Engine, table: str, **values: Json) -> None:
    rows = sa.Table(table, sa.MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        connection.execute(rows.insert().values(**values))


def rows(engine: sa.Engine) -> dict[str, list[tuple[Any, ...]]]:
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        return {
            name: sorted(map(tuple, connection.execute(sa.select(table))), key=str)
            for name, table in tables.tables.items()
        }


def test_phases_and_procedures_of_an_earlier_release_get_their_new_names(engine: sa.Engine) -> None:
    ledger = Ledger.open(str(engine.url))
    assert [entry.phase for entry in ledger.phases(RUN)] == ["cut_over", "aborted", "drained"]
    assert [run.procedure for run in ledger.migrations()] == ["fail_back_namespaces"]
    assert ledger.in_migration() == {"acme/orders"}


def test_records_of_reconciliation_and_events_of_an_earlier_release_stay(engine: sa.Engine) -> None:
    ledger = Ledger.open(str(engine.url))
    store, item = ReconciliationStore(ledger, ("blue", "green")), ("namespace", "acme/orders")
    assert store.merge_bases() == {item: MergeBase(document={"ttl": 1}, clusters=("blue",), gone=("green",))}
    document = {"fields": {"ttl": ["x", 0, 1, []]}, "expected": {}}
    assert store.observations("blue") == {item: StoredObservation(7.5, document)}
    assert list(store.choices().values()) == [(item, "ttl", 2)]
    assert EventStore(ledger, "events", "*").load() == {
        ("scan", ""): StoredDocument(1, {"topics": True}),
        ("outage", "green"): StoredDocument(1, {"since": None}),
    }


def test_the_migrations_create_the_tables_that_the_code_uses(engine: sa.Engine) -> None:
    inspector = sa.inspect(Ledger.open(str(engine.url)).engine)
    for table in metadata.tables.values():
        assert {column["name"] for column in inspector.get_columns(table.name)} == set(table.columns.keys())


def test_a_downgrade_restores_the_old_names(engine: sa.Engine) -> None:
    Ledger.open(str(engine.url))
    migrate(engine, "0004")
    observations = sa.Table("fleet_observations", sa.MetaData(), autoload_with=engine)
    phases = sa.Table("fleet_phases", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        assert set(connection.scalars(sa.select(phases.c.phase))) == {"switched", "undone", "drained"}
        assert list(connection.scalar(sa.select(observations.c.fields))) == ["seen", "expected"]


def test_a_downgrade_and_a_second_upgrade_keep_every_row(engine: sa.Engine) -> None:
    at_0004 = rows(engine)
    assert not [name for name, content in at_0004.items() if not content]
    migrate(engine, "0005")
    at_0005 = rows(engine)
    migrate(engine, "0004")
    assert rows(engine) == at_0004
    migrate(engine, "0005")
    assert rows(engine) == at_0005


def test_what_an_earlier_release_observed_has_the_digest_of_this_one(engine: sa.Engine) -> None:
    opened = Ledger.open(engine.url.render_as_string(hide_password=False))
    with opened.engine.connect() as connection:
        digests = list(connection.scalars(sa.text("SELECT digest FROM fleet_observations")))
    assert digests == [field_digest({"fields": {"ttl": ["x", 7, 9, []]}})]
    assert digests != [None]
