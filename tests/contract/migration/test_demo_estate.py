"""The demo's estate as a newcomer finds it: migrated, failed back and migrated again on the terminal.

The topics have no subscription or no traffic, so brokers have deleted the partitions of some, and some of others.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.shell import Said, Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_sandbox.workload import Counts, Estate, EstateSpec, build_estate
from pulsar_sandbox.workload.layout import NamespacePlan


@pytest.fixture
def shell(records: Path, blue: ClusterConnection, green: ClusterConnection) -> Shell:
    """A shell in a folder of its own, with a ledger of its own."""
    return Shell.between(records, blue, green)


@pytest.fixture
async def estate(blue: ClusterConnection, on_blue: AdminClient, on_green: AdminClient) -> AsyncIterator[Estate]:
    """An estate on blue; inactive partitions are deleted as the brokers do it after a minute."""
    overrides = [await admin.dynamic_overrides() for admin in (on_blue, on_green)]
    prefix = f"demo-{uuid4().hex[:6]}-"
    spec = EstateSpec(live=f"{prefix}first/orders", prefix=prefix)
    estate = await build_estate(blue, spec)
    inactive = [topic for topic in estate.topics if topic.partitions and not topic.subscriptions and not topic.messages]
    assert inactive, "the estate has no topic of this kind: the test proves nothing"
    for number, topic in enumerate(inactive):
        for partition in topic.name.partitions(topic.partitions)[number % 2 :]:
            await on_blue.delete(f"/{partition.path}", force=True)
    yield estate
    for admin, before in zip((on_blue, on_green), overrides, strict=True):
        for key in (await admin.dynamic_overrides()).keys() - before.keys():
            await admin.unset_dynamic(key)
        for namespace in estate.namespaces:
            if await admin.namespace(namespace.name):
                await admin.post(f"/namespaces/{namespace.name.path}/migration", False)


async def consume(namespaces: Iterable[NamespacePlan], admin: AdminClient) -> None:
    """All subscriptions read what is stored."""
    for topic in (topic for namespace in namespaces for topic in namespace.topics):
        for subscription in topic.subscriptions:
            await admin.post(f"{topic.name.subscription_path(subscription.name)}/skip_all")


def runs(completed: Said) -> Any:
    assert completed.state == 0, completed.err[-6000:]
    return completed.document["runs"]


@pytest.mark.long
async def test_every_namespace_is_migrated_failed_back_and_migrated_again(
    estate: Estate, shell: Shell, on_blue: AdminClient, on_green: AdminClient
) -> None:
    tenants = [word for tenant in estate.tenants for word in ("--namespaces", tenant.name)]
    named = [word for namespace in estate.namespaces for word in ("--namespaces", namespace.name)]
    forth = ("migrate", *shell.sides, *tenants)
    # Copies that a cluster got from the other are not replicated back, so the subscriptions have read them before.
    written_again = {"id": "compacted-values-stay", "who": "ann", "why": "the application writes its values again"}
    options = (*named, "--allow-removal", "--strategy", "redirect", "--waiver", json.dumps(written_again))
    back, again = (("fail-back", *sides, *options) for sides in (shell.sides, shell.sides[::-1]))
    dry = shell.run(*forth, "--dry-run")
    assert (dry.state, "BLOCKER" in dry.err) == (0, False), dry.err[-6000:]
    ways = ((forth, on_blue, on_green), (back, on_green, on_blue), (again, on_blue, on_green))
    for command, closed, opened in ways:
        if command is not forth:
            await consume(estate.namespaces, closed)
        for run in runs(shell.run(*command, "--yes", "--json")):
            assert run["failed"] == [], run
        for namespace in estate.namespaces:
            flags = [(await admin.namespace(namespace.name) or {}).get("migrated") for admin in (closed, opened)]
            assert flags == [True, False], namespace.name
        # What subscriptions have read stays on the other cluster, and nothing else.
        read = Counts() if command is forth else Counts(messages=estate.holds.messages, backlog=estate.holds.backlog)
        assert (await build_estate(opened.connection, estate.spec)).created == read
