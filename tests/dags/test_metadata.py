"""`sync_metadata`, run by Airflow itself against two real clusters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dag_runs import announced, report, states
from tests.support.event_exchange import Exchange
from tests.support.reconciler import MAX_PRODUCERS, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.settings.metadata import SYNC_METADATA

pytestmark = [pytest.mark.policy_sync, pytest.mark.cluster]

Play = Callable[..., Any]
BOTH = ["pulsar_blue", "pulsar_green"]
SYNC = {"clusters": BOTH, "mode": "sync", "idle_seconds": 1}


def test_a_change_is_carried_and_an_invalid_event_fails_the_run(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    shared = new_namespace()
    exchange = Exchange.of(shared.tenant, blue, green)
    conf = {**SYNC, "selection": [shared.tenant], "event_topic": str(exchange.request.event_topic)}

    async def prepare() -> None:
        async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
            await make_namespaces([shared], on_blue, on_green)

    async def change() -> None:
        async with AdminClient(blue) as on_blue:
            await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)

    async def held_on_green() -> Any:
        async with AdminClient(green) as on_green:
            return await held(on_green, shared, (MAX_PRODUCERS[1],))

    async def check_and_remove() -> None:
        async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
            assert await held(on_green, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 5}
            await exchange.remove(on_blue, on_green)

    asyncio.run(prepare())
    quiet = play("sync_metadata", **conf)
    assert (set(states(quiet).values()), announced(quiet)) == ({"success"}, [])
    asyncio.run(change())
    compared = play("sync_metadata", **conf | {"mode": "report"})
    assert (set(states(compared).values()), announced(compared)) == ({"success"}, [])
    assert "Only compared, nothing was carried" in report(compared)
    assert asyncio.run(held_on_green()) == {MAX_PRODUCERS[1]: None}
    exchange.send(green, b"\x00 no event")
    carried = play("sync_metadata", **conf)
    assert (states(carried)["sync_changes"], states(carried)["write_report"]) == ("success", "failed")
    assert announced(carried) == ["pulsar-policies/green"]
    # It is replicated like any other message.
    assert "2 NOT APPLIED" in report(carried)
    assert "is not a MetadataChangeEvent" in report(carried)
    asyncio.run(check_and_remove())


def test_a_deletion_is_listed_and_done_by_a_run_that_names_its_batch(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    shared = new_namespace()
    exchange = Exchange.of(shared.tenant, blue, green)
    conf = {**SYNC, "selection": [shared.tenant], "event_topic": str(exchange.request.event_topic)}

    async def prepare() -> None:
        async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
            await make_namespaces([shared], on_blue, on_green)
            await exchange.settle()
            await on_green.delete(f"/namespaces/{shared.path}")

    async def exists() -> bool:
        async with AdminClient(blue) as on_blue:
            return await on_blue.namespace(shared) is not None

    async def remove() -> None:
        async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
            await exchange.remove(on_blue, on_green)

    asyncio.run(prepare())
    listed = play("sync_metadata", **conf)
    assert (set(states(listed).values()), asyncio.run(exists())) == ({"success"}, True)
    text = report(listed)
    assert f"namespace {shared}: deleted on green" in text
    (batch,) = re.findall(r"--propagate-deletes approve --allow (\w+)", text)
    carried = play("sync_metadata", **conf, propagate_deletes="approve", allow_changes=[batch])
    assert (set(states(carried).values()), asyncio.run(exists())) == ({"success"}, False)
    assert announced(carried) == ["pulsar-policies/blue"]
    asyncio.run(remove())


@pytest.mark.long
@pytest.mark.parametrize("conf", [{"snapshots": True}, {"clusters": ["pulsar_gren"]}], ids=lambda conf: ",".join(conf))
def test_a_configuration_that_cannot_be_meant_fails_in_the_first_task(play: Play, conf: dict[str, Any]) -> None:
    task_states = states(play("sync_metadata", **conf))
    assert (task_states["read_request"], task_states["sync_changes"]) == ("failed", "upstream_failed")


def test_the_environment_says_what_scheduled_runs_do() -> None:
    environment = {SYNC_METADATA.variable: '{"schedule": null, "topics": false}'}
    assert (SYNC_METADATA.schedule(environment), SYNC_METADATA.settings(environment)["topics"].default) == (None, False)
    with pytest.raises(InvalidRequest, match="did you mean 'topics'"):
        SYNC_METADATA.settings({SYNC_METADATA.variable: '{"topic": false}'})
