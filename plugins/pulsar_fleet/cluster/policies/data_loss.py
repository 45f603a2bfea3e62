"""Policy changes after which a broker discards messages or topics (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable

from pulsar_fleet.cluster.json import Json


def lowered(*keys: str) -> Callable[[Json, Json], bool]:
    """A rule: whether one of the limits `keys` became smaller; -1 is no limit, an unset policy retains nothing."""

    def rule(before: Json, after: Json) -> bool:
        if not before:
            return False
        return any(_limit((after or {}).get(key, 0)) < _limit(before.get(key, 0)) for key in keys)

    return rule


def shortened(before: Json, after: Json) -> bool:
    """Whether a time to live became shorter; 0 and unset are no limit."""
    return bool(after) and after > 0 and (not before or after < before)


def evicts_backlog(before: Json, after: Json) -> bool:
    """Whether a quota that discards unacknowledged messages is new or became smaller."""
    for kind, quota in (after or {}).items():
        if quota.get("policy") != "consumer_backlog_eviction":
            continue
        old = (before or {}).get(kind) or {}
        evicted_before = old.get("policy") == "consumer_backlog_eviction"
        if not evicted_before or lowered("limitSize", "limitTime")(old, quota):
            return True
    return False


def deletes_inactive(before: Json, after: Json) -> bool:
    """Whether inactive topics are deleted from now on, or under another rule.

    Unsetting counts, because the broker's default deletes them after a minute.
    """
    if after is not None and not after.get("deleteWhileInactive"):
        return False
    return bool(before != after)


def drops_name(before: Json, after: Json) -> bool:
    """Whether a cluster is removed from a list: replication to it stops, and its replication backlog is discarded."""
    return bool(set(before or ()) - set(after or ()))


def _limit(value: float) -> float:
    return math.inf if value < 0 else value
