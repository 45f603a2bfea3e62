"""What brokers demand of a retention beside a backlog quota (pure).

Measured with 4.2.4: a quota must be below the retention in size and in time, in the dimensions that the retention
limits. The setters of a namespace compare its quota `destination_storage` only, those of a topic both types; a topic
without a value of its own is compared with its namespace's. Unsetting a retention is never refused.
"""

from __future__ import annotations

from pulsar_fleet.cluster.json import Json, JsonObject

MEGABYTE = 1 << 20
MINUTES, MEGABYTES = "retentionTimeInMinutes", "retentionSizeInMB"


def exceeds_retention(quota: Json, retention: Json) -> bool:
    """Whether brokers refuse a backlog quota beside a retention; a negative limit of either, or unset, is none."""
    size, minutes = ((retention or {}).get(key, 0) for key in (MEGABYTES, MINUTES))
    bytes_, seconds = ((quota or {}).get(key, -1) for key in ("limitSize", "limitTime"))
    return bool((size > 0 and bytes_ >= size * MEGABYTE) or (minutes > 0 and seconds >= minutes * 60))


def limits_quota(retention: Json) -> bool:
    """Whether brokers compare a backlog quota with this retention in any dimension."""
    return any((retention or {}).get(key, 0) > 0 for key in (MINUTES, MEGABYTES))


def longer_retention(first: JsonObject, second: JsonObject) -> JsonObject:
    """A retention beside which brokers accept each quota that they accept beside one of the two."""
    return {key: _larger(first.get(key, 0), second.get(key, 0)) for key in (MINUTES, MEGABYTES)}


def _larger(first: int, second: int) -> int:
    return max(first, second) if min(first, second) > 0 else -1
