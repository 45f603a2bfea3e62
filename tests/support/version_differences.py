"""How the documents and setters of Pulsar's versions differ, for tests between clusters of two versions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.namespace_catalogue import is_supported
from pulsar_fleet.cluster.versions import KEEPS_TOPIC_POLICIES

SINCE = {
    "allowedTopicPropertyKeysForMetrics": "4.2",
    "subscriptionExpirationTime?topic": "4.2",
    "dispatcherPauseOnAckStatePersistent": "4.0",
    "dispatcherPauseOnAckStatePersistent?topic": "4.0",
}
"""Setter of a namespace, or with `?topic` of a topic → the first version that has it, where 3.0.7 lacks it."""

Settings = tuple[tuple[str, Json, dict[str, str]], ...]
"""Path, body and query of setters, called by POST unless the path says PUT."""
NO_SCOPE: Mapping[str, str] = {}
NO_BODY = object()
"""The body of a setter without one."""
SHOWN_SECONDS = 60.0
"""How long a busy broker may take to show a policy that was set: the next one that is set before that undoes it."""

ADDED = {
    "migrated": False,
    "maxDeliveryDelayInMillis": 0,
    "delayedDeliveryMaxDelayInMillis": 0,
    "managedLedgerOffloadReadThreads": 2,
    "managedLedgerExtraConfigurations": {},
    "is_allow_auto_update_schema_with_replicator": True,
}
"""What a broker adds to a document that an older one wrote."""


def without_added(newer: Json, older: Json) -> Json:
    """The document of a newer broker without what it adds to that of an older one."""
    if not isinstance(newer, dict) or not isinstance(older, dict):
        return newer
    return {
        key: without_added(value, older.get(key))
        for key, value in newer.items()
        if key in older or (value is not None and (key, value) not in ADDED.items())
    }


async def set_all(admin: AdminClient, base: str, settings: Settings, scope: Mapping[str, str] = NO_SCOPE) -> None:
    """Call every setter that the cluster's version has, of a namespace or a topic with this path."""
    version = await admin.version()
    for path, body, query in settings:
        name = f"{path}?topic" if base.startswith("/persistent") else path
        if is_supported(SINCE.get(name, ""), version):
            await set_policy(admin, base, path, body, {**query, **scope})


async def set_policy(admin: AdminClient, base: str, path: str, body: Json, query: Mapping[str, str]) -> None:
    """Call a setter of a namespace or a topic (POST, or `PUT …`); an old broker has to show a topic policy first."""
    send, path = (admin.put, path.removeprefix("PUT ")) if path.startswith("PUT ") else (admin.post, path)
    shown = f"{base}/{path}Map" if path == "backlogQuota" else f"{base}/{path}"
    scope = {key: value for key, value in query.items() if key == "isGlobal"}
    slowly = base.startswith("/persistent") and not KEEPS_TOPIC_POLICIES.holds(await admin.version())
    before = await admin.get(shown, **scope) if slowly else None
    await send(f"{base}/{path}", *([] if body is NO_BODY else [body]), **query)
    if not slowly or before == body:
        return
    async with asyncio.timeout(SHOWN_SECONDS):
        while await admin.get(shown, **scope) == before:
            await asyncio.sleep(0.02)
