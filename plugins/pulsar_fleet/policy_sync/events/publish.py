"""Find changes that were made on a cluster by others, and publish them (client)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import chain

from pulsar_fleet.cluster.admin.partial_reads import (
    CLUSTERS,
    NAMESPACES_OF,
    PARTITIONED_TOPICS_OF,
    SCHEMAS_OF,
    TOPIC_POLICIES_OF,
    Note,
)
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.last_updated import update_properties
from pulsar_fleet.policy_sync.events.participant import Participant, field_values, write_times
from pulsar_fleet.policy_sync.events.recreated import Withheld, withheld_fields
from pulsar_fleet.policy_sync.events.resolve import waiting_deletion
from pulsar_fleet.policy_sync.events.versions import (
    BEFORE_EVERYTHING,
    EXISTS,
    FieldVersion,
    ObservedValues,
    ResourceVersions,
    StoredVersions,
    Version,
    next_versions,
)
from pulsar_fleet.policy_sync.merge.fields import PARTITIONS
from pulsar_fleet.policy_sync.merge.plan import made_with
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Item, View, tenant_and_namespace

log = logging.getLogger(__name__)

_RECORDED_EVERY_MS = 10_000
"""How often the time of a scan is recorded for the next process: each record is a write to the ledger."""
_MOST_NAMED = 50
_BUSY = "an event was applied to it on {own}"
_WITHHELD = "it lacks values on {own} that were removed, or lost with a deletion: reconciliation asks which"
_PARTS = (NAMESPACES_OF, TOPIC_POLICIES_OF, PARTITIONED_TOPICS_OF, SCHEMAS_OF)


@dataclass(kw_only=True)
class PublishCounts:
    """The number of sent events, and of namespaces whose provenance properties were written.

    :param skipped: resources that could not be read, or of namespaces in a migration.
    :param left_out: tenant or namespace of which something is not in a snapshot → why.
    :param complete: whether the whole cluster was scanned, so that a snapshot has every resource.
    :param new_topics: partitioned topics that appeared since the last scan, with their partition counts.
    """

    events: int = 0
    complete: bool = False
    skipped: set[Item] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)
    provenance_written: int = 0
    new_topics: list[str] = field(default_factory=list)


async def publish_changes(
    participant: Participant, *, snapshot: bool = False, owed: Collection[str] = frozenset()
) -> PublishCounts:
    """Scan the cluster and publish each changed resource as soon as its part of the scan is read.

    A version is saved before it is published, so after a crash the next call publishes it with its original time. If
    another process saved the same change first, this call stops.

    :param snapshot: publish every resource, each field with its original time and source.
    :param owed: tenants and namespaces that a snapshot left out: they are published like that if nothing of them is
        left out now.
    """
    # Load the versions before the scan: versions that another process saves later must not meet older values.
    participant.begin_scan()
    began = (await participant.measure_clock()).now()
    before, scanned, counts = participant.stored_versions(), set[Item](), PublishCounts()
    async with aclosing(participant.scan_cluster()) as parts:
        async for observed in parts:
            view = participant.view(observed)
            items = _newly_scanned(view, before, scanned)
            scanned.update(items)
            part = _Part(observed, view, items)
            unread = (place for note in observed.snapshot.notes if (place := _unread_place(note, view)))
            counts.left_out |= {
                place: f"it cannot be read on {participant.own}"
                for place in unread
                if participant.request.includes(_item_of_place(place))
            }
            if not await _publish_part(participant, part, before, counts, snapshot=snapshot, owed=owed):
                return counts
    _end_scan(participant, before, began, frozenset(counts.skipped))
    counts.complete = True
    return counts


def _end_scan(participant: Participant, before: StoredVersions, began: int, skipped: frozenset[Item]) -> None:
    """Record which resources were scanned: an edit of these that the next scan finds was made after this one began."""
    participant.scan_began, participant.unscanned = began, skipped
    is_due = before.scan_began is None or began - before.scan_began >= _RECORDED_EVERY_MS
    if is_due if before.covers(participant.scope()) else not participant.touched:
        participant.save_scope(before, before.scan_began if skipped else began)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a scan, and the resources in it."""

    observed: ClusterScan
    view: View
    items: Sequence[Item]


