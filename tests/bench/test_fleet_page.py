"""What the pages of the fleet cost the server with 10,000 namespaces on 20 clusters: time and bytes.

The floor is what a page cannot avoid, read by plain SQL: the newest phase and verdict of each namespace; for the matrix
every name, and the documents of the namespaces that it shows.
PULSAR_FLEET_BENCH_NAMESPACES (default 10000) and PULSAR_FLEET_BENCH_CLUSTERS (default 20).
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pulsar_fleet.fleet.actions import Situation
from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.fleet.matrix import PAGE_SIZE as MATRIX_SIZE
from pulsar_fleet.fleet.matrix import MatrixView, matrix_page, read_cells, read_differing_names, read_namespace_names
from pulsar_fleet.fleet.page import View, fleet_page, linked_runs
from pulsar_fleet.fleet.prepared_run import refused_runs
from pulsar_fleet.fleet.records import read_clusters, read_fleet, read_namespaces
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.cluster_notes import NoteKind, read_notes, write_note
from pulsar_fleet.ledger.event_store import field_digest
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import observations, phases, runs, verdicts
from pulsar_fleet.report.page import PAGE

NAMESPACES = int(os.environ.get("PULSAR_FLEET_BENCH_NAMESPACES", "10000"))
CLUSTERS = int(os.environ.get("PULSAR_FLEET_BENCH_CLUSTERS", "20"))
PHASES = ("checked", "prepared", "frozen", "replicated", "quiesced", "cut_over", "drained", "finished")
ROUNDS = 5
RATIO = 5.0
MOST_BYTES = 300_000
NOW = datetime.now(UTC)
LINKS = Links("/pulsar-fleet")
FLOOR = (
    "SELECT namespace, phase FROM fleet_phases WHERE id IN (SELECT max(id) FROM fleet_phases GROUP BY namespace)",
    "SELECT v.scope, v.verdict, v.run_id FROM fleet_verdicts v JOIN (SELECT scope, max(at) AS at FROM fleet_verdicts "
    "GROUP BY scope) n ON v.scope = n.scope AND v.at = n.at",
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    filled = Ledger.open(f"sqlite:///{tmp_path_factory.mktemp('fleet') / 'ledger.db'}")
    fill(filled)
    return filled


def fill(ledger: Ledger) -> None:
    names = [f"tenant-{number % 100:03}/namespace-{number:05}" for number in range(NAMESPACES)]
    waves = [f"migrate_namespaces/scheduled__{number}" for number in range(-(-NAMESPACES // 100))]
    at = [NOW - timedelta(hours=number) for number in range(len(PHASES))][::-1]
    insert(
        ledger,
        phases,
        (
            {"run_id": waves[number // 100], "namespace": name, "phase": phase, "at": began}
            for phase, began in zip(PHASES, at, strict=True)
            for number, name in enumerate(names)
        ),
    )
    proven = {"verdict": "equal", "messages": 4_118_202, "summary": "", "at": NOW}
    insert(ledger, verdicts, ({"run_id": "verify_clusters/1", "scope": name, **proven} for name in names))
    run = {"procedure": "migrate_namespaces", "conf": {}, "state": "succeeded"}
    insert(
        ledger,
        runs,
        ({"run_id": wave, "started_at": NOW - timedelta(minutes=n), **run} for n, wave in enumerate(waves)),
    )
    insert(ledger, observations, observed(names))


def observed(names: list[str]) -> Iterator[dict[str, Any]]:
    """As a reconciliation stores them: thirty fields of each namespace with digest and times."""
    clusters = [f"cluster-{number:02}" for number in range(CLUSTERS)]
    fields = {f"policy_{number}": ["0f" * 12, 0.0, 1_764_000_000.5, []] for number in range(30)}
    changes: dict[str, Any] = {"policy_7": ["1e" * 12, 0.0, 1.5, []]}
    digests = [field_digest({"fields": {**fields, **more}}) for more in ({}, changes)]
    row = {"fleet": "+".join(clusters), "kind": "namespace", "observed_at": NOW.timestamp()}
    for cluster in clusters:
        for number, name in enumerate(names):
            changed = changes if number % 7 == 0 and cluster.endswith("7") else {}
            document = {"fields": {**fields, **changed}, "expected": {}}
            yield {**row, "cluster": cluster, "name": name, "document": document, "digest": digests[bool(changed)]}


def insert(ledger: Ledger, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    with ledger.engine.begin() as connection:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == 10_000:
                connection.execute(table.insert(), batch)
                batch = []
        if batch:
            connection.execute(table.insert(), batch)


def cpu(work: Callable[[], object]) -> float:
    """CPU time in seconds: another process on the machine does not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


