"""When and where each field of a resource was written, as one cluster knows it, and which value counts (pure).

A value that a cluster shows and nobody announced was written there, after everything that the cluster knew. The first
look at a cluster cannot tell when its values were written, so these beat nothing that has a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.provenance import digest

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

    @property
    def newest(self) -> Stamp | None:
        """When and where any of it was written last, None if nothing is known."""
        return max((mark.stamp for mark in self.fields.values()), default=None)

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
    :param whole: what is changed makes the resource as a whole newer than all that was known of it.
    """

    values: Mapping[str, Json]
    now: int
    times: Mapping[str, int] = field(default_factory=dict)
    first: bool = False
    whole: bool = False


def note(known: Known | None, look: Look, own: str) -> Known:
    """What is known after a look; looking again at the same values changes nothing.

    What is about to be written and is not there yet is awaited further: who writes it may be late.
    """
    before = known or Known()
    found = {name: digest(look.values.get(name)) for name in {*before.fields, *before.expected, *look.values}}
    came = _came(before, found, own, whole=look.whole)
    held = {name: mark.digest for name, mark in before.fields.items()}
    moved = [name for name, one in found.items() if name not in came and one != held.get(name, "")]
    fields = {**before.fields, **came}
    fields |= {name: Mark(found[name], _moved_at(name, before, look, own)) for name in moved}
    return Known(
        fields=fields,
        expected=_awaited(before, came, moved, whole=look.whole),
        published=before.published and not moved,
    )


def _came(before: Known, found: Mapping[str, str], own: str, *, whole: bool) -> dict[str, Mark]:
    """The fields that show what was about to be written; a document of which a part is missing has not come yet."""
    came = {name: mark for name, mark in before.expected.items() if mark.digest == found[name]}
    if not whole or len(came) == len(before.expected):
        return came
    unknown = Stamp(BEFORE_EVERYTHING, own)
    return {name: Mark(mark.digest, before.stamp(name) or unknown) for name, mark in came.items()}


def _awaited(before: Known, came: Collection[str], moved: Collection[str], *, whole: bool) -> Mapping[str, Mark]:
    if whole:
        return {} if moved or len(came) == len(before.expected) else before.expected
    return {name: mark for name, mark in before.expected.items() if name not in came and name not in moved}


def _moved_at(name: str, before: Known, look: Look, own: str) -> Stamp:
    """When and where a value was written that nobody announced: after everything that was known of it."""
    if look.first and name not in before.fields:
        return Stamp(look.times.get(name, BEFORE_EVERYTHING), own)
    known = (before.fields, before.expected)
    older = [one for marks in known for key, one in marks.items() if look.whole or key == name]
    after = max((one.stamp.update_time + 1 for one in older), default=BEFORE_EVERYTHING)
    return Stamp(max(look.times.get(name, look.now), after), own)


def _to_json(marks: Mapping[str, Mark]) -> JsonObject:
    return {name: [one.digest, one.stamp.update_time, one.stamp.source_cluster] for name, one in marks.items()}


def _from_json(found: JsonObject) -> dict[str, Mark]:
    return {name: Mark(text, Stamp(time, cluster)) for name, (text, time, cluster) in found.items()}
