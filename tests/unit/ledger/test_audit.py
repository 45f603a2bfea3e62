"""The audit chain agrees with the records of the ledger, and every later change of either is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from pulsar_fleet.ledger.audit import check_chain, entries_of
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent, NewChange

RUN = "migrate_namespaces/manual__1"
PARTS = {"change_id": "1f", "cluster": "green", "before": {"ttl": 1.5}, "after": {"ttl": 2}}


@pytest.fixture
def ledger(new_database: Callable[[], str]) -> Ledger:
    """A ledger with a finished run that has a record of each kind."""
    ledger = Ledger.open(new_database())
    ledger.start_run(RUN, "migrate_namespaces", {"namespaces": ["acme/orders"]})
    change = NewChange(**PARTS, resource="ttl", action="set", hazard="none", outcome="applied")
    intents = [Intent(**PARTS, kind="policy", name="acme/orders", field=field) for field in ("ttl", "size")]
    ledger.record(RUN, new_intents=intents, new_changes=[change, change])
    for phase in ("prepared", "cut_over"):
        ledger.enter_phase(RUN, "acme/orders", phase, {"pause": 1.25})
    for messages in (7, 8):
        ledger.record_verdict(
            RUN, "acme/orders", verdict="PASS", messages=messages, summary="", artefact={"sha256": "9c"}
        )
    ledger.finish_run(RUN, "failed")
    ledger.resume_run(RUN)
    ledger.finish_run(RUN, "succeeded")
    return ledger


def problems(ledger: Ledger) -> tuple[str, ...]:
    return check_chain(ledger.engine).problems


def execute(ledger: Ledger, statement: str) -> None:
    with ledger.engine.begin() as connection:
        assert connection.execute(sa.text(statement)).rowcount


def test_the_chain_of_a_ledger_has_an_entry_for_each_record_and_agrees(ledger: Ledger) -> None:
    result = check_chain(ledger.engine)
    assert (result.problems, result.entries) == ((), 14)
    assert result.head == entries_of(ledger.engine)[-1].digest
    assert [entry.key for entry in entries_of(ledger.engine, [RUN]) if entry.kind == "run"] == [
        "running",
        "failed",
        "running",
        "succeeded",
    ]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE fleet_runs SET conf = '{}'", f"Run {RUN} was altered."),
        ("UPDATE fleet_runs SET state = 'failed'", f"Run {RUN} was altered."),
        ("DELETE FROM fleet_runs", f"Run {RUN} was removed."),
        ("UPDATE fleet_changes SET after = '3' WHERE id = 2", f"change 2 of run {RUN} was altered."),
        ("UPDATE fleet_changes SET at = '2026-01-01 00:00:00' WHERE id = 1", f"change 1 of run {RUN} was altered."),
        ("DELETE FROM fleet_changes WHERE id = 2", "change 2 was removed."),
        ("DELETE FROM fleet_intents WHERE id = 1", "intent 1 was removed."),
        ("UPDATE fleet_phases SET phase = 'drained' WHERE id = 2", f"phase 2 of run {RUN} was altered."),
        ("UPDATE fleet_verdicts SET verdict = 'FAIL'", f"The verdict of run {RUN} for acme/orders was altered."),
        ("DELETE FROM fleet_verdicts", f"The verdict of run {RUN} for acme/orders was removed."),
        (
            "INSERT INTO fleet_phases SELECT 3, run_id, namespace, 'retired', detail, at FROM fleet_phases WHERE id=1",
            f"phase 3 of run {RUN} has no entry in the audit chain: it was added.",
        ),
    ],
)
def test_a_record_that_was_altered_removed_or_added_is_named(ledger: Ledger, statement: str, problem: str) -> None:
    execute(ledger, statement)
    assert problems(ledger) == (problem,)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fleet_audit SET content = digest WHERE number = 5",
        "UPDATE fleet_audit SET run_id = 'other' WHERE number = 5",
        "UPDATE fleet_audit SET digest = content WHERE number = 13",
        "DELETE FROM fleet_audit WHERE number = 1",
        "DELETE FROM fleet_audit WHERE number = 6",
    ],
)
def test_an_entry_that_was_altered_or_removed_is_found(ledger: Ledger, statement: str) -> None:
    execute(ledger, statement)
    assert problems(ledger)


def test_a_record_that_is_removed_with_its_entry_breaks_the_chain(ledger: Ledger) -> None:
    number = next(entry.number for entry in entries_of(ledger.engine) if (entry.kind, entry.key) == ("change", "1"))
    execute(ledger, "DELETE FROM fleet_changes WHERE id = 1")
    execute(ledger, f"DELETE FROM fleet_audit WHERE number = {number}")
    assert problems(ledger) == (
        f"Entry {number + 1} of the audit chain was altered, or an entry before it was added or removed.",
    )


def test_records_of_an_earlier_release_are_not_part_of_the_chain(ledger: Ledger) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE fleet_audit"))
        later = ("ix_fleet_observations_scan", "ix_fleet_observations_name", "ix_fleet_resource_versions_kind")
        for index in ("ix_fleet_phases_namespace", "ix_fleet_verdicts_scope", *later):
            connection.execute(sa.text(f"DROP INDEX {index}"))
        for table in ("fleet_observations", "fleet_resource_versions"):
            connection.execute(sa.text(f"DROP INDEX ix_{table}_digest"))
            connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN digest"))
        connection.execute(sa.text("DROP TABLE fleet_facts"))
        connection.execute(sa.text("ALTER TABLE fleet_runs DROP COLUMN requested_by"))
        connection.execute(sa.text("UPDATE fleet_ledger_version SET version_num = '0005'"))
    again = Ledger.open(str(ledger.engine.url))
    assert problems(again) == ()
    again.enter_phase(RUN, "acme/orders", "retired")
    again.finish_run(RUN, "undone")
    assert problems(again) == ()
    execute(again, "UPDATE fleet_phases SET phase = 'drained' WHERE id = 3")
    assert problems(again) == (f"phase 3 of run {RUN} was altered.",)


def test_processes_that_write_at_the_same_time_make_one_chain(ledger: Ledger, write: Callable[[int], str]) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", write(number), str(ledger.engine.url)]) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert problems(ledger) == ()
    assert check_chain(ledger.engine).entries == 14 + 4 * 25


@pytest.fixture
def write() -> Callable[[int], str]:
    return lambda number: (
        "import sys\n"
        "from pulsar_fleet.ledger.ledger import Ledger\n"
        "ledger = Ledger.open(sys.argv[1])\n"
        f"[ledger.enter_phase('run-{number}', 'acme/orders', str(phase)) for phase in range(25)]\n"
    )
