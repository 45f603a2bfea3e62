"""Data centres join, change their part and leave, under traffic: nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path

import pytest
from tests.support.applications import Numbered
from tests.support.data_centres import (
    Traffic,
    assert_once_in_order,
    finding_ids,
    make_origin,
    plan,
    replicate,
    request_of,
    stored,
    undo,
    wait_sent,
)
from tests.support.fleets import connection, secured
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import EntryMapping
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process

NAMES = ("east", "north", "south", "west")
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["open", "tokens"])
def clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[dict[str, ClusterConnection]]:
    secure = request.param == "tokens"
    with start_clusters(tmp_path_factory.mktemp("data-centres"), clusters=NAMES, secure=secure) as sandbox:
        yield {
            cluster.name: secured(cluster, link={"token": cluster.token("broker")}, token=cluster.token())
            if secure
            else connection(cluster)
            for cluster in sandbox
        }


@pytest.fixture
async def admins(clusters: dict[str, ClusterConnection]) -> AsyncIterator[dict[str, AdminClient]]:
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(AdminClient(connection)) for name, connection in clusters.items()}


@pytest.mark.timeout(600)
async def test_a_mesh_of_three_grows_and_shrinks_under_traffic(
    clusters: dict[str, ClusterConnection],
    admins: dict[str, AdminClient],
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    namespace = new_namespace()
    topics = await make_origin(admins["east"], namespace)
    partitions = [*topics[0].partitions(3), topics[1]]
    names = {"namespaces": [str(namespace)]}
    traffic = Traffic(topics)

    done = await replicate(clusters, request_of("east", "north", "south", **names), "mesh")
    assert done.links == 4 * 6
    for name in ("east", "north", "south"):
        traffic.start(name, clusters[name])
    await asyncio.sleep(3)

    await replicate(clusters, request_of("east", "north", "south", receive_only=["west"], **names), "receive-only")
    joined = traffic.counts()
    await asyncio.sleep(3)
    assert await lists(admins, namespace) == {
        **{key: {*NAMES} for key in ("east", "north", "south")},
        "west": {"west"},
    }

    await replicate(clusters, request_of(*NAMES, **names), "full-member")
    traffic.start("west", clusters["west"])
    await asyncio.sleep(3)

    leaving = request_of("east", "north", "west", leaving=["south"], delete_cluster_data=True, **names)
    refused = await plan(clusters, leaving, "too-early")
    assert "leaving-cluster-has-producers" in finding_ids(refused)
    await traffic.stop("south")
    done = await replicate(clusters, leaving, "leave")
    in_south = {topic: await asyncio.to_thread(stored, clusters["south"], topic) for topic in topics}
    await asyncio.sleep(3)
    await traffic.stop("east", "north", "west")
    remaining = ("east", "north", "west")
    await wait_sent(admins, partitions, remaining)

    assert await lists(admins, namespace) == {**{key: {*remaining} for key in remaining}, "south": {"south"}}
    for name in remaining:
        assert "south" not in await admins[name].clusters()
        tenant = await admins[name].tenant(namespace.tenant)
        assert {*tenant["allowedClusters"]} == {*remaining}
    assert done.stages[-1].kept == ()
    for topic in topics:
        sent = traffic.sent(topic, *NAMES)
        for name in ("east", "north"):
            messages = await asyncio.to_thread(stored, clusters[name], topic)
            assert_once_in_order(messages)
            assert {*messages} == {*sent}
        of_west = await asyncio.to_thread(stored, clusters["west"], topic)
        assert_once_in_order(of_west)
        for key in {message.key for message in sent}:
            assert since(of_west, key) == list(range(since(of_west, key)[0], last(sent, key) + 1)), key
        after_join = [
            message
            for name in ("east", "north", "south")
            for message in traffic.publishers[name, topic].sent[joined[name, topic] :]
        ]
        assert not {*after_join} - {*of_west}
        assert_once_in_order(in_south[topic])
        assert {*traffic.sent(topic, "south")} <= {*in_south[topic]} <= {*sent}
        assert {*await asyncio.to_thread(stored, clusters["south"], topic)} == {*in_south[topic]}

    for source, target in permutations(remaining, 2):
        bounds = await freeze_bounds(admins[source], admins[target], [namespace], mapping=EntryMapping.MESH)
        verified = await verify_in_process(admins[source], admins[target], bounds)
        assert (verified.verdict, verified.messages > 0) == (Verdict.EQUAL, True), (source, target)

    if not clusters["south"].token:
        # With tokens the data of clusters that was deleted holds a secret, which the ledger does not have.
        await undo(done, admins, "ends")
        assert await lists(admins, namespace) == {key: {*NAMES} for key in NAMES}


def since(messages: list[Numbered], key: str) -> list[int]:
    return [message.number for message in messages if message.key == key]


def last(messages: list[Numbered], key: str) -> int:
    return max(message.number for message in messages if message.key == key)


async def lists(admins: dict[str, AdminClient], namespace: NamespaceName) -> dict[str, set[str]]:
    documents = {name: await admin.namespace(namespace) for name, admin in admins.items()}
    return {name: {*document["replication_clusters"]} for name, document in documents.items() if document}
