"""Whatever reads a cluster notes the figures that the Fleet page shows of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import OWN_FOLDER, Artefacts
from pulsar_fleet.ledger.cluster_notes import NoteKind, read_notes
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.onboarding.steps import take_snapshot
from pulsar_fleet.policy_sync.reconcile.request import Mode, Request
from pulsar_fleet.policy_sync.reconcile.steps import find_drift, repair
from pulsar_fleet.verification.messages.verdict import Verification
from pulsar_fleet.verification.steps import record
from pulsar_sandbox import Sandbox

NewNamespace = Callable[[], NamespaceName]


async def test_a_snapshot_notes_brokers_and_versions(
    blue: ClusterConnection, clusters: Sandbox, tmp_path: Path
) -> None:
    artefacts = Artefacts.open(str(tmp_path))
    await take_snapshot(blue, Selection.parse(["public"]), artefacts, OWN_FOLDER, name="blue")
    assert read_notes(artefacts) == {}
    await take_snapshot(blue, Selection.parse(["public"]), artefacts, "onboard_cluster/1", name="source")
    note = read_notes(artefacts)["blue"][NoteKind.SNAPSHOT]
    assert note.figures == {"versions": [clusters["blue"].version], "brokers": 1, "complete": True}
    assert note.run_id == "onboard_cluster/1"


async def test_a_reconciliation_notes_the_drift_before_and_after_a_repair(
    blue: ClusterConnection, green: ClusterConnection, new_namespace: NewNamespace, on_blue: AdminClient, records: Path
) -> None:
    name = new_namespace()
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    run, request = Run.open("reconcile_policies/1"), Request(selection=Selection.parse([name.tenant]), mode=Mode.REPAIR)
    summary = await find_drift([blue, green], request, run)
    assert int(read_notes(run.artefacts)["green"][NoteKind.DRIFT].figures["changes"]) > 0
    await repair([blue, green], summary, request, run)
    assert read_notes(run.artefacts)["green"][NoteKind.DRIFT].figures == {"changes": 0, "fields": 0}


def test_a_verification_notes_the_proof_for_both_clusters(records: Path) -> None:
    run = Run.open("verify_clusters/1")
    record(run, Verification(source="eu/blue", target="green", namespaces=()))
    notes = read_notes(run.artefacts)
    assert notes["eu/blue"][NoteKind.PROOF].figures["with"] == "green"
    assert notes["green"][NoteKind.PROOF].figures == {"equal": 0, "namespaces": 0, "messages": 0, "with": "eu/blue"}
