"""Secrets that go through a whole run of `onboard_cluster` are in no XCom, log, artefact, ledger or report."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.leaks import EveryRecord, leaking, texts_below

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.workload import EstateSpec, build_estate

pytestmark = [pytest.mark.onboarding, pytest.mark.cluster]

TOKEN, PEER, OFFLOAD = "canary.of-a-token.5d02b9", "canary-of-a-peer-c4477a", "canary/of+offload=1e93d4"


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Everything that is logged below Airflow's own handlers, at any level."""
    root, collector = logging.getLogger(), EveryRecord()
    root.addHandler(collector)
    yield collector.texts
    root.removeHandler(collector)


async def build(blue: ClusterConnection, name: NamespaceName, peer: str) -> None:
    """An estate with a secret in offload policies and one in the data of a peer."""
    policies = {
        "managedLedgerOffloadDriver": "aws-s3",
        "s3ManagedLedgerOffloadBucket": "archive",
        "s3ManagedLedgerOffloadRegion": "eu-west-1",
        "s3ManagedLedgerOffloadCredentialSecret": OFFLOAD,
    }
    await build_estate(blue, EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=0))
    async with AdminClient(blue) as admin:
        offloaded = NamespaceName(name.tenant, "offloaded")
        await admin.put_namespace(offloaded, {"replication_clusters": ["blue"], "offload_policies": policies})
        data = {"serviceUrl": "http://localhost:1", "authenticationParameters": f"token:{PEER}"}
        await admin.put_cluster(peer, {**data, "authenticationPlugin": "org.example.Plugin"})


async def forget(clusters: tuple[ClusterConnection, ...], peer: str) -> None:
    """Remove the peer wherever it has got to."""
    for cluster in clusters:
        async with AdminClient(cluster) as admin:
            if peer in await admin.clusters():
                await admin.delete(f"/clusters/{peer}")


def test_no_secret_is_left_behind_by_a_run(
    play: Callable[..., Any],
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    log: list[str],
) -> None:
    name = new_namespace()
    peer = f"peer-{name.tenant}"
    for cluster in (blue, green):
        extra = {"service_url": cluster.service_url}
        described = {"conn_type": "pulsar", "host": cluster.admin_url, "password": TOKEN, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_PULSAR_{cluster.name.upper()}", json.dumps(described))
    asyncio.run(build(blue, name, peer))
    try:
        run = play(
            "onboard_cluster", source="pulsar_blue", target="pulsar_green", selection=[name.tenant], auto_approve=True
        )
    finally:
        asyncio.run(forget((blue, green), peer))
    assert str(run.state) == "success"
    shown = capfd.readouterr()
    places = [("output", shown.out), ("errors", shown.err), ("log", "\n".join(log))]
    # Airflow's home holds its database, with every XCom, and the logs of the tasks.
    files = [*texts_below(records), *texts_below(Path(os.environ["AIRFLOW_HOME"]))]
    assert {Path(place.partition(" ")[0]).name for place, _ in files} >= {"report.md", "ledger.db", "airflow.db"}
    assert leaking(iter([*places, *files]), (TOKEN, PEER, OFFLOAD)) == []
