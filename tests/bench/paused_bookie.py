"""A bookie that answers nobody for a while, in the middle of a cut-over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Sandbox


@asynccontextmanager
async def paused_bookie(
    folder: Path, blue: ClusterConnection, namespaces: Iterable[NamespaceName], seconds: float
) -> AsyncIterator[None]:
    """Stop blue's bookie once for each namespace, up to a second after the namespace is throttled or flagged.

    :param folder: of a sandbox with more than one broker a cluster, whose first process is ZooKeeper and bookie.
    """
    bookie = psutil.Process(Sandbox.attach(folder)["blue"].processes[0].pid)
    pausing = asyncio.create_task(_pause(bookie, blue, set(namespaces), seconds))
    try:
        yield
        await asyncio.wait_for(pausing, 30)  # it was paused for every namespace
    finally:
        pausing.cancel()
        bookie.resume()


async def _pause(bookie: psutil.Process, blue: ClusterConnection, waiting: set[NamespaceName], seconds: float) -> None:
    async with AdminClient(blue) as admin:
        while waiting:
            for name in sorted(waiting, key=str):
                policies = await admin.namespace(name) or {}
                if policies.get("migrated") or policies.get("publishMaxMessageRate"):
                    waiting.remove(name)
                    await asyncio.sleep(random.uniform(0, 1))
                    bookie.suspend()
                    await asyncio.sleep(seconds)
                    bookie.resume()
            await asyncio.sleep(0.1)
