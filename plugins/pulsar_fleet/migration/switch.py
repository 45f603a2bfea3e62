"""The switch of one namespace: quiet the writers, place subscriptions, redirect, flag, confirm, let writers go.

The order was run against real clusters: publishes in flight at the termination leave a topic closed for ever, so
writes are throttled to 1 message/s first; a higher rate killed consumers, a longer wait only adds silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.freeze import set_publish_rate
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.phases import Strategy
from pulsar_fleet.migration.placement import Placed, place_subscriptions
from pulsar_fleet.migration.redirect import Redirect, set_flag, store_redirect
from pulsar_fleet.migration.replicate import wait_replicated

log = logging.getLogger(__name__)

QUIET_RATE: JsonObject = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
QUIET_SECONDS = 1.0
REPLICATED_SECONDS = 15.0
TERMINATED_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What the switch of one namespace did.

    :param placed: subscriptions without consumers, with what they will get on green.
    :param window: partition → messages written on blue after the subscriptions were placed: each subscription with
        consumers gets them twice, once from each side.
    :param throttled_seconds: how long writers were held to 1 message/s per partition.
    """

    namespace: str
    placed: tuple[Placed, ...]
    window: Mapping[str, int]
    throttled_seconds: float

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 1,
            "namespace": self.namespace,
            "placed": [placed.to_json() for placed in self.placed],
            "window": dict(self.window),
            "throttled_seconds": self.throttled_seconds,
        }


async def switch(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    *,
    redirect: Redirect,
    rate: JsonObject | None,
) -> Switched:
    """Hand the namespace's clients over to green.

    :param rate: the namespace's publish rate before the run, restored whatever happens.
    :raises Refused: replication did not catch up, or a partition was not handed over; the message says what holds.

    Called again after it has ended it only confirms; called again after a crash it goes on: every step looks first.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    written: dict[TopicName, int] = {}
    placed: tuple[Placed, ...] = ()
    try:
        if not await terminated(blue, move):
            await set_publish_rate(blue, move.namespace, QUIET_RATE)
            await asyncio.sleep(QUIET_SECONDS)
            if move.strategy is Strategy.REPLICATE:
                placed = await _place(blue, green, move)
                written = await _written(blue, move)
        await store_redirect(blue, await blue.cluster_name(), redirect)
        await set_flag(blue, move.namespace, migrated=True)
        await _confirm(blue, move)
    finally:
        await set_publish_rate(blue, move.namespace, rate)
    seconds = loop.time() - began
    after = await _written(blue, move) if written else {}
    window = {str(topic): after[topic] - written[topic] for topic in written if after[topic] > written[topic]}
    log.info("%s: handed over after %.1f s, %d messages in the window", move.namespace, seconds, sum(window.values()))
    return Switched(namespace=str(move.namespace), placed=placed, window=window, throttled_seconds=round(seconds, 2))


async def terminated(blue: AdminClient, move: Move) -> bool:
    """Whether every partition was handed over, by `internal-info`: the only document that is true on every version."""
    return not await _open_partitions(blue, move)


async def _place(blue: AdminClient, green: AdminClient, move: Move) -> tuple[Placed, ...]:
    lag = await wait_replicated(blue, await green.cluster_name(), list(move.partitions), REPLICATED_SECONDS)
    if not lag.is_done:
        raise Refused(
            f"Replication of {move.namespace} did not catch up within {REPLICATED_SECONDS:.0f} s of quiet: "
            f"{lag.entries} entries left, {len(lag.unlinked)} partitions without a link. Nothing was flagged. "
            "Look at replication in the stats of its topics, then run again."
        )
    found = await asyncio.gather(
        *(place_subscriptions(blue, green, topic, clients) for topic, clients in move.partitions.items())
    )
    return tuple(placed for topic in found for placed in topic)


async def _written(blue: AdminClient, move: Move) -> dict[TopicName, int]:
    documents = await asyncio.gather(*(blue.stats(topic, precise=False) for topic in move.partitions))
    return {topic: int(stats["msgInCounter"]) for topic, stats in zip(move.partitions, documents, strict=True)}


async def _confirm(blue: AdminClient, move: Move) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + TERMINATED_SECONDS
    waiting = await _open_partitions(blue, move)
    while waiting and loop.time() < end:
        await asyncio.sleep(0.1)
        waiting = await _open_partitions(blue, move)
    if waiting:
        raise Refused(
            f"{len(waiting)} of {len(move.partitions)} partitions of {move.namespace} were not handed over within "
            f"{TERMINATED_SECONDS:.0f} s, {waiting[0]} among them: its broker's migration check may be off, or the "
            "topic was not loaded. The flag is set; clear it to undo what was not handed over, or fix that broker and "
            "run again."
        )


async def _open_partitions(blue: AdminClient, move: Move) -> list[TopicName]:
    documents = await asyncio.gather(*(blue.internal_info(topic) for topic in move.partitions))
    return [
        topic
        for topic, info in zip(move.partitions, documents, strict=True)
        if (info.get("properties") or {}).get("migrated") != "true"
    ]
