"""Stored snapshots of real clusters, compared here and as a real Spark job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import CLUSTERS, Note, Problem
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.comparison import Comparison, compare
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TopicState
from pulsar_fleet.snapshot.store.reader import store_snapshot
from pulsar_fleet.verification.job import JOB_SETTINGS, build_package_zip, interpreter_environment
from pulsar_fleet.verification.snapshots.compare import (
    CompareRequest,
    compare_in_process,
    compare_snapshots,
    read_result,
    store_request,
)

JOB = Path(__file__).parents[3] / "spark_jobs" / "compare_snapshots.py"
REDACTOR = Redactor(b"a key of the tests")
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]


async def read(admin: AdminClient, name: NamespaceName) -> Snapshot:
    return await collect(admin, Selection(tenants=frozenset({name.tenant})), redactor=REDACTOR)


@pytest.mark.long
@pytest.mark.pyspark
async def test_the_job_finds_snapshots_equal_or_names_the_field_that_differs(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_estate: Make,
    records: Path,
) -> None:
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_estate(admin, name)
        await admin.put(f"/namespaces/{name.tenant}/quiet")
    source, equal = await read(on_blue, name), await read(on_green, name)
    topic = TopicName(name, "events")
    await on_green.post(f"/{topic.path}/maxConsumers", 99)
    different = await read(on_green, name)
    requests = [stored(records, f"case-{number}", source, target) for number, target in enumerate((equal, different))]
    first, second = comparisons = submit(records, requests)
    assert (first.equal, first.compared, first.first) == (True, source.counts(), ())
    assert [
        (difference.resource, difference.name, difference.field, difference.source, difference.target)
        for difference in second.first
    ] == [("topic policy", str(topic), "local/maxConsumerPerTopic", 10, 99)]
    assert dict(second.differing) == {"topic policy": 1}
    assert [compare_snapshots(request, compare_in_process) for request in requests] == list(comparisons)
    assert [compare(source, target) for target in (equal, different)] == list(comparisons)


def stored(records: Path, run_id: str, source: Snapshot, target: Snapshot) -> CompareRequest:
    artefacts = Artefacts.open(str(records / "artefacts"))
    sides = [
        store_snapshot(artefacts, run_id, side, name=name) for name, side in (("source", source), ("target", target))
    ]
    return CompareRequest(source=sides[0], target=sides[1])


def submit(records: Path, requests: list[CompareRequest]) -> list[Comparison]:
    """Run the job as an operator would: the real spark-submit, the package as a zip."""
    handed = [store_request(Run.open(f"compare/{number}"), request) for number, request in enumerate(requests)]
    arguments = [part for request, result in handed for part in ("--request", request, "--result", result)]
    options = ["--master", "local[2]", "--driver-memory", "1g", "--py-files", str(build_package_zip(records))]
    configured = [part for setting in JOB_SETTINGS.items() for part in ("--conf", "=".join(setting))]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spark-submit")), *options, *configured, str(JOB), *arguments],
        env={**os.environ, **interpreter_environment()},
        cwd=records,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [read_result(result) for _, result in handed]


def test_a_snapshot_without_the_names_of_clusters_is_not_compared(records: Path) -> None:
    whole = Snapshot(cluster="blue", began="", ended="", key_id="k")
    unreadable = replace(whole, notes=(Note(CLUSTERS, Problem.UNREADABLE.value, "not for this role."),))
    request = stored(records, "incomplete", unreadable, whole)
    with pytest.raises(PreconditionFailed, match="names of the clusters that blue knows could not be read"):
        compare_snapshots(request, compare_in_process)


def test_an_unread_resource_is_named_once_and_neither_equal_nor_different(records: Path) -> None:
    topic = "persistent://acme/orders/events"
    policies = {"replication_clusters": ["blue"]}
    namespaces = tuple(NamespaceState(f"acme/{name}", policies) for name in ("audit", "orders"))
    source = Snapshot(cluster="blue", began="", ended="", key_id="k", namespaces=namespaces)
    source = replace(source, topics=(TopicState(topic, 3, {}),), known_clusters=("blue",))
    notes = tuple(Note(name, Problem.UNREADABLE.value, "500.") for name in (topic, "acme/audit"))
    target = replace(source, cluster="blue", namespaces=namespaces[1:], topics=(), notes=notes)
    comparison = compare_snapshots(stored(records, "unread", source, target), compare_in_process)
    assert (comparison.equal, dict(comparison.differing), comparison.unread) == (True, {}, (topic, "acme/audit"))
    assert [row.name for row in comparison.first_left_alone] == [topic, "acme/audit"]


def test_a_job_that_left_no_result_is_not_taken_for_equal(records: Path) -> None:
    with pytest.raises(NotFound, match="left no result"):
        read_result(str(records / "none.json"))
