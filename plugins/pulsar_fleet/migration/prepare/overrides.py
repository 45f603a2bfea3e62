"""Override policies of namespaces and topics during a migration: compare, write, read back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.read_back import is_kept
from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE, is_throttle, never_deleting
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings

log = logging.getLogger(__name__)

RATE = "publishRate"
INACTIVE = "inactiveTopicPolicies"
MOST_THROTTLED_SECONDS = 40.0
"""After 54 s brokers and throttled clients close their connections (observed): the throttle is lifted before that."""


async def override(admin: AdminClient, owner: NamespaceName | TopicName, policy: str, value: JsonObject | None) -> bool:
    """Set this policy of a namespace or topic, or remove its own value with None; True if it had another value.

    The broker answers 204 before a topic's policy can be read. Where the whole cluster is redirected, no topic's policy
    is set: it would be stored on the other cluster.

    :raises PreconditionFailed: the value could not be read back within 10 s.
    """
    path = _path(owner, policy)
    if await admin.get(path) == value:
        return False
    if isinstance(owner, TopicName) and await redirects_every_topic(admin):
        return False
    await (admin.delete(path) if value is None else admin.post(path, value))
    current: Json = None

    async def kept() -> bool:
        nonlocal current
        current = await admin.get(path)
        return bool(current == value)

    if not await is_kept(kept):
        raise PreconditionFailed(
            f"{admin.connection.name} did not keep {policy} {value!r} of {owner}: it answers {current!r}. "
            "Set it by hand, or run this step again."
        )
    return True


async def restore(
    admin: AdminClient,
    owner: NamespaceName | TopicName,
    policy: str,
    *,
    is_override: Callable[[Json], bool],
    original: JsonObject | None,
) -> bool:
    """Set the original value where the policy still has the override; True if it had. Another value stays."""
    if not is_override(await admin.get(_path(owner, policy))):
        return False
    return await override(admin, owner, policy, original)


async def restore_inactive(admin: AdminClient, owner: NamespaceName | TopicName, original: JsonObject | None) -> bool:
    """Restore inactive-topic policies that were changed to delete nothing."""
    changed = never_deleting(original)
    return await restore(admin, owner, INACTIVE, is_override=lambda value: value == changed, original=original)


async def restore_rate(admin: AdminClient, owner: NamespaceName | TopicName, original: JsonObject | None) -> bool:
    """Restore the publish rate of throttled producers."""
    return await restore(admin, owner, RATE, is_override=is_throttle, original=original)


async def throttle_producers(
    blue: AdminClient, namespace: NamespaceName, original: OriginalSettings, rate: JsonObject = QUIESCED_RATE
) -> None:
    """Let each producer of the namespace publish once more and then wait, also on topics that have their own rate."""
    await asyncio.gather(*(override(blue, topic, RATE, rate) for topic in original.own_rates(namespace)))
    await override(blue, namespace, RATE, rate)


class Throttle:
    """Holds the throttle of a namespace's producers, and lifts it in every case, at the latest before clients suffer.

    Entering changes nothing, since an earlier attempt may have left the throttle: leaving restores the original rates.
    """

    def __init__(self, blue: AdminClient, namespace: NamespaceName, original: OriginalSettings) -> None:
        self._blue, self._namespace, self._original = blue, namespace, original
        self._lifting: asyncio.Task[None] | None = None
        self._is_lifted = False

    async def __aenter__(self) -> Self:
        return self

    async def apply(self, rate: JsonObject = QUIESCED_RATE) -> None:
        """Throttle the producers; with another rate than before, from now on with this one."""
        self._lifting = self._lifting or asyncio.create_task(self._lift())
        await throttle_producers(self._blue, self._namespace, self._original, rate)

    def require_held(self) -> None:
        """Refuse to go on without the throttle."""
        if self._is_lifted:
            raise PreconditionFailed(
                f"The producers of {self._namespace} were throttled for {MOST_THROTTLED_SECONDS:.0f} s, which is as "
                "long as their connections bear, and publish again. Nothing was flagged. Check the write latency of "
                "the bookies and the replication backlog; then run again.",
                cluster=self._blue.connection.name,
            )

    async def __aexit__(self, *error: object) -> None:
        if self._lifting:
            self._lifting.cancel()
            await asyncio.gather(self._lifting, return_exceptions=True)
        await restore_publish_rates(self._blue, self._namespace, self._original)

    async def _lift(self) -> None:
        await asyncio.sleep(MOST_THROTTLED_SECONDS)
        self._is_lifted = True
        log.warning("%s: the throttle is lifted after %.0f s", self._namespace, MOST_THROTTLED_SECONDS)
        await restore_publish_rates(self._blue, self._namespace, self._original)


async def restore_publish_rates(
    blue: AdminClient, namespace: NamespaceName, original: OriginalSettings
) -> tuple[str, ...]:
    """Restore the original publish rates; returns what had to be restored, nothing on a second call.

    The namespace comes first: most producers wait for it. Every topic is tried, then the first failure is raised.
    """
    restored = []
    if await restore_rate(blue, namespace, original.publish_rates[str(namespace)]):
        restored.append(f"publish rate of {namespace}")
    own = original.own_rates(namespace)
    results = await asyncio.gather(
        *(restore_rate(blue, topic, rate) for topic, rate in own.items()), return_exceptions=True
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
