"""The version of a value: when and where it was written, how certain that is, and what its writer had seen (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak

BEFORE_EVERYTHING = 0
"""The time of a value whose age is unknown: it was there at the first scan of a cluster of a new fleet."""

BEFORE_THE_FLEET = -1
"""The time of a value that a cluster brought when it joined: it loses against everything that the fleet has."""

Bounds = tuple[int, int]
"""The earliest and the latest time of a write, in ms since 1970 by the reference clock."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """When a value was written, in ms since 1970 by the reference clock, and on which cluster.

    Events with equal versions are identical, so the bounds and what was replaced take no part in comparisons.

    :param bounds: of the time; None if they are unknown.
    :param replaced: cluster → the time of its newest version of this field that the writer had before.
    """

    update_time: int
    source_cluster: str
    bounds: Bounds | None = field(default=None, compare=False)
    replaced: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)

    def newer_than(self, other: Version | None, tie_break: TieBreak) -> bool:
        """Whether it wins against another version; at equal times the cluster's name decides."""
        if other is None or self.update_time != other.update_time:
            return other is None or self.update_time > other.update_time
        if self.source_cluster == other.source_cluster:
            return False
        smaller = self.source_cluster < other.source_cluster
        return smaller if tie_break is TieBreak.SMALLER else not smaller

    def follows(self, other: Version) -> bool:
        """Whether its writer had the other version, or a later one of the same cluster."""
        if self.source_cluster == other.source_cluster:
            return self.update_time >= other.update_time
        return self.replaced.get(other.source_cluster, BEFORE_THE_FLEET - 1) >= other.update_time

    def certainly_after(self, other: Version) -> bool:
        """Whether the bounds of both times are known and exclude the other order."""
        return bool(self.bounds and other.bounds and self.bounds[0] > other.bounds[1])

    def having_replaced(self, older: Version | None) -> Self:
        """The same, written by someone who had an older version."""
        if older is None:
            return self
        before = {**older.replaced, older.source_cluster: older.update_time}
        before.pop(self.source_cluster, None)
        return type(self)(self.update_time, self.source_cluster, self.bounds, before)

    def as_array(self) -> list[Json]:
        """Its fields in order, without those that say nothing, because there are thousands."""
        head: list[Json] = [self.update_time, self.source_cluster]
        if not self.bounds and not self.replaced:
            return head
        return [*head, list(self.bounds) if self.bounds else None, dict(self.replaced)]

    @classmethod
    def of(cls, array: Json) -> Self:
        """From the array."""
        update_time, source_cluster, *rest = array
        bounds, replaced = rest or (None, {})
        return cls(update_time, source_cluster, (bounds[0], bounds[1]) if bounds else None, replaced)


def is_version(array: Json) -> bool:
    """Whether a JSON value is what `as_array` returns."""
    if not isinstance(array, list) or len(array) not in (2, 4):
        return False
    bounds, replaced = array[2:] or (None, {})
    if not isinstance(array[1], str) or not isinstance(replaced, dict):
        return False
    if bounds is not None and not (isinstance(bounds, list) and len(bounds) == 2):
        return False
    return all(type(at) is int for at in (array[0], *(bounds or ()), *replaced.values()))
