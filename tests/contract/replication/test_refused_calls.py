"""The calls that delete data on real brokers are refused in every form, whoever allowed them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.data_centres import make_lagging, make_origin, opened, plan, replicate, request_of

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.replication import steps
from pulsar_fleet.replication.doctor.model import RemedyCall
from pulsar_fleet.replication.doctor.remedies import send_remedies

FORMS: dict[str, tuple[str, str, Json, dict[str, str]]] = {
    "namespace list without the own cluster": ("POST", "/namespaces/{ns}/replication", ["green"], {}),
    "empty namespace list": ("POST", "/namespaces/{ns}/replication", [], {}),
    "allowed clusters without the own cluster": ("POST", "/namespaces/{ns}/allowedClusters", ["green"], {}),
    "topic list without the own cluster": ("POST", "/{topic}/replication", ["green"], {}),
    "empty topic list": ("POST", "/{topic}/replication", [], {}),
    "global topic list without a peer": ("POST", "/{topic}/replication", ["blue"], {"isGlobal": "true"}),
    "global topic list without the own cluster": ("POST", "/{topic}/replication", ["green"], {"isGlobal": "true"}),
    "tenant without the own cluster": ("POST", "/tenants/{tenant}", {"allowedClusters": ["green"]}, {}),
    "namespace that is born with another list": ("PUT", "/namespaces/{ns}", {"replication_clusters": ["green"]}, {}),
    "namespace that is born deleted": (
        "PUT",
        "/namespaces/{ns}",
        {"replication_clusters": ["blue"], "deleted": True},
        {},
    ),
    "namespace that is born with other allowed clusters": (
        "PUT",
        "/namespaces/{ns}",
        {"replication_clusters": ["blue"], "allowed_clusters": ["green"]},
        {},
    ),
}


@pytest.fixture
def connections(blue: ClusterConnection, green: ClusterConnection, records: Path) -> dict[str, ClusterConnection]:
    return {"blue": blue, "green": green}


@pytest.mark.cluster
async def test_no_permission_lets_such_a_call_through(
    connections: dict[str, ClusterConnection], on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    events, audit = await make_origin(on_blue, namespace)
    await replicate(connections, request_of("blue", "green", namespaces=[str(namespace)]), "first")
    topics = [*events.partitions(3), audit]
    for form in FORMS:
        change = _change(form, namespace, events)
        planned = Plan(source="a person", target="blue", changes=(change,))
        applied = await apply_plan(
            planned, on_blue, Ledger.open(), f"refused/{form}", redactor=open_redactor(), allow={change.id}
        )
        assert [result.outcome for result in applied.results] == [Outcome.REFUSED], (form, applied.results[0].detail)
        assert "Nothing was sent" in applied.results[0].detail, form
    await asyncio.sleep(1)
    document = await on_blue.namespace(namespace) or {}
    assert {*document["replication_clusters"]} == {"blue", "green"}
    assert {*topics} <= {*await on_blue.topics(namespace)}


def _change(form: str, namespace: NamespaceName, topic: TopicName) -> Change:
    method, path, body, params = FORMS[form]
    call = with_body(method, path.format(ns=namespace.path, topic=topic.path, tenant=namespace.tenant), body, **params)
    return Change(
        resource=Resource.POLICY,
        name=str(namespace),
        field="replication_clusters",
        action=Action.SET,
        calls=(call,),
        before=["blue", "green"],
        after=["green"],
        hazard=Hazard.NONE,
        reason="a test",
    )


@pytest.mark.long
async def test_cluster_data_that_is_used_is_not_deleted(
    connections: dict[str, ClusterConnection],
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    """The broker answers 204 while a namespace replicates there (observed)."""
    leaves, stays = new_namespace(), new_namespace()
    for namespace in (leaves, stays):
        await make_origin(on_blue, namespace)
        await replicate(connections, request_of("blue", "green", namespaces=[str(namespace)]), str(namespace))
    request = request_of("blue", leaving=["green"], namespaces=[str(leaves)], delete_cluster_data=True)
    done = await replicate(connections, request, "leave")
    assert any("the data of cluster green on blue" in line for line in done.stages[-1].kept)
    assert "green" in await on_blue.clusters()
    assert (await on_blue.namespace(leaves) or {})["replication_clusters"] == ["blue"]
    assert {*(await on_blue.namespace(stays) or {})["replication_clusters"]} == {"blue", "green"}


async def test_a_link_that_lags_is_not_cut(
    connections: dict[str, ClusterConnection],
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace = new_namespace()
    await make_lagging(connections, on_blue, on_green, namespace)
    request = request_of("blue", leaving=["green"], namespaces=[str(namespace)])
    done = await plan(connections, request, "leave")
    assert not done.blockers
    async with opened(connections, request) as clusters:
        waiting = await steps.backlog_of_ending_links(clusters, done.planned)
        assert "blue → green" in waiting
        with pytest.raises(Unavailable, match="Nothing has been ended"):
            await steps.end_links(clusters, done.planned, done.run)
    assert {*(await on_blue.namespace(namespace) or {})["replication_clusters"]} == {"blue", "green"}


async def test_a_remedy_takes_nothing_away_that_was_added_since_the_examination(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    tenant = new_namespace().tenant
    await on_blue.put(f"/tenants/{tenant}", {"adminRoles": ["old"], "allowedClusters": ["blue"]})
    stale = with_body("POST", f"/tenants/{tenant}", {"adminRoles": ["old"], "allowedClusters": ["blue"]})
    remedy = RemedyCall(cluster="blue", call=stale, replaces=("blue",))
    (sent,) = await send_remedies({"blue": on_blue}, [remedy])
    assert sent.error == ""
    await on_blue.post(f"/tenants/{tenant}", {"adminRoles": ["old", "new"], "allowedClusters": ["blue"]})
    (refused,) = await send_remedies({"blue": on_blue}, [remedy])
    assert "with other roles" in refused.error
    assert sorted((await on_blue.tenant(tenant) or {})["adminRoles"]) == ["new", "old"]
    in_place = with_body("POST", f"/tenants/{tenant}", {"adminRoles": ["old", "new"], "allowedClusters": ["blue"]})
    (again,) = await send_remedies({"blue": on_blue}, [RemedyCall(cluster="blue", call=in_place, replaces=("gone",))])
    assert again.error == ""
