"""Which engine reads a pair of topics: whole entries where they are kept and worth it, messages everywhere else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.messages.ranges import EngineName, TopicBounds
from pulsar_fleet.verification.coverage import Mode
from pulsar_fleet.verification.request import Pair

WORTH_MESSAGES = 4.0
"""Messages an entry from which on reading entries takes less than reading messages (measured: 2 to 4)."""

WORTH_ENTRIES = 64
"""Entries below which a topic costs more to measure than it saves."""

_IN_BATCH = "x-pulsar-num-batch-message"


class EngineChoice(StrEnum):
    """What an operator may ask for."""

    AUTO = "auto"
    """By the measured messages an entry."""
    CLIENT = "client"
    ENTRY = "entry"


def may_continue(earlier: JsonObject, asked: EngineChoice) -> bool:
    """Whether what is asked for can go on from an earlier proof: digests of two engines cannot be put together.

    :param earlier: as `Pair.earlier`.
    """
    # Where entries are not kept whole, messages are read whatever is asked for.
    return asked is EngineChoice.AUTO or asked.value == earlier["engine"] or not earlier["publish_time"]


def only_messages(pair: Pair, mode: Mode) -> str:
    """Why whole entries of a pair cannot be compared, as the end of a sentence; empty where they can."""
    if pair.compacted:
        return "because the latest value of each key is compared"
    if mode is Mode.WINDOW:
        return "because a window is cut by the publish times of messages"
    if pair.keyed:
        return "because keyed digests are of messages"
    return "" if pair.publish_time else "because only geo-replication keeps entries whole"


async def choose_engine(source: AdminClient, pair: Pair, asked: EngineChoice, mode: Mode) -> Pair:
    """The pair with its engine and the reason; two to four calls to the source where it has to be measured.

    A pair that continues an earlier proof is read by the engine of that one.
    """
    if asked is EngineChoice.CLIENT:
        return _read_by(pair, EngineName.CLIENT, "as asked for")
    if reason := only_messages(pair, mode):
        return _read_by(pair, EngineName.CLIENT, reason)
    if pair.earlier:
        engine, run = EngineName(pair.earlier["engine"]), pair.earlier["run"]
        return _read_by(pair, engine, f"as in run {run}, which it continues")
    if asked is EngineChoice.ENTRY:
        return _read_by(pair, EngineName.ENTRY, "as asked for")
    if len(pair.source) < WORTH_ENTRIES:
        return _read_by(pair, EngineName.CLIENT, f"because {WORTH_ENTRIES} entries or more are worth measuring")
    measured = await messages_per_entry(source, pair.source)
    engine = EngineName.ENTRY if measured >= WORTH_MESSAGES else EngineName.CLIENT
    return _read_by(pair, engine, f"because an entry of the source holds {measured:.1f} messages on average")


async def messages_per_entry(admin: AdminClient, bounds: TopicBounds) -> float:
    """Messages an entry: by the broker's counters, or of three entries where they cover too little.

    The counters begin at 0 when a topic is loaded.
    """
    topic = TopicName.parse(bounds.topic)
    stats, internal = await asyncio.gather(admin.stats(topic, precise=False), admin.internal_stats(topic))
    entries = int(internal.get("entriesAddedCounter", 0))
    if 2 * entries >= bounds.end - bounds.begin:
        return TopicStats.of(topic, stats).messages_in / entries
    places = (bounds.begin, (bounds.begin + bounds.end) // 2, bounds.end - 1)
    found = await asyncio.gather(*(admin.entry_properties(topic, bounds.ledgers.at(place)) for place in places))
    return sum(int(each.get(_IN_BATCH, 1)) for each in found) / len(found)


def _read_by(pair: Pair, engine: EngineName, reason: str) -> Pair:
    return replace(pair, engine=engine, engine_reason=reason)