def _newly_scanned(view: View, before: StoredVersions, scanned: Set[Item]) -> list[Item]:
    """The resources of this part that no earlier part has; the last part also has the resources that are gone."""
    namespaces = {name for kind, name in view.items if kind is Resource.NAMESPACE}
    stored = (item for item in before.items() if not namespaces or tenant_and_namespace(item)[1] in namespaces)
    order = {kind: rank for rank, kind in enumerate(Resource)}
    return sorted({*view.items, *stored} - scanned, key=lambda item: (order[item[0]], item[1]))


async def _publish_part(
    participant: Participant,
    part: _Part,
    before: StoredVersions,
    counts: PublishCounts,
    *,
    snapshot: bool,
    owed: Collection[str],
) -> bool:
    """Save and publish the changes of a part; False if another process was faster."""
    observed, view = part.observed, part.view
    items = _included(participant, observed, view, part.items, counts)
    counts.skipped |= set(part.items) - set(items)
    if namespaces := _namespaces_to_list(view, before, items):
        observed = await participant.with_topics(observed, namespaces)
        view = participant.view(observed)
    touched = participant.touched
    valid = [item for item in without_deleted_topics(view, items) if item not in touched]
    counts.left_out |= {_place(item): _BUSY.format(own=participant.own) for item in items if item in touched}
    withheld = await withheld_fields(participant, observed, view, before, valid)
    counts.left_out |= {_place(item): _WITHHELD.format(own=participant.own) for item in withheld}
    versions = observed_versions(participant, observed, view, before, valid, withheld)
    if not participant.save(before, {item: entry for item, entry in versions.items() if entry != before.of(item)}):
        log.info("%s: another follower saved the same changes first", participant.own)
        return False
    if participant.joins:
        return True
    counts.new_topics += _new_topics(view, before, versions)
    ready = set(owed) - counts.left_out.keys()
    repeated = {item for item in versions if snapshot or _place(item) in ready}
    due = {item: entry for item, entry in versions.items() if item in repeated or not entry.published}
    counts.events += await _publish(participant, observed, view, due, repeated, counts) if due else 0
    counts.provenance_written += await update_properties(participant, observed, versions)
    return True


def _new_topics(view: View, before: StoredVersions, versions: Mapping[Item, ResourceVersions]) -> list[str]:
    """The partitioned topics that a client or a person created here: no list of Pulsar tells which of the two."""
    created = [
        item
        for item, entry in versions.items()
        if item[0] is Resource.TOPIC
        and item in view.items
        and (version := entry.version(EXISTS)) is not None
        and version.update_time > BEFORE_EVERYTHING
        and version != ((earlier := before.of(item)) and earlier.version(EXISTS))
    ]
    return [f"{name}: {counted(view.items[kind, name][PARTITIONS], 'partition')}" for kind, name in created]


def observed_versions(
    participant: Participant,
    observed: ClusterScan,
    view: View,
    before: StoredVersions,
    items: Iterable[Item],
    withheld: Withheld,
) -> dict[Item, ResourceVersions]:
    """The versions of resources after a scan; before the first full scan a value may have any age."""
    first, versions = not before.covers(participant.scope()), {}
    clock, since = participant.clock, participant.scan_began or before.scan_began
    for item in items:
        current, values = before.of(item), field_values(view, item)
        if current is None and not values:
            continue
        state = ObservedValues(
            values=values,
            now=clock.now(),
            since=None if item in participant.unscanned else since,
            uncertainty=clock.uncertainty,
            times=write_times(observed, item, clock),
            first=first,
            joins=participant.joins,
            whole=participant.request.order.of(item).whole,
            withheld=withheld.get(item, frozenset()),
        )
        versions[item] = next_versions(current, state, participant.own)
    return versions


async def publish_snapshot_end(participant: Participant, joining: Collection[str], left_out: Mapping[str, str]) -> None:
    """Tell clusters that join that they have the snapshot, and what it left out."""
    versions = ResourceVersions(
        fields={EXISTS: FieldVersion(digest(True), Version(participant.clock.now(), participant.own))}
    )
    own_tenant: Item = (Resource.TENANT, participant.request.event_topic.namespace.tenant)
    event = MetadataChangeEvent.of(own_tenant, {EXISTS: True}, versions, {})
    texts = [f"{place}: {why}" for place, why in sorted(left_out.items())]
    texts = [*texts[:_MOST_NAMED], *([f"and {len(texts) - _MOST_NAMED} more"] if len(texts) > _MOST_NAMED else [])]
    await participant.topic.end_snapshot(joining, texts, event)


