"""Policies of namespaces and topics that a migration overrides for a while: compared, written, read back."""

from __future__ import annotations

import asyncio
import logging

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.prepare.original_settings import Frozen, quiet_rate

log = logging.getLogger(__name__)

RATE = "publishRate"
INACTIVE = "inactiveTopicPolicies"
_VISIBLE_SECONDS = 10.0


async def override(admin: AdminClient, owner: NamespaceName | TopicName, policy: str, value: JsonObject | None) -> bool:
    """Give a namespace or topic this value, or none of its own with None; True if it had another.

    A topic's policy is answered with 204 before it can be read. `PreconditionFailed` if it cannot be read back within
    10 s.
    """
    path = _path(owner, policy)
    if await admin.get(path) == value:
        return False
    await (admin.delete(path) if value is None else admin.post(path, value))
    loop = asyncio.get_running_loop()
    end = loop.time() + _VISIBLE_SECONDS
    while (found := await admin.get(path)) != value:
        if loop.time() > end:
            raise PreconditionFailed(
                f"{admin.connection.name} did not keep {policy} {value!r} of {owner}: it answers {found!r}. "
                "Set it by hand, or run this step again."
            )
        await asyncio.sleep(0.05)
    return True


async def quiet(blue: AdminClient, namespace: NamespaceName, before: Frozen) -> None:
    """Hold every writer of the namespace to 1 message/s per topic or partition; a topic's own rate beats that."""
    own = before.own_rates(namespace)
    await asyncio.gather(*(override(blue, topic, RATE, quiet_rate(rate)) for topic, rate in own.items()))
    await override(blue, namespace, RATE, quiet_rate(before.publish_rates[str(namespace)]))


async def lift(blue: AdminClient, namespace: NamespaceName, before: Frozen) -> tuple[str, ...]:
    """Give writers back the rates that they had; returns whose had to be put back. Again changes nothing.

    The namespace comes first: it is what most writers wait for. Every topic is tried, the first failure is raised.
    """
    restored = []
    if await override(blue, namespace, RATE, before.publish_rates[str(namespace)]):
        restored.append(f"publish rate of {namespace}")
    own = before.own_rates(namespace)
    done = await asyncio.gather(
        *(override(blue, topic, RATE, rate) for topic, rate in own.items()), return_exceptions=True
    )
    for topic, result in zip(own, done, strict=True):
        if isinstance(result, BaseException):
            raise result
        if result:
            restored.append(f"publish rate of {topic}")
    return tuple(restored)


def _path(owner: NamespaceName | TopicName, policy: str) -> str:
    base = f"/namespaces/{owner.path}" if isinstance(owner, NamespaceName) else f"/{owner.path}"
    return f"{base}/{policy}"
