"""How the topics of a pair are read: by which engine, and from the source or from its shadow topics."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.messages.ranges import EngineName, TopicBounds
from pulsar_fleet.verification.bounds.topic_bounds import Unprovable
from pulsar_fleet.verification.coverage import Mode
from pulsar_fleet.verification.request import ChosenEngine, Pair


class ReadFrom(StrEnum):
    """Where the source's messages are read."""

    SERVING = "serving"
    """From the topics themselves."""
    SHADOW = "shadow"
    """From a shadow topic of each topic, which takes load off the brokers that applications use."""


async def read_from_shadow(source: AdminClient, pair: Pair) -> Pair:
    """The pair, with the source read from its first shadow topic; two calls. Creates nothing. **Loads the shadow.**

    :raises Unprovable: the topic has no shadow topic, or the shadow topic does not hold all compared entries.
    """
    topic = TopicName.parse(pair.topic)
    shadows = await source.get(f"/{topic.path}/shadowTopics")
    if not shadows:
        raise Unprovable(f"it has no shadow topic on {source.connection.name}; verify it with read_from 'serving'")
    shadow = TopicName.parse(shadows[0])
    stored = TopicBounds.whole(str(shadow), await source.internal_stats(shadow))
    bounds = pair.source
    if (
        bounds.first
        and bounds.last
        and not (stored.first and stored.last and stored.first <= bounds.first <= bounds.last <= stored.last)
    ):
        raise Unprovable(
            f"its shadow topic {shadow} holds {stored.first}–{stored.last}, and {bounds.first}–{bounds.last} is "
            f"compared; "
            "verify again, or with read_from 'serving'"
        )
    return replace(
        pair, source=replace(bounds, topic=str(shadow)), notes=(*pair.notes, f"read from its shadow topic {shadow}")
    )


LEAST_MESSAGES_PER_ENTRY = 4.0
"""Messages per entry from which reading entries costs less than reading messages (measured: 2 to 4)."""

LEAST_ENTRIES = 64
"""A topic with fewer entries costs more to measure than it saves."""

_IN_BATCH = "x-pulsar-num-batch-message"


class EngineChoice(StrEnum):
    """The engine that an operator requests."""

    AUTO = "auto"
    """By the measured messages per entry."""
    MESSAGE = "message"
    ENTRY = "entry"


def may_continue(earlier: JsonObject, choice: EngineChoice) -> bool:
    """Whether a requested engine can continue an earlier proof: digests of two engines cannot be combined.

    :param earlier: as `Pair.earlier`.
    """
    # Copies that do not keep entries whole are always read by message.
    return choice is EngineChoice.AUTO or choice.value == earlier["engine"] or not earlier["publish_time"]


def why_not_by_entry(pair: Pair, mode: Mode) -> str:
    """Why engine `entry` cannot compare a pair, as the end of a sentence; empty if it can."""
    if pair.compacted:
        return "because the latest value of each key is compared"
    if mode is Mode.WINDOW:
        return "because a window is cut by the publish times of messages"
    if pair.keyed:
        return "because keyed digests are of messages"
    return "" if pair.publish_time else "because only geo-replication keeps entries whole"


async def choose_engine(source: AdminClient, pair: Pair, choice: EngineChoice, mode: Mode) -> Pair:
    """The pair with its engine and the reason; two to four calls to the source if it must be measured.

    A pair that continues an earlier proof is read by the engine of that proof.
    """
    if choice is EngineChoice.MESSAGE:
        return _read_by(pair, EngineName.MESSAGE, "as requested")
    if reason := why_not_by_entry(pair, mode):
        return _read_by(pair, EngineName.MESSAGE, reason)
    if pair.earlier:
        engine, run = EngineName(pair.earlier["engine"]), pair.earlier["run"]
        return _read_by(pair, engine, f"as in run {run}, which it continues")
    if choice is EngineChoice.ENTRY:
        return _read_by(pair, EngineName.ENTRY, "as requested")
    if len(pair.source) < LEAST_ENTRIES:
        return _read_by(pair, EngineName.MESSAGE, f"because it has fewer than {LEAST_ENTRIES} entries")
    measured = await messages_per_entry(source, pair.source)
    engine = EngineName.ENTRY if measured >= LEAST_MESSAGES_PER_ENTRY else EngineName.MESSAGE
    return _read_by(pair, engine, f"because an entry of the source holds {measured:.1f} messages on average")


async def messages_per_entry(admin: AdminClient, bounds: TopicBounds) -> float:
    """Messages per entry, by the broker's counters, or by three entries if the counters cover too few entries.

    The counters begin at 0 when a topic is loaded.
    """
    topic = TopicName.parse(bounds.topic)
    stats, internal = await asyncio.gather(admin.stats(topic, precise=False), admin.internal_stats(topic))
    entries = int(internal.get("entriesAddedCounter", 0))
    if 2 * entries >= bounds.end - bounds.begin:
        return TopicStats.of(topic, stats).messages_in / entries
    indices = (bounds.begin, (bounds.begin + bounds.end) // 2, bounds.end - 1)
    headers = await asyncio.gather(*(admin.entry_properties(topic, bounds.ledgers.at(index)) for index in indices))
    return sum(int(entry.get(_IN_BATCH, 1)) for entry in headers) / len(headers)


def _read_by(pair: Pair, engine: EngineName, reason: str) -> Pair:
    return replace(pair, engine=ChosenEngine(engine, reason))
