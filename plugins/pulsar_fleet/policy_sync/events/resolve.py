"""What the events of one resource ask of a cluster, and what it makes of that (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.versions import EXISTS, Known, Mark, Stamp
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which of two changes counts, and whether a field or a whole document does."""

    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD

    @property
    def whole(self) -> bool:
        """As in PIP-136: of two edits of different fields of one resource, one is lost."""
        return self.granularity is Granularity.DOCUMENT


def asked(events: Collection[MetadataChangeEvent], known: Known, order: Order) -> Asked:
    """The fields in which events count over what is known: in any order and however often they come, the same.

    Stale events and ones that came before ask for nothing. Of whole documents the newest one asks for all that it
    holds, and for what it does not hold to be unset. Whether a resource is there is never decided together with the
    rest: what was deleted here is not made again because it was changed elsewhere.
    """
    each = _by_field(events, known, order)
    if not order.whole:
        return each
    document = {name: one for name, one in _newest_document(events, known, order).items() if name != EXISTS}
    return {**document, **({EXISTS: each[EXISTS]} if EXISTS in each else {})}


def outstanding(wanted: Asked, known: Known, order: Order) -> dict[str, Stamp]:
    """The fields of what was asked that did not come about, but for those that something newer came before."""
    if not order.whole:
        return {name: one for name, (_, one) in wanted.items() if one.newer_than(known.stamp(name), order.tie_break)}
    newest, last = known.newest, max((stamp for _, stamp in wanted.values()), default=None)
    if newest is not None and last is not None and newest > last:
        return {}
    return {name: one for name, (value, one) in wanted.items() if known.fields.get(name) != Mark(digest(value), one)}


def lost_edits(
    wanted: Asked, events: Collection[MetadataChangeEvent], known: Known, own: str, order: Order
) -> frozenset[str]:
    """The fields that were edited here and that a document takes back although nobody edited them later.

    Each such edit is lost once in a fleet: on the cluster where it was made.
    """
    if not order.whole:
        return frozenset()
    later = _by_field(events, known, order)
    mine = {name: mark for name, mark in known.fields.items() if mark.stamp.source_cluster == own}
    return frozenset(
        name
        for name, (value, _) in wanted.items()
        if name in mine and name not in later and mine[name].digest != digest(value)
    )


def _by_field(events: Collection[MetadataChangeEvent], known: Known, order: Order) -> dict[str, tuple[Json, Stamp]]:
    found: dict[str, tuple[Json, Stamp]] = {}
    for event in events:
        for name, (value, stamp) in event.fields.items():
            before = found[name][1] if name in found else known.stamp(name)
            if stamp.newer_than(before, order.tie_break):
                found[name] = value, stamp
    return found


def _newest_document(events: Collection[MetadataChangeEvent], known: Known, order: Order) -> Asked:
    """The fields of the document that counts over what is known, and those that it does not hold; empty for none."""
    newest, stamp = None, known.newest
    for event in events:
        if event.data is not None and event.stamp.newer_than(stamp, order.tie_break):
            newest, stamp = event, event.stamp
    if newest is None:
        return {}
    held = {name: (None, newest.stamp) for name, mark in known.fields.items() if mark.digest}
    return {**held, **newest.fields}


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
