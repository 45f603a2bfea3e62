"""The ledger and the artefact store: what is kept stays as it was, and again means once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.event_store import EventStore, StoredDocument
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import NewChange


@pytest.fixture
def ledger(new_database: Callable[[], str]) -> Ledger:
    return Ledger.open(new_database())


def test_a_phase_that_is_entered_again_by_a_retry_is_kept_once(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.enter_phase("run", "acme/orders", "prepared")
    assert [entry.phase for entry in ledger.phases("run")] == ["prepared"]


def test_phases_of_two_namespaces_do_not_mix(ledger: Ledger) -> None:
    ledger.enter_phase("run", "acme/orders", "prepared")
    ledger.enter_phase("run", "acme/audit", "prepared")
    assert {entry.namespace for entry in ledger.phases("run")} == {"acme/orders", "acme/audit"}


def test_a_change_keeps_both_values(ledger: Ledger) -> None:
    change = NewChange(
        change_id="1",
        cluster="green",
        resource="acme/orders",
        action="set retention",
        hazard="reversible",
        before={"minutes": 1},
        after={"minutes": 2},
        outcome="applied",
    )
    ledger.record("run", new_changes=(change,))
    (kept,) = ledger.changes("run")
    assert (kept.before, kept.after) == ({"minutes": 1}, {"minutes": 2})


def test_a_verdict_of_a_retried_task_replaces_its_own(ledger: Ledger) -> None:
    for verdict in ("inconclusive", "equal"):
        ledger.record_verdict("run", "acme/orders", verdict=verdict, messages=1, summary="", artefact=None)
    assert [entry.verdict for entry in ledger.verdicts("run")] == ["equal"]


def test_a_run_that_is_started_again_keeps_its_first_configuration(ledger: Ledger) -> None:
    ledger.start_run("run", "onboard_cluster", {"a": 1})
    ledger.start_run("run", "onboard_cluster", {"a": 2})
    run = ledger.run("run")
    assert run is not None
    assert (run.conf, run.state) == ({"a": 1}, "running")


def test_a_run_that_is_resumed_reserves_its_namespaces_again(ledger: Ledger) -> None:
    ledger.start_run("run", "migrate_namespaces", {})
    ledger.enter_phase("run", "acme/orders", "prepared")
    ledger.finish_run("run", "failed")
    assert ledger.in_migration() == frozenset()
    ledger.resume_run("run")
    assert ledger.in_migration() == {"acme/orders"}


def test_of_two_processes_that_read_the_same_marks_only_the_faster_writes(ledger: Ledger) -> None:
    faster, slower = (EventStore(ledger, "events", "blue") for _ in range(2))
    first, second = ("namespace", "acme/a"), ("namespace", "acme/b")
    assert faster.save({first: StoredDocument(0, {"value": 1})})
    assert not slower.save({second: StoredDocument(0, {"value": 2}), first: StoredDocument(0, {"value": 2})})
    assert faster.save({first: StoredDocument(1, {"value": 3})})
    assert not slower.save({second: StoredDocument(0, {"value": 4}), first: StoredDocument(1, {"value": 4})})
    assert slower.load() == {first: StoredDocument(2, {"value": 3})}
    assert EventStore(ledger, "events", "green").load() == {}


def test_an_unusable_ledger_url_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="PULSAR_FLEET_LEDGER"):
        Ledger.open("no url at all")


def test_processes_that_open_a_new_ledger_at_once_all_succeed(new_database: Callable[[], str]) -> None:
    url = new_database()
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_open_and_write, [url] * 4, range(4))) == [0, 1, 2, 3]


def test_an_artefact_reads_back(records: Path) -> None:
    store = Artefacts.open()
    assert store.read(store.write("run/1", "plan.json", b"{}")) == b"{}"


def test_a_reference_survives_json(records: Path) -> None:
    reference = Artefacts.open().write("run", "plan.json", b"{}")
    assert Reference.from_json(reference.to_json()) == reference


def test_an_altered_artefact_is_refused(records: Path) -> None:
    store = Artefacts.open()
    reference = store.write("run", "plan.json", b"{}")
    Path(reference.uri).write_bytes(b"[]")
    with pytest.raises(InvalidRequest, match="was altered"):
        store.read(reference)


def test_an_artefact_that_is_gone_is_missing(records: Path) -> None:
    store = Artefacts.open()
    reference = store.write("run", "plan.json", b"{}")
    Path(reference.uri).unlink()
    with pytest.raises(NotFound, match="cannot be read"):
        store.read(reference)


def test_an_unknown_kind_of_artefact_store_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="PULSAR_FLEET_ARTEFACTS 'nosuch://bucket'"):
        Artefacts.open("nosuch://bucket")


def _open_and_write(url: str, number: int) -> int:
    Ledger.open(url).enter_phase(f"run-{number}", "acme/orders", "checked")
    return number
