"""The call that lists scalable topics: a broker without it has none, and what could not be read is unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from tests.support.proxy import CUT, Fault, Proxy, answer

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads, Problem
from pulsar_fleet.cluster.admin.scalable_topics import ScalableTopics
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotAllowed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.inventory import read_scalable_topics

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
NAME = NamespaceName("acme", "orders")
FORBIDDEN = answer(403, '{"reason": "Unauthorized"}', **{"Content-Type": "application/json"})
LISTED = answer(200, '["topic://acme/orders/b", "topic://acme/orders/a"]', **{"Content-Type": "application/json"})
EXISTS = answer(200, "{}", **{"Content-Type": "application/json"})
DELETED = answer(404, '{"reason": "Scalable topic not found: topic://acme/orders/b"}')


@pytest.fixture
async def behind(blue: ClusterConnection, proxy: Proxy) -> AsyncIterator[AdminClient]:
    """A client that reaches blue through the proxy, one call after the other, and never tries again."""
    connection = replace(blue, admin_url=proxy.url, max_connections=1)
    async with AdminClient(connection, retry_seconds=0) as admin:
        yield admin


async def test_a_broker_without_the_call_has_none(on_blue: AdminClient) -> None:
    """4.2.4 answers 404."""
    assert await ScalableTopics(on_blue, {}).names(NAME) == ()


async def test_no_call_is_sent_where_all_brokers_are_older(behind: AdminClient, proxy: Proxy) -> None:
    assert await (await ScalableTopics.of(behind)).names(NAME) == ()
    await collect(behind, Selection(namespaces=frozenset({NAME})), redactor=Redactor(b"key"))
    assert not [request for request in proxy.seen if "/scalable/" in request.target]


async def test_a_call_that_the_broker_does_not_take_has_none(behind: AdminClient, proxy: Proxy) -> None:
    proxy.faults.append(answer(405))
    assert await ScalableTopics(behind, {}).names(NAME) == ()


async def test_names_are_sorted_and_deleted_topics_are_left_out(behind: AdminClient, proxy: Proxy) -> None:
    proxy.faults.extend([LISTED, EXISTS, EXISTS])
    assert await ScalableTopics(behind, {}).names(NAME) == ("topic://acme/orders/a", "topic://acme/orders/b")
    assert [request.target for request in proxy.seen[-2:]] == [
        f"/admin/v2/scalable/{NAME.path}/{local}" for local in ("a", "b")
    ]
    proxy.faults.extend([LISTED, EXISTS, DELETED])
    assert await ScalableTopics(behind, {}).names(NAME) == ("topic://acme/orders/a",)


async def test_a_broker_that_has_the_call_is_asked_during_an_upgrade(
    blue: ClusterConnection, behind: AdminClient, proxy: Proxy
) -> None:
    """The other one, which answers at the admin URL, would answer 404."""
    async with Proxy(blue.admin_url) as newer:
        host = newer.url.removeprefix("http://")
        newer.faults.extend([LISTED, EXISTS, EXISTS])
        names = await ScalableTopics(behind, {"localhost:1": "4.2.4", host: "5.0.0"}).names(NAME)
    assert (len(names), proxy.seen) == (2, [])


@pytest.mark.parametrize(
    ("fault", "error"),
    [(answer(500), Unavailable), (CUT, Unavailable), (FORBIDDEN, NotAllowed), (answer(412), InvalidRequest)],
    ids=["500", "cut", "403", "412"],
)
async def test_any_other_failure_is_unknown_and_named(
    behind: AdminClient, proxy: Proxy, fault: Fault, error: type[FleetError]
) -> None:
    proxy.otherwise = fault
    with pytest.raises(error):
        await ScalableTopics(behind, {}).names(NAME)
    reads = PartialReads()
    assert await read_scalable_topics(behind, (), [NAME], reads) == []
    assert [(note.resource, note.problem) for note in reads.take_notes()] == [
        (f"scalable topics of {NAME}", Problem.UNREADABLE)
    ]


async def test_a_topic_that_could_not_be_looked_up_is_unknown(behind: AdminClient, proxy: Proxy) -> None:
    proxy.faults.extend([LISTED, EXISTS, answer(404)])
    with pytest.raises(FleetError, match="answered 404"):
        await ScalableTopics(behind, {}).names(NAME)
