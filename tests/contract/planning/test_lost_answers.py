"""A call whose answer is lost is sent again: what the first one did is no failure of the second."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.proxy import LOST_ANSWER, CallFault, Proxy

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan


async def test_a_deletion_that_the_second_try_finds_done_is_done(
    on_blue: AdminClient, blue: ClusterConnection, records: Path
) -> None:
    tenant = f"test-{os.urandom(5).hex()}"
    await on_blue.put(f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    change = Change(
        resource=Resource.TENANT,
        name=tenant,
        field="",
        action=Action.DELETE,
        calls=(Call("DELETE", f"/tenants/{tenant}"),),
        before=await on_blue.tenant(tenant),
        after=None,
        hazard=Hazard.NONE,
        reason="a test",
    )
    async with Proxy(blue.admin_url) as proxy:
        proxy.answers = [CallFault(f"DELETE .*/tenants/{tenant}", LOST_ANSWER, times=1)]
        connection = ClusterConnection(name=blue.name, admin_url=proxy.url, service_url=blue.service_url)
        async with AdminClient(connection) as admin:
            plan = Plan(source="a person", target="blue", changes=(change,))
            applied = await apply_plan(
                plan, admin, Ledger.open(), "lost", redactor=open_redactor(), allow=frozenset({change.id})
            )
    assert [result.outcome for result in applied.results] == [Outcome.APPLIED], applied.results
    assert await on_blue.tenant(tenant) is None
