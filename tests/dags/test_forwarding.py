"""Acknowledgments on a shadow topic are forwarded by Airflow, once and for some time without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pulsar
import pytest
from tests.support.dag_runs import report, states
from tests.support.fleets import airflow_connection
from tests.support.forwarding import Readers, make_readers

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Sandbox

pytestmark = pytest.mark.read_only

Play = Callable[..., Any]
Work = Callable[[Readers], Any]


@pytest.fixture
def served(alone: Sandbox, monkeypatch: pytest.MonkeyPatch) -> ClusterConnection:
    """The cluster that replicates nothing, known to Airflow as `pulsar_alone`."""
    cluster = alone["blue"]
    served = ClusterConnection(name="blue", admin_url=cluster.admin_url, service_url=cluster.service_url)
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_ALONE", airflow_connection(served))
    return served


@pytest.fixture
def with_readers(served: ClusterConnection, new_namespace: Callable[[], NamespaceName]) -> Callable[[Work], Any]:
    """Calls a coroutine function with the readers of one tenant, in a loop of its own."""
    tenant, created = new_namespace().tenant, []

    async def call(work: Work) -> Any:
        client = open_client(served)
        try:
            async with AdminClient(served) as admin:
                if not created:
                    readers = await make_readers(admin, tenant, client)
                    created.append(readers)
                readers = Readers(admin, client, created[0].source, created[0].shadow, ids=created[0].ids)
                return await work(readers)
        finally:
            client.close()

    return lambda work: asyncio.run(call(work))


async def prepare(readers: Readers) -> str:
    await readers.make_subscription("s")
    await readers.fill(10)
    return str(readers.shadow.namespace)


def acknowledging(mark: int, holes: Sequence[int]) -> Work:
    async def work(readers: Readers) -> None:
        await asyncio.to_thread(
            readers.acknowledge, readers.shadow, "s", pulsar.ConsumerType.Shared, mark, tuple(holes)
        )

    return work


async def equal(readers: Readers) -> bool:
    return await readers.equal("s")


def test_acknowledgments_are_forwarded_and_reported(play: Play, with_readers: Callable[[Work], Any]) -> None:
    namespace = with_readers(prepare)
    with_readers(acknowledging(3, [5]))
    done = play("forward_acknowledgments", cluster="pulsar_alone", namespaces=[namespace])
    once = dict.fromkeys(["read_request", "forward_acknowledgments", "write_report"], "success")
    assert states(done) == {**once, "keep_forwarding": "skipped"}
    assert with_readers(equal)
    assert "4 entries forwarded, 0 not yet, 1 of 1 subscription on 1 shadow topic identical on blue" in report(done)
    with_readers(acknowledging(6, [8]))
    longer = play(
        "forward_acknowledgments", cluster="pulsar_alone", namespaces=[namespace], minutes=0.1, poll_seconds=1
    )
    assert set(states(longer).values()) == {"success"}
    assert with_readers(equal)
    assert "passes," in report(longer)


@pytest.mark.long
def test_a_position_that_no_consumer_need_have_reached_fails_the_run(
    play: Play, with_readers: Callable[[Work], Any]
) -> None:
    async def create(readers: Readers) -> str:
        await readers.fill(5)
        await readers.admin.create_subscription(readers.source, "late")
        await readers.admin.create_subscription(readers.shadow, "late", "latest")
        return str(readers.shadow.namespace)

    namespace = with_readers(create)
    conf = {"cluster": "pulsar_alone", "namespaces": [namespace]}
    run = play("forward_acknowledgments", **conf)
    assert states(run)["write_report"] == "failed"
    assert "name it in accept_positions" in report(run)
    accepted = play("forward_acknowledgments", **conf, accept_positions=["late"])
    assert states(accepted)["write_report"] == "success"


@pytest.mark.long
def test_a_namespace_that_does_not_exist_holds_up_no_other(play: Play, with_readers: Callable[[Work], Any]) -> None:
    namespace = with_readers(prepare)
    with_readers(acknowledging(3, [5]))
    conf = {"cluster": "pulsar_alone", "namespaces": ["none-such/readers", namespace]}
    for minutes in (0, 0.1):
        run = play("forward_acknowledgments", **conf, minutes=minutes, poll_seconds=1)
        assert states(run)["forward_acknowledgments"] == "success"
        assert states(run)["write_report"] == "failed"
        assert "none-such/readers is not forwarded: blue has no namespace none-such/readers" in report(run)
        assert with_readers(equal)
        with_readers(acknowledging(6, [8]))


@pytest.mark.long
def test_a_run_without_a_namespace_is_skipped_and_an_invalid_one_refused(play: Play) -> None:
    assert states(play("forward_acknowledgments"))["forward_acknowledgments"] == "skipped"
    conf = {"namespaces": ["acme/readers"], "subscriptions": ["a"], "accept_positions": ["b"]}
    refused = play("forward_acknowledgments", **conf)
    assert states(refused)["read_request"] == "failed"
    assert "'accept_positions' names 'b'" in report(refused)
