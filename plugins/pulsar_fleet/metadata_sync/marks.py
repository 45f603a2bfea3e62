"""When and where each field of a resource was written, as one cluster knows it, and which value counts (pure).

A value that a cluster shows and nobody announced was written there, after everything that the cluster knew. The first
look at a cluster cannot tell when its values were written, so these beat nothing that has a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.agreement.merge import TieBreak
from pulsar_fleet.agreement.observations import digest
from pulsar_fleet.cluster.json import Json, JsonObject

EXISTS = ""
"""The field of a tenant or namespace that says that it is there; its value is True."""

BEFORE_EVERYTHING = 0


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """When something was written, in ms since 1970, and on which cluster: two events with the same are one."""

    update_time: int
    source_cluster: str

    def newer_than(self, other: Stamp | None, tie_break: TieBreak) -> bool:
        """Whether it counts over another one; at the same time the cluster's name decides."""
        if other is None or self.update_time != other.update_time:
            return other is None or self.update_time > other.update_time
        if self.source_cluster == other.source_cluster:
            return False
        smaller = self.source_cluster < other.source_cluster
        return smaller if tie_break is TieBreak.SMALLER else not smaller


@dataclass(frozen=True, slots=True)
class Mark:
    """A value by its digest, empty for one that is not set, and when and where it was written."""

    digest: str
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of one resource on one cluster; a field that was once set stays, with the time of its end.

    :param expected: what we are about to write: where it is found, it is as old as its original.
    :param published: the event topic has all of it.
    """

    fields: Mapping[str, Mark] = field(default_factory=dict)
    expected: Mapping[str, Mark] = field(default_factory=dict)
    published: bool = True

    def stamp(self, name: str) -> Stamp | None:
        """When a field was written last, None if it never was."""
        found = self.fields.get(name)
        return found.stamp if found else None

    def awaiting(self, written: Mapping[str, Mark]) -> Self:
        """The same when these values are about to be written."""
        return replace(self, expected=dict(written))

    def as_published(self) -> Self:
        """The same when the event topic has all of it."""
        return replace(self, published=True)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "fields": _to_json(self.fields),
            "expected": _to_json(self.expected),
            "published": self.published,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        fields, expected = (_from_json(found[part]) for part in ("fields", "expected"))
        return cls(fields=fields, expected=expected, published=found["published"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A look at one resource.

    :param values: what it showed; nothing for a resource that is not there.
    :param now: when it ended, in ms since 1970.
    :param times: field → when it was written, where the cluster itself tells.
    :param first: nobody looked before, so a value may have any age.
    """

    values: Mapping[str, Json]
    now: int
    times: Mapping[str, int] = field(default_factory=dict)
    first: bool = False


def note(known: Known | None, look: Look, own: str) -> Known:
    """What is known after a look; looking again at the same values changes nothing."""
    before = known or Known()
    fields = dict(before.fields)
    changed = False
    for name in {*before.fields, *before.expected, *look.values}:
        found, seen, ours = digest(look.values.get(name)), before.fields.get(name), before.expected.get(name)
        if ours is not None and ours.digest == found:
            fields[name] = ours
        elif found == (seen.digest if seen else ""):
            continue
        elif seen is None and look.first:
            fields[name] = Mark(found, Stamp(look.times.get(name, BEFORE_EVERYTHING), own))
            changed = True
        else:
            after = max((one.stamp.update_time + 1 for one in (seen, ours) if one), default=BEFORE_EVERYTHING)
            fields[name] = Mark(found, Stamp(max(look.times.get(name, look.now), after), own))
            changed = True
    return Known(fields=fields, published=before.published and not changed)


def _to_json(marks: Mapping[str, Mark]) -> JsonObject:
    return {name: [one.digest, one.stamp.update_time, one.stamp.source_cluster] for name, one in marks.items()}


def _from_json(found: JsonObject) -> dict[str, Mark]:
    return {name: Mark(text, Stamp(time, cluster)) for name, (text, time, cluster) in found.items()}
