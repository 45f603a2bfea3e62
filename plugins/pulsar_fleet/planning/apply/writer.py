"""Read and write one cluster for changes: bounded, guarded, and in sequence where the broker needs it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName, with_parent
from pulsar_fleet.cluster.policies.model import OWN_LIST
from pulsar_fleet.cluster.redaction import Redactor, restore_secrets
from pulsar_fleet.cluster.versions import KEEPS_TOPIC_POLICIES
from pulsar_fleet.planning.apply.live_state import LiveState
from pulsar_fleet.planning.apply.outcome import check_creation
from pulsar_fleet.planning.changes.limits import with_both_limits
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.guards import guard_call
from pulsar_fleet.planning.plan import Action, Change
from pulsar_fleet.snapshot.resources import read_clusters_in_effect
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

_POSITION_NOT_STORED = "unable to persist readPosition"
_RETRY_SECONDS = (1.0, 5.0)
_POLL_SECONDS = 0.02
_READABLE_SECONDS = 5.0
# To set a policy the broker visits all topics of the namespace; isolation and failure domains share one document.
_SEQUENTIAL = (Resource.NAMESPACE, Resource.POLICY, Resource.FAILURE_DOMAIN, Resource.ISOLATION)


@dataclass(kw_only=True)
class Writer:
    """The target of a plan.

    :param own: the cluster name that its brokers report.
    :param secrets: fingerprint → secret.
    """

    admin: AdminClient
    own: str
    redactor: Redactor
    secrets: Mapping[str, str]
    reader: TopicPolicyReader

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.admin.connection.max_connections)

    async def read(self, changes: Sequence[Change]) -> LiveState:
        """The current state that changes of one kind and one namespace share."""
        async with self._slots:
            return await LiveState.read(self.admin, changes, self.own, self.redactor, self.reader)

    async def values(self, changes: Sequence[Change], live: LiveState) -> list[Json | FleetError]:
        """The live value of each change, or the error of reading it."""
        return await asyncio.gather(*(self._value(change, live) for change in changes))

    async def send_all(self, changes: Sequence[Change], begun: Sequence[bool]) -> list[FleetError | None]:
        """Send the calls of each change; the error where the broker did not confirm it."""
        locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        slowly = any(change.resource is Resource.TOPIC_POLICY for change in changes) and not KEEPS_TOPIC_POLICIES.holds(
            await self.admin.version()
        )

        limited = with_both_limits(changes)

        async def in_sequence(change: Change, finish: bool) -> FleetError | None:
            confirm = change.resource is Resource.TOPIC_POLICY and (slowly or change.name in limited)
            async with locks[change.name if confirm else _sequence(change)]:
                return await self._send(change, finish, confirm)

        return await asyncio.gather(*(in_sequence(*pair) for pair in zip(changes, begun, strict=True)))

    async def _value(self, change: Change, live: LiveState) -> Json | FleetError:
        async with self._slots:
            try:
                return await live.value(change)
            except FleetError as error:
                return error

    async def _send(self, change: Change, finish: bool, confirm: bool) -> FleetError | None:
        """Send a change; with `finish`, an earlier attempt may have made some of its calls.

        :param confirm: wait after each call until the broker shows it.
        """
        failed: FleetError | None = None
        async with self._slots:
            try:
                await self._require_no_cluster_cut(change)
            except FleetError as error:
                return error
            for call in change.calls:
                try:
                    await (self._send_shown(call) if confirm else self._send_call(change, call))
                except Conflict as error:
                    failed = error
                    if not finish:
                        break
                except FleetError as error:
                    return error
        return failed

    async def _send_shown(self, call: Call) -> None:
        """Send a call for a topic policy and wait until the broker shows another value than before.

        Brokers read a policy of a topic from an event, after they have answered the call that wrote it: until then a
        backlog quota is compared with the retention before that call (observed, 4.2.4). A broker of Pulsar 3.0 writes
        all policies of a topic with each of them, from what it has read so far: the next call would remove this one
        (observed).
        """
        path = f"{call.path}Map" if call.path.endswith("/backlogQuota") else call.path
        scope: dict[str, Any] = {key: value for key, value in call.params if key == "isGlobal"}
        before = await self.admin.get(path, **scope)
        await self._call(call)
        deadline = time.monotonic() + _READABLE_SECONDS
        while await self.admin.get(path, **scope) == before and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)

    async def _send_call(self, change: Change, call: Call) -> None:
        """Send a call; retry when a busy broker creates a subscription and cannot store its position (observed).

        That subscription starts at the end of the topic, so it is deleted before the next attempt.
        """
        for seconds in _RETRY_SECONDS:
            try:
                return await self._call(call)
            except InvalidRequest as error:
                creates = (change.resource, change.action) == (Resource.SUBSCRIPTION, Action.CREATE)
                if not creates or _POSITION_NOT_STORED not in str(error):
                    raise
                log.warning("%s; retry in %.0f s", error, seconds)
                await asyncio.sleep(seconds)
                with suppress(NotFound):
                    await self.admin.delete(call.path)
        return await self._call(call)

    async def _call(self, call: Call) -> None:
        guard_call(call, self.own)
        check_creation(call, self.own)
        if call.method == "DELETE" and call.path.startswith("/clusters/") and call.path.count("/") == 2:
            await self._require_unused(unquote(call.path.rpartition("/")[2]))
        await self.admin.send(replace(call, body=restore_secrets(call.body, self.secrets)))

    async def _require_no_cluster_cut(self, change: Change) -> None:
        """Refuse a list of a topic's own that ends replication which the plan did not see.

        The list of its namespace counts for the topic until then, and may have grown since the plan.
        """
        own_list = change.resource is Resource.TOPIC_POLICY and change.field == OWN_LIST
        if not own_list or change.hazard.needs_permission:
            return
        topic = TopicName.parse(change.name)
        current = await read_clusters_in_effect(self.admin, topic)
        after = change.after or await read_clusters_in_effect(self.admin, topic, without_own=True)
        if cut := sorted({*current} - {*after}):
            raise PreconditionFailed(
                f"The list in effect for {topic} on {self.own} is {', '.join(current)} by now, and the planned change "
                f"leaves {', '.join(sorted(after))}: replication to {', '.join(cut)} would end. Nothing was sent: plan "
                "again.",
                cluster=self.own,
            )

    async def _require_unused(self, cluster: str) -> None:
        """Refuse to delete a cluster in use: the broker would delete it even while namespaces replicate to it."""
        for name in await self.admin.tenants():
            if cluster in ((await self.admin.tenant(name)) or {}).get("allowedClusters", ()):
                raise PreconditionFailed(
                    f"Cluster {cluster!r} is not deleted, because tenant {name!r} on {self.own!r} still allows it: "
                    "remove it from the tenant's allowed clusters first.",
                    cluster=self.own,
                )


def _sequence(change: Change) -> str:
    """The key of a sequence: changes with the same key are sent in order, never concurrently."""
    if change.resource in _SEQUENTIAL:
        return change.resource.value
    # A change of a subscription can unload its topic while the next one is sent.
    return min(with_parent(change.name), key=len) if change.resource is Resource.SUBSCRIPTION else change.id


def may_have_taken_effect(error: FleetError | None) -> bool:
    """Whether the change may be in place despite the error: the answer was lost, or a retry met the first attempt."""
    return error is None or isinstance(error, Conflict | NotFound | Unavailable)
