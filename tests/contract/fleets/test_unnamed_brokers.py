"""One proxy leads to the brokers of each cluster, and nothing says how it leads to one of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.fleets import Fleet, behind_one_proxy
from tests.support.outcomes import check, done, ended, windows

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.workload import EstateSpec, Traffic, build_estate

pytestmark = pytest.mark.fleet

NewNamespace = Callable[[], NamespaceName]
REFUSED = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with behind_one_proxy(tmp_path_factory.mktemp("unnamed"), names_brokers=False) as fleet:
        yield fleet


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_migration_needs_a_waiver_for_each_unknown_broker(
    fleet: Fleet, records: Path, new_namespace: NewNamespace
) -> None:
    live, shell = new_namespace(), fleet.shell(records)
    await build_estate(fleet.blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=1, history=20))
    pair = (*shell.sides, "--select", live.tenant)
    # Onboarding goes on, and names what it does not know.
    checked = shell.run("check", *pair, "--json").document
    unknown = {finding["resource"] for finding in checked["findings"] if finding["id"] == "resource-not-readable"}
    assert len(unknown) == 4, checked["findings"]
    done(shell.run("apply", *pair, "--yes", "--json"))
    assert done(shell.run("diff", *pair, "--json"))["equal"]

    command = ("migrate", *shell.sides, "--namespaces", live)
    refused = shell.run(*command, "--dry-run")
    assert refused.state == REFUSED
    blockers = [line for line in refused.err.splitlines() if line.startswith("BLOCKER")]
    assert sorted(line.split()[1] for line in blockers) == ["broker-not-readable"] * 4, refused.err
    assert '"broker_urls"' in refused.err
    waivers = [
        {"id": "broker-not-readable", "resource": resource, "who": "ana", "why": "the check is on, by its file"}
        for resource in unknown
    ]
    accepted = [word for waiver in waivers for word in ("--waiver", json.dumps(waiver))]
    assert shell.run(*command, *accepted[2:], "--dry-run").state == REFUSED
    with Traffic.start(fleet.blue, namespace=live, folder=shell.folder / "traffic", rate=20) as traffic:
        run = ended(await asyncio.to_thread(shell.run, *command, *accepted, "--yes", "--json"))
        tally = await asyncio.to_thread(traffic.stop)
    check(tally, windows(run, live))
