"""Keep blue still while namespaces move, and put everything back afterwards, whatever happened in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName

log = logging.getLogger(__name__)

DELETION = "brokerDeleteInactiveTopicsEnabled"
"""Pattern consumers lose their topics on green when blue deletes them (observed), so it stays off after the switch."""

FROZEN_SETTINGS: Mapping[str, str] = {
    # An unloaded topic of a flagged namespace cannot be loaded again: nothing may move while it drains.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
    DELETION: "false",
}
REPLICATION_START = ("replicationStartAt", "earliest")
_CONFIRM_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Frozen:
    """How blue was before: enough to restore it exactly.

    :param dynamic: setting → its override, None where there was none (then it is removed again, not set).
    :param publish_rates: namespace → its publish rate, None where there was none.
    :param replication: namespace → its `replication_clusters`.
    """

    dynamic: Mapping[str, str | None]
    publish_rates: Mapping[str, JsonObject | None]
    replication: Mapping[str, list[str]]

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 1,
            "dynamic": dict(self.dynamic),
            "publish_rates": dict(self.publish_rates),
            "replication": dict(self.replication),
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(found["dynamic"], found["publish_rates"], found["replication"])


async def remember(blue: AdminClient, namespaces: Iterable[NamespaceName]) -> Frozen:
    """Read everything that the migration is going to override. Call it once, before the first override."""
    overrides = await blue.dynamic_overrides()
    names = list(namespaces)
    rates = await asyncio.gather(*(publish_rate(blue, name) for name in names))
    policies = await asyncio.gather(*(blue.namespace(name) for name in names))
    return Frozen(
        dynamic={key: overrides.get(key) for key in (*FROZEN_SETTINGS, REPLICATION_START[0])},
        publish_rates={str(name): rate for name, rate in zip(names, rates, strict=True)},
        replication={
            str(name): list((found or {}).get("replication_clusters") or [])
            for name, found in zip(names, policies, strict=True)
        },
    )


async def freeze(blue: AdminClient, settings: Mapping[str, str]) -> None:
    """Set dynamic settings and wait until every broker shows them; again changes nothing.

    :raises Refused: a broker did not take a value within 10 s (the broker accepts any text with 200).
    """
    overrides = await blue.dynamic_overrides()
    for key, value in settings.items():
        if overrides.get(key) != value:
            log.info("blue: %s = %s (was %s)", key, value, overrides.get(key, "not overridden"))
            await blue.set_dynamic(key, value)
    for broker in await blue.brokers():
        await _confirm(blue, broker, settings)


async def thaw(blue: AdminClient, before: Frozen, *, keep: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Put back what `remember` read, without the settings in `keep`; returns what had to be put back.

    Again changes nothing and returns nothing.
    """
    restored: list[str] = []
    overrides = await blue.dynamic_overrides()
    for key, value in before.dynamic.items():
        if key in keep or overrides.get(key) == value:
            continue
        await (blue.unset_dynamic(key) if value is None else blue.set_dynamic(key, value))
        restored.append(key)
    for text, rate in before.publish_rates.items():
        name = NamespaceName.parse(text)
        if await publish_rate(blue, name) != rate:
            await set_publish_rate(blue, name, rate)
            restored.append(f"publish rate of {name}")
    return tuple(restored)


async def publish_rate(admin: AdminClient, name: NamespaceName) -> JsonObject | None:
    """The namespace's own publish rate, None where it has none."""
    found: JsonObject | None = await admin.get(f"/namespaces/{name.path}/publishRate")
    return found


async def set_publish_rate(admin: AdminClient, name: NamespaceName, rate: JsonObject | None) -> None:
    """Set the namespace's publish rate, or remove it with None; acts at once on loaded topics."""
    path = f"/namespaces/{name.path}/publishRate"
    await (admin.delete(path) if rate is None else admin.post(path, rate))


async def _confirm(blue: AdminClient, broker: str, settings: Mapping[str, str]) -> None:
    waiting = dict(settings)
    try:
        async with asyncio.timeout(_CONFIRM_SECONDS):
            while waiting:
                effective = await blue.runtime_configuration(broker)
                waiting = {key: value for key, value in waiting.items() if effective.get(key) != value}
                await asyncio.sleep(0.1 if waiting else 0)
    except TimeoutError as error:
        raise Refused(
            f"Broker {broker} of {blue.connection.name} did not take {waiting} within {_CONFIRM_SECONDS:.0f} s; "
            "nothing was flagged. Look at its log, then run again."
        ) from error
