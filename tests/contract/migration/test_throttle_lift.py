"""Producers stay throttled until blue has closed them, and nobody may lift that unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pulsar
import pytest
from tests.contract.migration.test_cursor_transfer import make
from tests.support.proxy import Proxy
from tests.support.replication import make_alone

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.prepare.freeze import read_original_settings
from pulsar_fleet.migration.prepare.overrides import Throttle, publish_rate
from pulsar_fleet.migration.steps import cut_over, restore_blue
from pulsar_sandbox import Sandbox

GREEN_STOPS_SECONDS = 3.0


class StoppedGreen(Proxy):
    """In front of blue: green stops for some seconds when the namespace is flagged, after a producer published once.

    Blue then terminates the topic with a replication backlog, and closes its producers only when green has it.
    Notes the producers of the topic at each change of the publish rate from then on.
    """

    def __init__(self, blue: AdminClient, topic: TopicName, producer: pulsar.Producer, green: psutil.Process) -> None:
        super().__init__(blue.connection.admin_url)
        self.producers: list[int] = []
        self._is_flagged = False
        self._blue, self._topic, self._producer, self._green = blue, topic, producer, green

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        first = head.split(b"\r\n")[0]
        if first.startswith(b"POST") and b"/migration " in first:
            self._green.suspend()
            asyncio.get_running_loop().call_later(GREEN_STOPS_SECONDS, self._green.resume)
            await asyncio.to_thread(self._producer.send, b"0")
            self._is_flagged = True
        elif self._is_flagged and b"/publishRate" in first and not first.startswith(b"GET"):
            self.producers.append(len((await self._blue.stats(self._topic, precise=False))["publishers"]))
        return await super()._forward(head, body)


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_the_throttle_is_lifted_when_blue_has_closed_the_producers(
    blue: ClusterConnection,
    green: ClusterConnection,
    clusters: Sandbox,
    new_namespace: Callable[[], NamespaceName],
    on_blue: AdminClient,
    tmp_path: Path,
) -> None:
    carried = await make(blue, green, new_namespace(), tmp_path, 900, "history")
    (topic,) = carried.expected
    await carried.replicate()
    client, process = open_client(blue), psutil.Process(clusters["green"].pids[0])
    try:
        producer = client.create_producer(str(topic))
        async with StoppedGreen(on_blue, topic, producer, process) as stopping:
            sides = Sides(replace(blue, admin_url=stopping.url), green, 5.0)
            await cut_over(sides, carried.run, carried.moves, carried.before, quiesce_seconds=0.2)
        await restore_blue(carried.sides, carried.run, carried.before, delete_topics=True)
    finally:
        process.resume()
        client.close()
    result = carried.document("cut-over.json")[str(topic.namespace)]
    assert stopping.producers == [0]
    assert (result["late"], result["duplicates"]) == ({str(topic): 1}, {str(topic): 1})


async def test_a_rate_that_somebody_sets_meanwhile_stops_the_step_and_stays(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    await make_alone(on_blue, namespace)
    original = await read_original_settings(on_blue, [namespace], "green")
    theirs = {"publishThrottlingRateInMsg": 700, "publishThrottlingRateInByte": -1}
    async with Throttle(on_blue, namespace, original) as throttle:
        # Of a namespace without a producer nothing was throttled.
        await throttle.require_held()
        await throttle.apply()
        await throttle.require_held()
        await throttle.store_again()
        await throttle.require_held()
        await on_blue.post(f"/namespaces/{namespace.path}/publishRate", theirs)
        with pytest.raises(PreconditionFailed, match="Somebody has set the publish rate"):
            await throttle.require_held()
        await throttle.store_again()
    assert await publish_rate(on_blue, namespace) == theirs


async def test_a_rate_that_is_stored_again_while_the_step_gives_up_is_restored(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    await make_alone(on_blue, namespace)
    original = await read_original_settings(on_blue, [namespace], "green")
    async with Throttle(on_blue, namespace, original) as throttle:
        await throttle.apply()
        storing = asyncio.create_task(throttle.store_again())
        await asyncio.sleep(0)
        storing.cancel()
    await asyncio.sleep(1)
    assert await publish_rate(on_blue, namespace) is None
