"""How a cluster resolves the updates that events request for a resource (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.ordering.updates import Order, Updates, grows, newest_by_field
from pulsar_fleet.policy_sync.events.versions import EXISTS, FieldVersion, ResourceVersions, Version
from pulsar_fleet.policy_sync.merge.fields import largest
from pulsar_fleet.policy_sync.merge.plan import unpartitioned_text
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item, View


@dataclass(frozen=True, slots=True)
class KeptEdit:
    """An edit that was made after a deletion on another cluster, and won against it."""

    deletion: Version
    edit: Version

    @property
    def between_clusters(self) -> bool:
        """Whether one cluster deleted and another one edited."""
        return self.deletion.source_cluster != self.edit.source_cluster

    def text(self, item: Item) -> str:
        """Where and when the resource was deleted and edited, and what follows."""
        deletion, edit = self.deletion, self.edit
        return (
            f"{item[0].value} {item[1]} was deleted on {deletion.source_cluster} ({_when(deletion)}) and edited on "
            f"{edit.source_cluster} ({_when(edit)}) after that: the edit wins, and it exists on all clusters"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a cluster does about updates.

    :param values: the new values of the resource; None unsets.
    :param versions: the versions of these fields after the write.
    :param create: whether the resource has to be created.
    :param refused: why a part of the updates is not applied; empty if all of it is.
    :param deleted: a deletion on another cluster that waits here for an approval.
    :param kept_edit: the edit that won against a deletion.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    versions: Mapping[str, FieldVersion] = field(default_factory=dict)
    create: bool = False
    refused: str = ""
    deleted: Version | None = None
    kept_edit: KeptEdit | None = None


def reason_to_leave(view: View, item: Item, updates: Updates) -> str:
    """Why updates of a topic are not applied on a cluster, empty if they are: what it has is another kind of topic."""
    should_exist, _ = updates.get(EXISTS, (True, None))
    if not should_exist:
        return ""
    if view.is_unpartitioned(item):
        holders = {version.source_cluster for _, version in updates.values()}
        return unpartitioned_text(item[1], holders, view.cluster)
    if item[1] in view.shadows:
        return f"{item[1]} is a shadow topic on {view.cluster}, which takes no part: delete it there, or on the others"
    return ""


def resolve(
    item: Item,
    updates: Updates,
    current: ResourceVersions,
    events: Collection[MetadataChangeEvent],
    order: Order,
    *,
    present: Mapping[str, Json] | None,
) -> Resolution:
    """Decide on updates. A deletion waits for an approval; an edit that is later than a deletion wins against it.

    Where the edited resource was deleted it is recreated, as the events have it.

    :param present: the values that the cluster has; None if the resource does not exist.
    """
    should_exist, version = updates.get(EXISTS, (None, None))
    fields = {name: update for name, update in updates.items() if name != EXISTS}
    values, versions = _values(item, fields, current, present or {})
    if item[0] is Resource.TOPIC_POLICY:
        return Resolution(values=values, versions=versions)
    if version is not None and not should_exist:
        if present is None:
            return _absent(version, fields, current, events, order)
        return _deleted(version, values, versions, current, order)
    if present is None:
        return _created(updates, current, events, order)
    existence = {} if version is None else {EXISTS: FieldVersion(digest(True), version)}
    return Resolution(values=values, versions={**versions, **existence})


def _values(
    item: Item, fields: Updates, current: ResourceVersions, present: Mapping[str, Json]
) -> tuple[dict[str, Json], dict[str, FieldVersion]]:
    """The new values and their versions; of a field that grows the larger value stays, with the later version."""
    values, versions = {}, {}
    for name, (value, version) in fields.items():
        held = present.get(name)
        growing = grows(item, name) and held is not None
        if growing and largest([held, value]) is held:
            versions[name] = FieldVersion(digest(held), version)
            continue
        earlier = current.version(name)
        values[name] = value
        versions[name] = FieldVersion(digest(value), max(version, earlier) if growing and earlier else version)
    return values, versions


def waiting_deletion(current: ResourceVersions, order: Order) -> Version | None:
    """The deletion elsewhere that waits for an approval; None if there is none, or a later edit won against it."""
    deleted = current.deleted_elsewhere
    return deleted if deleted and deleted.newer_than(current.newest, order.tie_break) else None


def _deleted(
    version: Version,
    values: Mapping[str, Json],
    versions: Mapping[str, FieldVersion],
    current: ResourceVersions,
    order: Order,
) -> Resolution:
    """What a deletion does to a resource that exists: a later edit wins against it, or it waits."""
    edits = [entry.version for entry in (*current.fields.values(), *versions.values())]
    edit = max(edits, default=version)
    if not edit.newer_than(version, order.tie_break):
        return Resolution(values=values, versions=versions, deleted=version)
    kept = FieldVersion(digest(True), edit)
    return Resolution(values=values, versions={**versions, EXISTS: kept}, kept_edit=KeptEdit(version, edit))


def _absent(
    deletion: Version,
    fields: Updates,
    current: ResourceVersions,
    events: Collection[MetadataChangeEvent],
    order: Order,
) -> Resolution:
    """What a deletion does where the resource does not exist: nothing, or an edit after it creates the resource."""
    existence = {EXISTS: FieldVersion("", deletion)}
    if not fields:
        return Resolution(versions=existence)
    return _created(fields, replace(current, fields={**current.fields, **existence}), events, order)


def _created(
    updates: Updates,
    current: ResourceVersions,
    events: Collection[MetadataChangeEvent],
    order: Order,
) -> Resolution:
    """Create the resource as the events have it, also with values that are older than its deletion here."""
    latest = max((version for _, version in updates.values()), default=None)
    if latest is None:
        return Resolution()
    newest = newest_by_field(events, ResourceVersions(), order)
    fields = {name: update for name, update in newest.items() if name != EXISTS}
    versions = {name: FieldVersion(digest(value), version) for name, (value, version) in fields.items()}
    deletion = None if EXISTS in updates else current.version(EXISTS)
    existence = updates[EXISTS][1] if EXISTS in updates else latest
    return Resolution(
        values={name: value for name, (value, _) in fields.items()},
        versions={**versions, EXISTS: FieldVersion(digest(True), existence)},
        create=True,
        kept_edit=KeptEdit(deletion, latest) if deletion else None,
    )


def _when(version: Version) -> str:
    return datetime.fromtimestamp(version.update_time / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