async def _publish(
    participant: Participant,
    observed: ClusterScan,
    view: View,
    versions: Mapping[Item, ResourceVersions],
    repeated: Set[Item],
    counts: PublishCounts,
) -> int:
    """Send the scanned resources, tenants first, then save them as published.

    A snapshot has the deletions that wait here before their resources: a cluster that joins creates none of these.

    :param repeated: those that are published as in a snapshot.
    """
    stored = participant.stored_versions(list(versions))
    current = {item: entry for item, entry in versions.items() if entry.fields and stored.of(item) == entry}
    changed = (item for item, entry in versions.items() if entry.fields and item not in current)
    counts.left_out |= {_place(item): _BUSY.format(own=participant.own) for item in changed}
    if not current:
        return 0
    documents = {(Resource.NAMESPACE, state.name): made_with(state.policies) for state in observed.snapshot.namespaces}
    waiting = {item: waiting_deletion(entry, participant.request.order) for item, entry in current.items()}
    deletions = (_deletion(item, version) for item, version in waiting.items() if version and item in repeated)
    resources = (
        MetadataChangeEvent.of(item, *_told(field_values(view, item), entry), documents.get(item, {}))
        for item, entry in current.items()
    )
    sent = await participant.topic.publish(chain(deletions, resources))
    # A resource to which an event is applied in the meantime is published again after the next scan.
    busy = participant.being_applied
    done = {item: entry.as_published() for item, entry in current.items() if not entry.published and item not in busy}
    participant.save(stored, done)
    return sent


def _told(values: Mapping[str, Json], versions: ResourceVersions) -> tuple[dict[str, Json], ResourceVersions]:
    """The values and versions of an event: without the fields that are withheld."""
    fields = {name: entry for name, entry in versions.fields.items() if name not in versions.withheld}
    return {name: value for name, value in values.items() if name in fields}, replace(versions, fields=fields)


def _deletion(item: Item, version: Version) -> MetadataChangeEvent:
    """The event of the cluster that deleted a resource."""
    return MetadataChangeEvent.of(item, {}, ResourceVersions(fields={EXISTS: FieldVersion("", version)}), {})


def _included(
    participant: Participant, observed: ClusterScan, view: View, items: Iterable[Item], counts: PublishCounts
) -> list[Item]:
    """The resources that may be published: not those in a migration, nor those that could not be read."""
    in_migration = participant.ledger.in_migration() | observed.migrated
    included: list[Item] = []
    for item in items:
        if not participant.request.includes(item) or item[1] in view.shadows:
            continue
        if not view.has_read(item):
            counts.left_out[_place(item)] = f"it cannot be read on {participant.own}"
        elif tenant_and_namespace(item)[1] in in_migration:
            counts.left_out[_place(item)] = f"it is in a migration on {participant.own}"
        else:
            included.append(item)
    return included


def _place(item: Item) -> str:
    """The namespace of a resource; of a tenant, the tenant."""
    tenant, namespace = tenant_and_namespace(item)
    return namespace or tenant


def _item_of_place(place: str) -> Item:
    return (Resource.NAMESPACE if "/" in place else Resource.TENANT), place


def _unread_place(note: Note, view: View) -> str:
    """The tenant or namespace of what could not be read; empty of what was, and of brokers and clusters."""
    text = note.resource
    if text not in view.unread or note.concerns_brokers or text == CLUSTERS:
        return ""
    name = next((text.removeprefix(prefix) for prefix in _PARTS if text.startswith(prefix)), text)
    return str(TopicName.parse(name).namespace) if "://" in name else name


def _namespaces_to_list(view: View, before: StoredVersions, items: Iterable[Item]) -> set[str]:
    """Namespaces with a topic that lost its policies or is gone: only the list of topics distinguishes these."""
    return {
        tenant_and_namespace(item)[1]
        for item in items
        if item[0] is Resource.TOPIC_POLICY and item not in view.items and _had_values(before.of(item))
    }


def _had_values(versions: ResourceVersions | None) -> bool:
    return versions is not None and any(entry.digest for entry in versions.fields.values())


def without_deleted_topics(view: View, items: Iterable[Item]) -> list[Item]:
    """The resources without deleted topics: the deletion of a topic is no change of its policies."""
    return [item for item in items if item[0] is not Resource.TOPIC_POLICY or view.values(item) is not None]
