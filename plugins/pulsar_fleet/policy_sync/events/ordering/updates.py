"""Which updates events request for a resource: the fields of which an event is newer than the cluster (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.versions import EXISTS, FieldVersion, ResourceVersions, Version
from pulsar_fleet.policy_sync.merge.fields import GROWING, has_grown, largest
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity, TieBreak
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

Updates = Mapping[str, tuple[Json, Version]]
"""Field → value and version, only for fields for which an event is newer than the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which of two changes wins, and whether a field or a whole document does."""

    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD

    def of(self, item: Item) -> Self:
        """The order for one resource: partitioned topics, which grow, are always decided field by field."""
        return replace(self, granularity=Granularity.FIELD) if item[0] is Resource.TOPIC else self

    @property
    def whole(self) -> bool:
        """As in PIP-136: of two edits of different fields of one resource, one is lost."""
        return self.granularity is Granularity.DOCUMENT


def accepted_updates(events: Collection[MetadataChangeEvent], current: ResourceVersions, order: Order) -> Updates:
    """The fields for which events are newer than the cluster; the order and the number of deliveries have no effect.

    Stale and repeated events request nothing. The newest whole document requests all its fields, and that all other
    fields are unset. The existence of a resource is always decided separately.
    """
    by_field = _by_field(events, current, order)
    value, version = by_field.get(EXISTS, (True, None))
    if version is not None and not value and not version.newer_than(current.deleted_elsewhere, order.tie_break):
        # It waits already.
        del by_field[EXISTS]
    if not order.whole:
        return by_field
    document = _newest_document(events, current, order)
    fields = {name: update for name, update in document.items() if name != EXISTS}
    return {**fields, **({EXISTS: by_field[EXISTS]} if EXISTS in by_field else {})}


def outstanding(item: Item, updates: Updates, current: ResourceVersions, order: Order) -> dict[str, Version]:
    """The updates that are not in place, except those with a newer version."""
    if not order.whole:
        return {
            name: update[1]
            for name, update in updates.items()
            if is_newer(item, name, update, current.fields.get(name), order)
        }
    newest, last = current.newest, max((version for _, version in updates.values()), default=None)
    if newest is not None and last is not None and newest > last:
        return {}
    return {
        name: version
        for name, (value, version) in updates.items()
        if current.fields.get(name) != FieldVersion(digest(value), version)
    }


def lost_edits(
    updates: Updates, events: Collection[MetadataChangeEvent], current: ResourceVersions, own: str, order: Order
) -> frozenset[str]:
    """The fields that were edited here and that a whole document reverts although no later edit exists.

    A fleet counts each lost edit once: on the cluster of the edit.
    """
    if not order.whole:
        return frozenset()
    later = _by_field(events, current, order)
    local = {name: entry for name, entry in current.fields.items() if entry.version.source_cluster == own}
    return frozenset(
        name
        for name, (value, _) in updates.items()
        if name in local and name not in later and local[name].digest != digest(value)
    )


def _by_field(
    events: Collection[MetadataChangeEvent], current: ResourceVersions, order: Order
) -> dict[str, tuple[Json, Version]]:
    """The newest update of each field; where the resource does not exist, only what is newer than its deletion."""
    updates = newest_by_field(events, current, order)
    existence = current.fields.get(EXISTS)
    if existence is not None and existence.digest:
        return updates
    should_exist, version = updates.get(EXISTS, (True, None))
    deletion = version if not should_exist else existence.version if existence else None
    if deletion is None:
        return updates
    # What was written before the deletion of the resource is gone with it.
    return {
        name: update
        for name, update in updates.items()
        if name == EXISTS or update[1].newer_than(deletion, order.tie_break)
    }


def newest_by_field(
    events: Collection[MetadataChangeEvent], current: ResourceVersions, order: Order
) -> dict[str, tuple[Json, Version]]:
    """The newest update of each field that is newer than the cluster's, in whatever order the events arrived."""
    updates: dict[str, tuple[Json, Version]] = {}
    deletion = max((version for event in events if (version := _deleted_at(event))), default=None)
    for event in events:
        for name, update in event.fields.items():
            earlier = updates.get(name)
            if earlier and grows(event.item, name):
                updates[name] = _grown(earlier, update, deletion, order.tie_break)
            else:
                before = FieldVersion(digest(earlier[0]), earlier[1]) if earlier else current.fields.get(name)
                if is_newer(event.item, name, update, before, order):
                    updates[name] = update
    return updates


def _deleted_at(event: MetadataChangeEvent) -> Version | None:
    should_exist, version = event.fields.get(EXISTS, (True, None))
    return None if should_exist else version


def _grown(
    one: tuple[Json, Version], other: tuple[Json, Version], deletion: Version | None, tie_break: TieBreak
) -> tuple[Json, Version]:
    """Of two values of a field that grows the one that contains the other, with the later version.

    A cluster receives its own events too, so a smaller and later value may come with the larger one of another
    cluster. A value from before the deletion of the resource says nothing of what was created after it.
    """
    earlier, later = (one, other) if other[1].newer_than(one[1], tie_break) else (other, one)
    recreated = deletion is not None and later[1].newer_than(deletion, tie_break) and deletion > earlier[1]
    if later[0] is None and not recreated:
        return earlier
    value = None if recreated else largest([earlier[0], later[0]])
    return later if value is None else (value, later[1])


def is_newer(item: Item, name: str, update: tuple[Json, Version], current: FieldVersion | None, order: Order) -> bool:
    """Whether an update wins against the current value of its field.

    A partition count or a schema history that contains the current one wins whenever it was written, and no schema
    history is deleted.
    """
    value, version = update
    growing = grows(item, name) and current is not None and bool(current.digest)
    if growing and (value is None or has_grown(value, current.digest if current else "")):
        return value is not None
    return version.newer_than(current.version if current else None, order.tie_break)


def grows(item: Item, name: str) -> bool:
    """Whether the larger of two values of a field counts: partition counts and schema histories."""
    return item[0] is Resource.TOPIC and name in GROWING


def _newest_document(events: Collection[MetadataChangeEvent], current: ResourceVersions, order: Order) -> Updates:
    """The fields of the newest document, and the fields that it unsets; empty if the cluster is newer."""
    newest, version = None, current.newest
    for event in events:
        if event.data is not None and event.version.newer_than(version, order.tie_break):
            newest, version = event, event.version
    if newest is None:
        return {}
    unset = {name: (None, newest.version) for name, entry in current.fields.items() if entry.digest}
    return {**unset, **newest.fields}
