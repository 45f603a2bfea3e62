"""A prepared run is made from the records: what it is for, and nothing that somebody else wrote into a link."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.fleet.prepared_run import Errand, PreparedRun, prepare
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import conflicts
from pulsar_fleet.preflight.findings import Finding, Severity

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
RUN = "migrate_namespaces/manual__1"
RECONCILIATION = "reconcile_policies/scheduled__1"
CONF = {"clusters": ["pulsar_blue", "pulsar_green"], "selection": ["acme"], "authority": "merge", "mode": "report"}


@pytest.fixture
def ledger(new_database: Callable[[], str], records: Path) -> Ledger:
    return Ledger.open(new_database())


def prepared(ledger: Ledger, errand: Errand, about: str) -> PreparedRun:
    return prepare(errand, about, ledger, Artefacts.open(), "ann")


def store_movement(run: str) -> None:
    Artefacts.open().write_json(run, "movement.json", {"namespaces": ["acme/orders"]})


def finding(id_: str, severity: Severity = Severity.BLOCKER) -> dict[str, Any]:
    row = Finding(
        id=id_, severity=severity, resource="persistent://acme/orders/e", evidence="", consequence="", remedy=""
    )
    return dict(row.to_json())


def refuse(ledger: Ledger, *findings: dict[str, Any], waivers: list[dict[str, str]] | None = None) -> None:
    ledger.start_run(RUN, "migrate_namespaces", {"blue": "pulsar_blue", "waivers": waivers or []})
    Artefacts.open().write_json(RUN, "findings.json", list(findings))
    ledger.finish_run(RUN, "failed")


def test_a_conflict_is_settled_on_the_clusters_of_its_run(ledger: Ledger) -> None:
    ledger.start_run(RECONCILIATION, "reconcile_policies", CONF)
    row = {"id": "1f", "fleet": "f", "kind": "namespace", "name": "acme/orders", "field": "ttl", "winner": "blue"}
    sides = {"blue": 5, "green": 9}
    with ledger.engine.begin() as connection:
        connection.execute(
            conflicts.insert(), [{**row, "run_id": RECONCILIATION, "rule": "time", "sides": sides, "at": NOW}]
        )
    run = prepared(ledger, Errand.SETTLE, "1f=green")
    assert run.dag_id == "reconcile_policies"
    assert run.conf == {"clusters": CONF["clusters"], "mode": "repair", "choose": ["1f=green"]}
    assert "ttl of the namespace acme/orders" in run.consequence
    with pytest.raises(InvalidRequest, match="does not take part"):
        prepared(ledger, Errand.SETTLE, "1f=red")
    with pytest.raises(NotFound, match="No conflict"):
        prepared(ledger, Errand.SETTLE, "2f=green")


def test_drift_is_repaired_where_it_was_found(ledger: Ledger) -> None:
    ledger.start_run(RECONCILIATION, "reconcile_policies", CONF)
    run = prepared(ledger, Errand.REPAIR, RECONCILIATION)
    assert run.conf == {**CONF, "mode": "repair"}


def test_the_addresses_of_the_command_line_are_no_connections(ledger: Ledger) -> None:
    ledger.start_run("cli/reconcile-1", "reconcile_policies", {**CONF, "clusters": ["http://blue:8080"]})
    assert "clusters" not in prepared(ledger, Errand.REPAIR, "cli/reconcile-1").conf


def test_waivers_name_the_blockers_and_the_person_but_not_the_reason(ledger: Ledger) -> None:
    earlier = {"id": "clients-too-old", "who": "bob", "why": "they are restarted"}
    blockers = [finding("transactions-in-use"), finding("clients-too-old"), finding("hint", Severity.WARNING)]
    refuse(ledger, *blockers, waivers=[earlier])
    run = prepared(ledger, Errand.WAIVE, RUN)
    added = {"id": "transactions-in-use", "resource": "persistent://acme/orders/e", "who": "ann", "why": ""}
    assert run.conf == {"blue": "pulsar_blue", "waivers": [earlier, added]}
    assert run.first == ("waivers",)


@pytest.mark.parametrize("id_", ["same-cluster-name", "partitions-differ"])
def test_a_certain_loss_cannot_be_waived(ledger: Ledger, id_: str) -> None:
    refuse(ledger, finding("transactions-in-use"), finding(id_))
    with pytest.raises(InvalidRequest, match="No blocker"):
        prepared(ledger, Errand.WAIVE, RUN)


def test_only_a_migration_is_aborted(ledger: Ledger) -> None:
    ledger.start_run(RECONCILIATION, "reconcile_policies", CONF)
    ledger.start_run(RUN, "migrate_namespaces", {})
    assert prepared(ledger, Errand.ABORT, RUN).conf == {"run": RUN}
    with pytest.raises(InvalidRequest, match="not a migration"):
        prepared(ledger, Errand.ABORT, RECONCILIATION)
    with pytest.raises(NotFound, match="no run"):
        prepared(ledger, Errand.ABORT, "migrate_namespaces/2")


def test_a_move_of_airflow_is_completed_by_a_migration(ledger: Ledger) -> None:
    conf = {"origin": "pulsar_blue", "target": "pulsar_green", "group": "orders", "namespaces": ["acme/orders"]}
    ledger.start_run("move_clients/1", "move_clients", conf)
    ledger.start_run("return_clients/1", "return_clients", {"run": "move_clients/1"})
    for run in ("move_clients/1", "return_clients/1"):
        store_movement(run)
    made = prepared(ledger, Errand.COMPLETE, "move_clients/1")
    assert (made.dag_id, made.conf) == (
        "migrate_namespaces",
        {"blue": "pulsar_blue", "green": "pulsar_green", "namespaces": ["acme/orders"]},
    )
    with pytest.raises(InvalidRequest, match="is no move of Airflow"):
        prepared(ledger, Errand.COMPLETE, "return_clients/1")
    ledger.start_run(RUN, "migrate_namespaces", {"blue": "pulsar_b", "green": "pulsar_g", "namespaces": ["acme"]})
    store_movement(RUN)
    # Those that it moved, and not what its pattern means today.
    moved = {"blue": "pulsar_b", "green": "pulsar_g", "namespaces": ["acme/orders"]}
    assert prepared(ledger, Errand.COMPLETE, RUN).conf == moved


def test_only_a_move_of_airflow_is_taken_back(ledger: Ledger) -> None:
    for run in ("move_clients/1", "cli/move-clients-1"):
        ledger.start_run(run, "move_clients", {})
    ledger.start_run(RUN, "migrate_namespaces", {})
    for run in ("move_clients/1", "cli/move-clients-1"):
        store_movement(run)
    made = prepared(ledger, Errand.RETURN, "move_clients/1")
    assert (made.dag_id, made.conf) == ("return_clients", {"run": "move_clients/1"})
    for run in (RUN, "cli/move-clients-1"):
        with pytest.raises(InvalidRequest, match="has moved no clients"):
            prepared(ledger, Errand.RETURN, run)
