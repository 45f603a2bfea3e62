"""What the events of one resource ask of a cluster, and what it makes of that (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.agreement.merge import TieBreak
from pulsar_fleet.agreement.observations import digest
from pulsar_fleet.agreement.views import Item
from pulsar_fleet.change.difference import Resource
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.metadata_sync.events import MetadataChangeEvent
from pulsar_fleet.metadata_sync.marks import EXISTS, Known, Mark, Stamp

Asked = Mapping[str, tuple[Json, Stamp]]
"""Field → value and when and where it was written, only of fields in which an event counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a cluster makes of what it is asked for.

    :param values: what the resource should hold where it differs; None unsets.
    :param marks: what will be known of these fields once they are written.
    :param create: the resource has to be made.
    :param refused: why a part of it is not done here; empty where all of it is.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    create: bool = False
    refused: str = ""


def asked(events: Iterable[MetadataChangeEvent], known: Known, tie_break: TieBreak) -> Asked:
    """The fields in which events count over what is known: in any order and however often they come, the same.

    Stale events and ones that came before ask for nothing.
    """
    found: dict[str, tuple[Json, Stamp]] = {}
    for event in events:
        for name, (value, stamp) in event.fields.items():
            before = found[name][1] if name in found else known.stamp(name)
            if stamp.newer_than(before, tie_break):
                found[name] = value, stamp
    return found


def decide(item: Item, wanted: Asked, known: Known, *, there: bool) -> Decided:
    """What to do about it: nothing is deleted, and nothing that was deleted here is made again."""
    marks = {name: Mark(digest(value), stamp) for name, (value, stamp) in wanted.items()}
    values = {name: value for name, (value, _) in wanted.items() if name != EXISTS}
    label = f"{item[0].value} {item[1]}"
    if item[0] is Resource.TOPIC_POLICY:
        return Decided(values=values, marks=marks)
    exists, stamp = wanted.get(EXISTS, (None, None))
    if stamp is not None and not exists:
        return _deleted(label, stamp, values, marks, there=there)
    if there:
        return Decided(values=values, marks=marks)
    if stamp is None:
        gone = known.stamp(EXISTS)
        since = f"was deleted here ({_when(gone)}) and changed elsewhere since" if gone else "is not here"
        return Decided(refused=f"{label} {since}: make it again by hand, or delete it there.")
    return Decided(values=values, marks=marks, create=True)


def _deleted(
    label: str, stamp: Stamp, values: Mapping[str, Json], marks: Mapping[str, Mark], *, there: bool
) -> Decided:
    if not there:
        return Decided(marks={EXISTS: marks[EXISTS]})
    rest = {name: mark for name, mark in marks.items() if name != EXISTS}
    sentence = f"{label} was deleted on {stamp.source_cluster} ({_when(stamp)}) and is kept here: delete it by hand."
    return Decided(values=values, marks=rest, refused=sentence)


def _when(stamp: Stamp) -> str:
    return f"updateTime {stamp.update_time}"
