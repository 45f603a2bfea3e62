"""The publish rate that holds producers during a cut-over, by what blue's brokers do when it is lifted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE, byte_throttle
from pulsar_fleet.cluster.versions import UNTHROTTLES_AT_ONCE
from pulsar_fleet.links.partition_stats import required_internal_stats

_WAIT_SECONDS = 5.0
_PARTITIONS_PER_SECOND = 200
"""With more partitions the cut-over takes longer (`tests/bench/test_pause_by_size.py`)."""


async def throttle_rate(blue: AdminClient, partitions: Sequence[TopicName]) -> JsonObject:
    """The publish rate for a namespace whose producers write to these partitions.

    Brokers that end a producer's wait when the rate is lifted get the strictest one. Others let it wait for the time
    that they computed before: with one byte per second that is as many seconds as its last entry has bytes, and its
    client closes the connection before. They get a rate at which an entry of usual size is a wait of some seconds.

    Calls: one, and for brokers of the second kind the statistics of the partitions.
    """
    if UNTHROTTLES_AT_ONCE.holds(await blue.version()):
        return QUIESCED_RATE
    documents = await required_internal_stats(blue, partitions)
    return rate_for(filter(None, map(_entry_bytes, documents.values())), len(partitions))


def rate_for(entry_bytes: Iterable[float], partitions: int) -> JsonObject:
    """The rate at which the smallest of these usual entries is a wait of 5 s, or longer with many partitions."""
    smallest = min(entry_bytes, default=0.0)
    return byte_throttle(max(1, int(smallest / (_WAIT_SECONDS + partitions / _PARTITIONS_PER_SECOND))))


def _entry_bytes(internal_stats: JsonObject) -> float:
    """The mean size of the stored entries; 0 if there is none."""
    entries = int(internal_stats["numberOfEntries"])
    return int(internal_stats["totalSize"]) / entries if entries else 0.0
