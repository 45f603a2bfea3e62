"""Secrets that go all the way through an onboarding are found nowhere but on the clusters."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.leaks import EveryRecord, leaking, texts_below
from tests.support.snapshot_equality import verify_equal

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.onboarding.steps import apply_onboarding, plan_onboarding, take_snapshot
from pulsar_fleet.planning.render import plan_markdown
from pulsar_fleet.procedures import runner
from pulsar_fleet.procedures.onboarding import ONBOARDING
from pulsar_fleet.procedures.procedure import Checked, Session
from pulsar_fleet.report.onboard import onboarding_report

pytestmark = pytest.mark.versions

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
PEER, TOKEN, OFFLOAD = "canary-of-a-peer-3f81c0", "canary.of-a-token.77aa1e", "canary/of+offload=90bd2c"
SECRETS = (PEER, TOKEN, OFFLOAD)


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Everything that is logged by anybody, at any level."""
    root, collector = logging.getLogger(), EveryRecord()
    level = root.level
    root.addHandler(collector)
    root.setLevel(1)
    yield collector.texts
    root.setLevel(level)
    root.removeHandler(collector)


@pytest.fixture
async def tenant(
    on_blue: AdminClient, on_green: AdminClient, make_estate: Make, new_namespace: Callable[[], NamespaceName]
) -> AsyncIterator[str]:
    """An estate with secrets: in a namespace's offload policies, and in the data of a peer of blue."""
    name = new_namespace()
    await make_estate(on_blue, name)
    # Without the offloader no topic of such a namespace loads, so it has none.
    offloaded = NamespaceName(name.tenant, "offloaded")
    policies = {
        "managedLedgerOffloadDriver": "aws-s3",
        "s3ManagedLedgerOffloadBucket": "archive",
        "s3ManagedLedgerOffloadRegion": "eu-west-1",
        "s3ManagedLedgerOffloadCredentialId": "somebody",
        "s3ManagedLedgerOffloadCredentialSecret": OFFLOAD,
    }
    await on_blue.put_namespace(offloaded, {"replication_clusters": ["blue"], "offload_policies": policies})
    peer = f"peer-{name.tenant}"
    data = {
        "serviceUrl": "http://localhost:1",
        "brokerServiceUrl": "pulsar://localhost:1",
        "authenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "authenticationParameters": f"token:{PEER}",
        "brokerClientTlsTrustStorePassword": PEER,
        "brokerClientTlsKeyStorePassword": PEER,
        "brokerClientSslFactoryPluginParams": PEER,
    }
    await on_blue.put_cluster(peer, data)
    yield name.tenant
    for admin in (on_blue, on_green):
        if peer in await admin.clusters():
            await admin.delete(f"/clusters/{peer}")


@pytest.mark.cluster
async def test_no_secret_is_left_behind_by_an_onboarding(
    tenant: str, blue: ClusterConnection, green: ClusterConnection, on_green: AdminClient, records: Path, log: list[str]
) -> None:
    source, target = (replace(connection, token=TOKEN) for connection in (blue, green))
    selection, artefacts, ledger = Selection(tenants=frozenset({tenant})), Artefacts.open(), Ledger.open()
    ours = await take_snapshot(source, selection, artefacts, "r", name="source")
    theirs = await take_snapshot(target, selection, artefacts, "r", name="target")
    planned = plan_onboarding(ours, theirs, artefacts)

    async def check(_: Session) -> Checked:
        return Checked(headline=planned.headline, findings=planned.findings, plan=planned.plan, text=planned.text)

    await runner.check(replace(ONBOARDING, check=check), Session({}, Run("r", ledger, artefacts), {}))
    applied = await apply_onboarding(source, target, planned.plan, artefacts, ledger, "r")
    verified = await verify_equal(ours, target, selection, artefacts, "r")
    plan, findings = planned.plan, planned.findings
    report = onboarding_report(ours, theirs, plan, findings, applied, verified).markdown()

    written = await on_green.namespace(NamespaceName(tenant, "offloaded")) or {}
    assert written["offload_policies"]["s3ManagedLedgerOffloadCredentialSecret"] == OFFLOAD
    assert verified.equal
    shown = {
        "report": report,
        "plan": plan_markdown(plan),
        "handed over": repr((ours, theirs, planned, applied, verified)),
        "findings": "\n".join(finding.text() for finding in findings),
        "connection": f"{source!r} {target!r}",
        "log": "\n".join(log),
    }
    files = list(texts_below(records))
    assert {Path(place.partition(" ")[0]).suffix for place, _ in files} >= {".parquet", ".db", ".json", ".md"}
    assert leaking(iter([*shown.items(), *files]), SECRETS) == []


def test_a_secret_would_be_found(tmp_path: Path) -> None:
    """The search itself: plain, in a compressed table, in a database and in Base64."""
    import base64
    import sqlite3

    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.json").write_text(f'{{"x": "{PEER}"}}')
    (tmp_path / "b.log").write_bytes(base64.b64encode(f"token:{TOKEN}".encode()))
    pq.write_table(pa.table({"x": [OFFLOAD] * 50}), tmp_path / "c.parquet", compression="zstd")
    with sqlite3.connect(tmp_path / "d.db") as database:
        database.execute("create table t (x text)")
        database.execute("insert into t values (?)", (PEER,))
    database.close()
    files = {Path(place.partition(" ")[0]).name for place in leaking(texts_below(tmp_path), SECRETS)}
    assert files == {"a.json", "b.log", "c.parquet", "d.db"}
