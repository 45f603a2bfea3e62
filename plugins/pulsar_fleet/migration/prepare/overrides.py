"""Override policies of namespaces and topics during a migration, and keep their original values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.polling import all_ended, is_kept
from pulsar_fleet.cluster.runs.overrides import (
    QUIESCED_RATE,
    NamespaceOverrides,
    is_held,
    is_throttle,
    never_deleting,
    without_added,
)
from pulsar_fleet.links.cluster_lists import start_replicators
from pulsar_fleet.snapshot.model import Snapshot, TenantState


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalSettings(Document):
    """The original values of what the migration overrides in blue's namespaces.

    :param green: the cluster that the run adds to tenants and to the namespaces' replication clusters.
    :param publish_rates: namespace → its publish rate, None where there was none.
    :param replication: namespace → its `replication_clusters`.
    :param allowed: tenant → the clusters that it allows.
    :param inactive: namespace → its inactive-topic policies, None where there were none.
    :param topic_rates: topic with its own publish rate → the local rate, None where only a global rate is set.
    :param topic_inactive: topic with its own inactive-topic policies → the local policies, None as above.
    :param topic_replication: topic with its own list of clusters, local or global, without green → the list.
    :param replicator_rates: namespace whose replication a run holds → its dispatch rate, None where there was none.
    :param topic_replicator_rates: topic with its own of these → the local rate, None where only a global one is set.
    """

    SCHEMA_VERSION = 3
    OTHER_VERSION = "start a new run"

    green: str
    publish_rates: Mapping[str, JsonObject | None]
    replication: Mapping[str, list[str]]
    allowed: Mapping[str, list[str]] = field(default_factory=dict)
    inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_replication: Mapping[str, list[str]] = field(default_factory=dict)
    replicator_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_replicator_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces whose settings it holds."""
        return tuple(NamespaceName.parse(text) for text in self.publish_rates)

    def without(self, names: Collection[str]) -> OriginalSettings:
        """Those of the other namespaces, and of tenants that have none of these namespaces."""
        tenants = {NamespaceName.parse(name).tenant for name in names}
        return replace(
            self,
            publish_rates={name: rate for name, rate in self.publish_rates.items() if name not in names},
            allowed={tenant: clusters for tenant, clusters in self.allowed.items() if tenant not in tenants},
        )

    def own_rates(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have their own publish rate."""
        return _within(self.topic_rates, namespace)

    def own_inactive(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have their own inactive-topic policies."""
        return _within(self.topic_inactive, namespace)

    def own_lists(self, namespace: NamespaceName) -> dict[TopicName, list[str]]:
        """Topics of a namespace that have their own list of clusters, without green."""
        return _within(self.topic_replication, namespace)

    def record(self, namespace: NamespaceName, *, run: str, since: str, cluster: str) -> NamespaceOverrides:
        """The record of a namespace that is stored on the cluster."""
        name = str(namespace)
        return NamespaceOverrides(
            run=run,
            since=since,
            cluster=cluster,
            replicates_to=self.green,
            publish_rate=self.publish_rates[name],
            inactive=self.inactive[name],
            replication=self.replication[name],
            allowed=self.allowed.get(namespace.tenant),
            topic_rates={str(topic): rate for topic, rate in self.own_rates(namespace).items()},
            topic_inactive={str(topic): value for topic, value in self.own_inactive(namespace).items()},
            topic_replication={str(topic): clusters for topic, clusters in self.own_lists(namespace).items()},
        )

    @classmethod
    def recorded(cls, records: Mapping[str, NamespaceOverrides]) -> OriginalSettings:
        """From the records of namespaces, by name."""
        return cls(
            green=next((record.replicates_to for record in records.values()), ""),
            publish_rates={name: record.publish_rate for name, record in records.items()},
            replication={name: record.replication for name, record in records.items()},
            allowed={
                NamespaceName.parse(name).tenant: record.allowed
                for name, record in records.items()
                if record.allowed is not None
            },
            inactive={name: record.inactive for name, record in records.items()},
            topic_rates={topic: rate for record in records.values() for topic, rate in record.topic_rates.items()},
            topic_inactive={topic: own for record in records.values() for topic, own in record.topic_inactive.items()},
            topic_replication={
                topic: clusters for record in records.values() for topic, clusters in record.topic_replication.items()
            },
            replicator_rates={
                name: record.replicator_rate for name, record in records.items() if record.holds_replication
            },
            topic_replicator_rates={
                topic: rate for record in records.values() for topic, rate in record.topic_replicator_rates.items()
            },
        )


def with_original_tenants(snapshot: Snapshot, original: OriginalSettings) -> Snapshot:
    """The snapshot of blue with tenants that do not allow green, unless they did before.

    Snapshots have the original policies of namespaces and topics, which are recorded on the cluster; a tenant has no
    place for a record.
    """
    return replace(snapshot, tenants=tuple(_original_tenant(state, original) for state in snapshot.tenants))


def _original_tenant(state: TenantState, original: OriginalSettings) -> TenantState:
    allowed = original.allowed.get(state.name)
    if allowed is None:
        return state
    return replace(state, allowed_clusters=tuple(without_added(state.allowed_clusters, original.green, allowed)))


def _within(topics: Mapping[str, Json], namespace: NamespaceName) -> dict[TopicName, Json]:
    named = {TopicName.parse(text): value for text, value in topics.items()}
    return {topic: value for topic, value in named.items() if topic.namespace == namespace}


log = logging.getLogger(__name__)

RATE = "publishRate"
INACTIVE = "inactiveTopicPolicies"
REPLICATOR_RATE = "replicatorDispatchRate"
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
    setters = (override(blue, topic, RATE, rate) for topic in original.own_rates(namespace))
    # All end before an error is raised: one that ends later would be lifted by nobody.
    await all_ended(*setters)
    await override(blue, namespace, RATE, rate)


class Throttle:
    """Holds the throttle of a namespace's producers, and lifts it in every case, at the latest before clients suffer.

    Entering changes nothing, since an earlier attempt may have left the throttle: leaving restores the original rates.
    """

    def __init__(self, blue: AdminClient, namespace: NamespaceName, original: OriginalSettings) -> None:
        self._blue, self._namespace, self._original = blue, namespace, original
        self._lifting: asyncio.Task[None] | None = None
        self._is_lifted = False
        self._rate = QUIESCED_RATE
        self._storing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def apply(self, rate: JsonObject = QUIESCED_RATE) -> None:
        """Throttle the producers; with another rate than before, from now on with this one."""
        self._lifting = self._lifting or asyncio.create_task(self._lift())
        self._rate = rate
        await throttle_producers(self._blue, self._namespace, self._original, rate)

    async def store_again(self) -> None:
        """Store the same rate of the namespace once more, so that brokers apply it; not where it was lifted."""
        # It ends before the rate is restored, also where the caller gives up: nobody would lift what is stored later.
        self._storing = asyncio.create_task(self._store_again())
        await asyncio.shield(self._storing)

    async def _store_again(self) -> None:
        if self._lifting and not self._is_lifted and await publish_rate(self._blue, self._namespace) == self._rate:
            await self._blue.post(_path(self._namespace, RATE), self._rate)

    async def _end_storing(self) -> None:
        if self._storing:
            await asyncio.gather(self._storing, return_exceptions=True)

    async def require_held(self) -> None:
        """Refuse to go on without the throttle that was applied: lifted by itself, or by somebody else. A call."""
        if self._is_lifted:
            raise PreconditionFailed(
                f"The producers of {self._namespace} were throttled for {MOST_THROTTLED_SECONDS:.0f} s, which is as "
                "long as their connections bear, and publish again. Nothing was flagged. Check the write latency of "
                "the bookies and the replication backlog; then run again.",
                cluster=self._blue.connection.name,
            )
        if self._lifting and not is_throttle(rate := await publish_rate(self._blue, self._namespace)):
            raise PreconditionFailed(
                f"Somebody has set the publish rate of {self._namespace}, which held its producers, to {rate}: they "
                "publish again. Nothing was flagged, and no client was moved. Clear this task.",
                cluster=self._blue.connection.name,
            )

    async def __aexit__(self, *error: object) -> None:
        if self._lifting:
            self._lifting.cancel()
            await asyncio.gather(self._lifting, return_exceptions=True)
        await self._end_storing()
        await restore_publish_rates(self._blue, self._namespace, self._original)

    async def _lift(self) -> None:
        await asyncio.sleep(MOST_THROTTLED_SECONDS)
        self._is_lifted = True
        log.warning("%s: the throttle is lifted after %.0f s", self._namespace, MOST_THROTTLED_SECONDS)
        await self._end_storing()
        await restore_publish_rates(self._blue, self._namespace, self._original)


async def publish_rate(admin: AdminClient, owner: NamespaceName | TopicName) -> JsonObject | None:
    """The own publish rate of a namespace or topic; None without one."""
    rate: JsonObject | None = await admin.get(_path(owner, RATE))
    return rate


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
    results = await all_ended(*(restore_rate(blue, topic, rate) for topic, rate in own.items()))
    changed = [topic for topic, result in zip(own, results, strict=True) if result]
    return (*restored, *(f"publish rate of {topic}" for topic in changed))


async def release_replication(
    admin: AdminClient, namespace: NamespaceName, original: OriginalSettings
) -> tuple[str, ...]:
    """Restore the dispatch rates of replicators that a run holds, and start them; returns what had to be restored."""
    owners: dict[NamespaceName | TopicName, JsonObject | None] = {
        topic: rate for topic, rate in _within(original.topic_replicator_rates, namespace).items()
    }
    if str(namespace) in original.replicator_rates:
        owners[namespace] = original.replicator_rates[str(namespace)]

    async def lift(owner: NamespaceName | TopicName) -> bool:
        try:
            return await restore(admin, owner, REPLICATOR_RATE, is_override=is_held, original=owners[owner])
        except NotFound:
            # A topic that was deleted meanwhile.
            return False

    results = await all_ended(*map(lift, owners))
    if owners:
        # Also where nothing was held any more: who lifted it may have died before this.
        await start_replicators(admin, namespace)
    changed = [owner for owner, result in zip(owners, results, strict=True) if result]
    return tuple(f"dispatch rate of replicators of {owner}" for owner in changed)


def _path(owner: NamespaceName | TopicName, policy: str) -> str:
    base = f"/namespaces/{owner.path}" if isinstance(owner, NamespaceName) else f"/{owner.path}"
    return f"{base}/{policy}"
