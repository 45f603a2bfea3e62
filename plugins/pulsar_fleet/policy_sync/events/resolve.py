"""The updates that events request for a resource, and how a cluster resolves them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.versions import EXISTS, FieldVersion, ResourceVersions, Version
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

Updates = Mapping[str, tuple[Json, Version]]
"""Field → value and version, only for fields for which an event is newer than the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a cluster does about updates.

    :param values: the new values of the resource; None unsets.
    :param versions: the versions of these fields after the write.
    :param create: whether the resource has to be created.
    :param refused: why a part of the updates is not applied; empty if all of it is.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    versions: Mapping[str, FieldVersion] = field(default_factory=dict)
    create: bool = False
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which of two changes wins, and whether a field or a whole document does."""

    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD

    @property
    def whole(self) -> bool:
        """As in PIP-136: of two edits of different fields of one resource, one is lost."""
        return self.granularity is Granularity.DOCUMENT


def accepted_updates(events: Collection[MetadataChangeEvent], current: ResourceVersions, order: Order) -> Updates:
    """The fields for which events are newer than the cluster; the order and the number of deliveries have no effect.

    Stale and repeated events request nothing. The newest whole document requests all its fields, and that all other
    fields are unset. The existence of a resource is always decided separately: a resource that was deleted here is not
    recreated because it was changed elsewhere.
    """
    by_field = _by_field(events, current, order)
    if not order.whole:
        return by_field
    document = _newest_document(events, current, order)
    fields = {name: update for name, update in document.items() if name != EXISTS}
    return {**fields, **({EXISTS: by_field[EXISTS]} if EXISTS in by_field else {})}


def outstanding(updates: Updates, current: ResourceVersions, order: Order) -> dict[str, Version]:
    """The updates that are not in place, except those with a newer version."""
    if not order.whole:
        return {
            name: version
            for name, (_, version) in updates.items()
            if version.newer_than(current.version(name), order.tie_break)
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
    updates: dict[str, tuple[Json, Version]] = {}
    for event in events:
        for name, (value, version) in event.fields.items():
            before = updates[name][1] if name in updates else current.version(name)
            if version.newer_than(before, order.tie_break):
                updates[name] = value, version
    return updates


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


def resolve(item: Item, updates: Updates, current: ResourceVersions, *, exists: bool) -> Resolution:
    """Decide on updates. Nothing is deleted, and a resource that was deleted here is not recreated."""
    versions = {name: FieldVersion(digest(value), version) for name, (value, version) in updates.items()}
    values = {name: value for name, (value, _) in updates.items() if name != EXISTS}
    label = f"{item[0].value} {item[1]}"
    if item[0] is Resource.TOPIC_POLICY:
        return Resolution(values=values, versions=versions)
    should_exist, version = updates.get(EXISTS, (None, None))
    if version is not None and not should_exist:
        return _deleted(label, version, values, versions, exists=exists)
    if exists:
        return Resolution(values=values, versions=versions)
    if version is None:
        gone = current.version(EXISTS)
        since = f"was deleted here ({_when(gone)}) and changed elsewhere since" if gone else "does not exist here"
        return Resolution(refused=f"{label} {since}: recreate it here by hand, or delete it there.")
    return Resolution(values=values, versions=versions, create=True)


def _deleted(
    label: str, version: Version, values: Mapping[str, Json], versions: Mapping[str, FieldVersion], *, exists: bool
) -> Resolution:
    if not exists:
        return Resolution(versions={EXISTS: versions[EXISTS]})
    others = {name: entry for name, entry in versions.items() if name != EXISTS}
    sentence = (
        f"{label} was deleted on {version.source_cluster} ({_when(version)}) and is kept here: delete it by hand."
    )
    return Resolution(values=values, versions=others, refused=sentence)


def _when(version: Version) -> str:
    return f"updateTime {version.update_time}"
