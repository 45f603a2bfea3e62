"""Override policies of namespaces and topics during a migration: compare, write, read back."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings, quiesce_rate

RATE = "publishRate"
INACTIVE = "inactiveTopicPolicies"
_VISIBLE_SECONDS = 10.0


async def override(admin: AdminClient, owner: NamespaceName | TopicName, policy: str, value: JsonObject | None) -> bool:
    """Set this policy of a namespace or topic, or remove its own value with None; True if it had another value.

    The broker answers 204 before a topic's policy can be read.

    :raises PreconditionFailed: the value could not be read back within 10 s.
    """
    path = _path(owner, policy)
    if await admin.get(path) == value:
        return False
    await (admin.delete(path) if value is None else admin.post(path, value))
    loop = asyncio.get_running_loop()
    end = loop.time() + _VISIBLE_SECONDS
    while (current := await admin.get(path)) != value:
        if loop.time() > end:
            raise PreconditionFailed(
                f"{admin.connection.name} did not keep {policy} {value!r} of {owner}: it answers {current!r}. "
                "Set it by hand, or run this step again."
            )
        await asyncio.sleep(0.05)
    return True


async def throttle_producers(blue: AdminClient, namespace: NamespaceName, original: OriginalSettings) -> None:
    """Limit the namespace to 1 message/s per topic or partition, also topics that have their own rate."""
    own = original.own_rates(namespace)
    await asyncio.gather(*(override(blue, topic, RATE, quiesce_rate(rate)) for topic, rate in own.items()))
    await override(blue, namespace, RATE, quiesce_rate(original.publish_rates[str(namespace)]))


async def restore_publish_rates(
    blue: AdminClient, namespace: NamespaceName, original: OriginalSettings
) -> tuple[str, ...]:
    """Restore the original publish rates; returns what had to be restored, nothing on a second call.

    The namespace comes first: most producers wait for it. Every topic is tried, then the first failure is raised.
    """
    restored = []
    if await override(blue, namespace, RATE, original.publish_rates[str(namespace)]):
        restored.append(f"publish rate of {namespace}")
    own = original.own_rates(namespace)
    results = await asyncio.gather(
        *(override(blue, topic, RATE, rate) for topic, rate in own.items()), return_exceptions=True
    )
    for topic, result in zip(own, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        if result:
            restored.append(f"publish rate of {topic}")
    return tuple(restored)


def _path(owner: NamespaceName | TopicName, policy: str) -> str:
    base = f"/namespaces/{owner.path}" if isinstance(owner, NamespaceName) else f"/{owner.path}"
    return f"{base}/{policy}"
