"""From the freeze on: the throttle is lifted at once, overrides are restored, incidents are detected and remediated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.migration import LATE, RATE, TOPIC_RATE, UNREAD, Migration, make, migration, overridden
from tests.support.proxy import CUT, Proxy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE
from pulsar_fleet.migration.drain.steps import DrainStatus
from pulsar_fleet.migration.prepare import lease
from pulsar_sandbox import Sandbox
from pulsar_sandbox.workload import Traffic, drain_subscription
from pulsar_sandbox.workload.live import AUDIT, EVENTS

pytestmark = pytest.mark.cluster

CALLS_PER_PARTITION = 12
NewNamespace = Callable[[], NamespaceName]


class CutAfter(Proxy):
    """A network that fails for good with the request that ends in `path`, which the broker still gets."""

    def __init__(self, upstream: str, path: str) -> None:
        super().__init__(upstream)
        self._path = path

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        answered = await super()._forward(head, body)
        if head.split(b" ")[0] == b"POST" and self.seen[-1].target.endswith(self._path):
            self.otherwise = CUT
            return b""
        return answered


@pytest.fixture
async def moving(
    blue: ClusterConnection, green: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> Migration:
    """A namespace that can move."""
    name = new_namespace()
    await make(blue, green, name)
    return migration(blue, green, name, tmp_path)


@pytest.fixture
def traffic(moving: Migration, blue: ClusterConnection, tmp_path: Path) -> Iterator[Traffic]:
    """Batched traffic on it, with consumers of every type of subscription."""
    with Traffic.start(blue, namespace=moving.namespace, folder=tmp_path / "traffic", restart_seconds=10) as running:
        yield running


async def test_clients_move_under_traffic_and_nothing_stays_overridden(
    moving: Migration, traffic: Traffic, on_blue: AdminClient, blue: ClusterConnection, green: ClusterConnection
) -> None:
    before = await overridden(on_blue, moving.namespace)
    async with Proxy(blue.admin_url) as to_blue, Proxy(green.admin_url) as to_green:
        through = moving.through(blue=to_blue.url, green=to_green.url)
        await through.freeze_blue()
        await through.switch()
        lifted = await overridden(on_blue, moving.namespace)
        assert (lifted["namespace publishRate"], lifted[f"{EVENTS} publishRate"]) == (RATE, TOPIC_RATE)
        assert lifted[f"{AUDIT} inactiveTopicPolicies"]["deleteWhileInactive"] is False
        assert len(drain_subscription(blue, moving.topic(LATE), LATE, at_least=UNREAD)) == UNREAD
        await through.monitor_until_drained()
        await through.restore_blue()
        targets = [record.target for record in (*to_blue.seen, *to_green.seen)]
        about_topics = [target for target in targets if f"/persistent/{moving.namespace.path}/" in target]
    assert await overridden(on_blue, moving.namespace) == before
    assert len(about_topics) <= CALLS_PER_PARTITION * len(moving.moves.moves[0].partitions)
    assert [record["kind"] for record in moving.monitored()["incidents"].values() if record["remedy"] != "wait"] == []
    tally = await asyncio.to_thread(traffic.stop)
    assert (tally.lost, tally.order_breaks) == (0, 0), tally.text()


@pytest.mark.long
async def test_a_throttle_left_by_a_cut_network_is_lifted_by_the_teardown(
    moving: Migration, on_blue: AdminClient, blue: ClusterConnection
) -> None:
    await moving.freeze_blue()
    async with CutAfter(blue.admin_url, "/migration") as cut:
        with pytest.raises(Unavailable):
            await moving.through(blue=cut.url).impatient().switch()
        throttled = await overridden(on_blue, moving.namespace)
        assert throttled["namespace publishRate"] == QUIESCED_RATE
        with pytest.raises(Unavailable, match="could not be restored"):
            await moving.through(blue=cut.url).impatient().restore_blue()
    assert f"publish rate of {moving.topic(EVENTS)}" in await moving.restore_blue()
    await moving.switch()
    healed = await overridden(on_blue, moving.namespace)
    assert (healed["namespace publishRate"], healed[f"{EVENTS} publishRate"]) == (RATE, TOPIC_RATE)


@pytest.mark.long
async def test_a_green_that_is_down_at_the_switch_leaves_blue_untouched(
    moving: Migration, traffic: Traffic, clusters: Sandbox, on_blue: AdminClient
) -> None:
    await moving.freeze_blue()
    before = await overridden(on_blue, moving.namespace)
    clusters["green"].kill()
    try:
        with pytest.raises(Unavailable, match="green"):
            await moving.impatient().switch()
    finally:
        await asyncio.to_thread(clusters["green"].restart)
    assert await overridden(on_blue, moving.namespace) == before
    assert not (await on_blue.namespace(moving.namespace) or {}).get("migrated")
    await moving.restore_blue()
    assert (await asyncio.to_thread(traffic.stop)).lost == 0


@pytest.mark.long
async def test_topics_stranded_by_an_unload_or_a_kill_are_served_again(
    moving: Migration, traffic: Traffic, clusters: Sandbox, on_blue: AdminClient, blue: ClusterConnection
) -> None:
    await moving.freeze_blue()
    await moving.switch()
    # From here on it is known in which bundle each partition was.
    await moving.monitor_drain()
    await on_blue.put(f"/namespaces/{moving.namespace.path}/unload")
    unloaded = await until_remediable(moving)
    assert {incident.kind.value for incident in unloaded.remediable} <= {"topic-unloaded", "bundle-moved"}
    assert {str(moving.topic(LATE))} <= {topic for incident in unloaded.remediable for topic in incident.topics}
    assert int((await on_blue.stats(moving.topic(LATE)))["subscriptions"][LATE]["msgBacklog"]) > 0

    clusters["blue"].kill()
    lease._renewed.clear()  # its renewal is due just now
    try:
        down = await moving.monitor_drain()
    finally:
        await asyncio.to_thread(clusters["blue"].restart)
    assert not down.is_done
    assert {"broker-unreachable", "statistics-incomplete"} <= {incident.kind.value for incident in down.incidents}
    restarted = await until_remediable(moving)
    assert {incident.kind.value for incident in restarted.remediable} == {"broker-restarted"}

    read = drain_subscription(blue, moving.topic(LATE), LATE, at_least=UNREAD)
    assert len(set(read)) == UNREAD
    await moving.monitor_until_drained()
    applied = [change for change in moving.run.ledger.changes(moving.run.id) if change.outcome == "applied"]
    assert len(applied) == 2
    await moving.restore_blue()
    tally = await asyncio.to_thread(traffic.stop)
    assert tally.lost == 0, tally.text()


async def until_remediable(moving: Migration) -> DrainStatus:
    """Monitor until an incident was remediated."""
    while not (status := await moving.monitor_drain()).remediable:
        await asyncio.sleep(1)
    return status