def floor(ledger: Ledger) -> None:
    with ledger.engine.connect() as connection:
        for query in FLOOR:
            assert len(connection.execute(sa.text(query)).all()) == NAMESPACES


def fleet(ledger: Ledger, artefacts: Artefacts, number: int) -> str:
    """As the route makes it."""
    view, state = View(number=number), read_fleet(ledger)
    now = Situation(
        state=state,
        notes=read_notes(artefacts),
        refused=refused_runs(list(state.last_runs.values()), ledger, artefacts),
    )
    records = read_namespaces(ledger, [row.namespace for row in view.select(state.namespaces).rows])
    reports = artefacts.runs_with(PAGE, linked_runs(now, LINKS, view))
    return fleet_page(replace(now, reports=reports), records, LINKS, view)


def test_the_fleet_page_is_small_and_near_the_floor(ledger: Ledger, tmp_path: Path) -> None:
    artefacts = Artefacts.open(str(tmp_path))
    for number in range(CLUSTERS):
        note_figures(artefacts, f"cluster-{number:02}")
    text = fleet(ledger, artefacts, 50)
    assert f"{CLUSTERS} clusters, {NAMESPACES:,} namespaces" in text
    compare("Fleet page", len(text.encode()), lambda: fleet(ledger, artefacts, 50), lambda: floor(ledger))


def note_figures(artefacts: Artefacts, cluster: str) -> None:
    read = {"versions": ["4.2.4"], "brokers": 12, "complete": True}
    write_note(artefacts, cluster, NoteKind.SNAPSHOT, "onboard_cluster/1", read)
    write_note(artefacts, cluster, NoteKind.DRIFT, "reconcile_policies/1", {"changes": 3, "fields": 3})
    proof = {"equal": 10, "namespaces": 10, "messages": 1, "with": "cluster-00"}
    write_note(artefacts, cluster, NoteKind.PROOF, "verify_clusters/1", proof)


def test_the_matrix_is_small_and_near_the_floor(ledger: Ledger) -> None:
    text = matrix(ledger, 50)
    assert f"{CLUSTERS} clusters, {NAMESPACES:,} namespaces" in text
    assert "≠ 1 field" in text
    compare("Matrix", len(text.encode()), lambda: matrix(ledger, 50), lambda: matrix_floor(ledger))


def test_the_matrix_of_differences_is_small_and_near_the_floor(ledger: Ledger) -> None:
    text = matrix(ledger, 2, differences=True)
    assert f"{NAMESPACES // 7 + 1:,} namespaces that differ" in text
    assert "✓ same" in text
    compare(
        "Matrix, only differences",
        len(text.encode()),
        lambda: matrix(ledger, 2, differences=True),
        lambda: matrix_floor(ledger),
    )


def matrix(ledger: Ledger, number: int, *, differences: bool = False) -> str:
    """As the route makes it."""
    view = MatrixView(number=number, differences=differences)
    names = read_differing_names(ledger) if differences else read_namespace_names(ledger)
    cells = read_cells(ledger, view.select(names).rows)
    return matrix_page(read_clusters(ledger), names, cells, NOW, LINKS, view)


def matrix_floor(ledger: Ledger) -> None:
    """Every name, and the documents of one page, as JSON."""
    with ledger.engine.connect() as connection:
        names = connection.scalars(
            sa.text("SELECT DISTINCT name FROM fleet_observations WHERE kind = 'namespace'")
        ).all()
        shown = sorted(names)[-MATRIX_SIZE:]
        query = sa.text("SELECT document FROM fleet_observations WHERE kind = 'namespace' AND name IN :names")
        rows = connection.scalars(query.bindparams(sa.bindparam("names", shown, expanding=True)))
        assert len([json.loads(row) for row in rows]) == len(shown) * CLUSTERS


def compare(name: str, size: int, work: Callable[[], object], plain: Callable[[], object]) -> None:
    # Whatever the tests have imported is not collected in the middle of a measurement.
    gc.collect()
    gc.freeze()
    # In turn, so that a slow moment of the machine meets both.
    rounds = [(cpu(plain), cpu(work)) for _ in range(ROUNDS)]
    lowest, seconds = (min(times) for times in zip(*rounds, strict=True))
    gc.unfreeze()
    print(
        f"\n{name}, {NAMESPACES:,} namespaces on {CLUSTERS} clusters: {seconds * 1000:.0f} ms CPU, "
        f"{size / 1000:.0f} kB; floor {lowest * 1000:.0f} ms, ratio {seconds / lowest:.2f}"
    )
    assert size <= MOST_BYTES
    assert seconds / lowest <= RATIO
