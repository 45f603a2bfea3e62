"""Read and write one cluster for changes: bounded, guarded, and one by one where the broker needs it."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.redaction import Redactor, restore_secrets
from pulsar_fleet.planning.apply.live_state import Live
from pulsar_fleet.planning.apply.outcome import check_creation
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.guards import guard_call
from pulsar_fleet.planning.plan import Action, Change
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

_UNPLACED = "unable to persist readPosition"
_PLACING_AGAIN = (1.0, 5.0)
# Setting a policy makes the broker walk over all topics of the namespace, and placement lies in one document.
_ONE_BY_ONE = (Resource.NAMESPACE, Resource.POLICY, Resource.FAILURE_DOMAIN, Resource.ISOLATION)


@dataclass(kw_only=True)
class Writer:
    """The target of a plan.

    :param own: the name that its brokers gave.
    :param secrets: fingerprint → secret.
    """

    admin: AdminClient
    own: str
    seal: Redactor
    secrets: Mapping[str, str]
    reader: TopicPolicyReader

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.admin.connection.max_connections)

    async def read(self, changes: Sequence[Change]) -> Live:
        """What changes of one kind and one namespace have in common."""
        async with self._slots:
            return await Live.read(self.admin, changes, self.own, self.seal, self.reader)

    async def values(self, changes: Sequence[Change], live: Live) -> list[Json | FleetError]:
        """The live value of each change, or why it cannot be told."""
        return await asyncio.gather(*(self._value(change, live) for change in changes))

    async def send_all(self, changes: Sequence[Change], begun: Sequence[bool]) -> list[FleetError | None]:
        """Send the calls of each change; the error where the broker did not say that it was made."""
        lanes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

        async def in_lane(change: Change, finish: bool) -> FleetError | None:
            async with lanes[_lane(change)]:
                return await self._send(change, finish)

        return await asyncio.gather(*(in_lane(*pair) for pair in zip(changes, begun, strict=True)))

    async def _value(self, change: Change, live: Live) -> Json | FleetError:
        async with self._slots:
            try:
                return await live.value(change)
            except FleetError as error:
                return error

    async def _send(self, change: Change, finish: bool) -> FleetError | None:
        """Send a change; with `finish`, calls that an earlier attempt made may be there already."""
        failed: FleetError | None = None
        async with self._slots:
            for call in change.calls:
                try:
                    await self._send_call(change, call)
                except Conflict as error:
                    failed = error
                    if not finish:
                        break
                except FleetError as error:
                    return error
        return failed

    async def _send_call(self, change: Change, call: Call) -> None:
        """Send a call, a few times where a busy broker makes a subscription and cannot set its position (observed).

        What it leaves then stands at the end of the topic, so it is removed before the next try.
        """
        for seconds in _PLACING_AGAIN:
            try:
                return await self._call(call)
            except InvalidRequest as error:
                creates = (change.resource, change.action) == (Resource.SUBSCRIPTION, Action.CREATE)
                if not creates or _UNPLACED not in str(error):
                    raise
                log.warning("%s; made again in %.0f s", error, seconds)
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

    async def _require_unused(self, cluster: str) -> None:
        """The broker forgets a cluster even while namespaces replicate to it, so its users are looked for here."""
        for name in await self.admin.tenants():
            if cluster in ((await self.admin.tenant(name)) or {}).get("allowedClusters", ()):
                raise PreconditionFailed(
                    f"Cluster {cluster!r} is still allowed to tenant {name!r} on {self.own!r}, so it is not deleted: "
                    "take it from the tenant's list first.",
                    cluster=self.own,
                )


def _lane(change: Change) -> str:
    """Changes in one lane are sent one after the other, in order."""
    if change.resource in _ONE_BY_ONE:
        return change.resource.value
    # What is done to a subscription can unload its topic under the next one.
    return change.name if change.resource is Resource.SUBSCRIPTION else change.id


def may_have_been_made(error: FleetError | None) -> bool:
    """Whether the change may be in place all the same: an answer got lost, or a second try met the first."""
    return error is None or isinstance(error, Conflict | Unavailable)
