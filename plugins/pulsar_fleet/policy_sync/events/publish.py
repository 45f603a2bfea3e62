"""Find changes that were made on a cluster by others, and publish them (client)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass

from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.last_updated import update_properties
from pulsar_fleet.policy_sync.events.participant import Participant, StoredVersions, field_values, write_times
from pulsar_fleet.policy_sync.events.versions import ObservedValues, ResourceVersions, next_versions
from pulsar_fleet.policy_sync.merge.plan import made_with
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Item, View, tenant_and_namespace

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class PublishCounts:
    """The number of sent events, and of namespaces whose provenance properties were written."""

    events: int = 0
    provenance_written: int = 0


async def publish_changes(participant: Participant, *, snapshot: bool = False) -> PublishCounts:
    """Scan the cluster and publish each changed resource as soon as its part of the scan is read.

    A version is saved before it is published, so after a crash the next call publishes it with its original time. If
    another process saved the same change first, this call stops.

    :param snapshot: publish every resource, each field with its original time and source.
    """
    # Load the versions before the scan: versions that another process saves later must not meet older values.
    participant.begin_scan()
    before, scanned, counts = participant.stored_versions(), set[Item](), PublishCounts()
    async with aclosing(participant.scan_cluster()) as parts:
        async for observed in parts:
            view = participant.view(observed)
            items = _newly_scanned(view, before, scanned)
            scanned.update(items)
            part = _Part(observed, view, items)
            if not await _publish_part(participant, part, before, counts, snapshot=snapshot):
                return counts
    if not participant.touched and not before.covers(participant.scope()):
        participant.save_scope(before)
    return counts


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
    participant: Participant, part: _Part, before: StoredVersions, counts: PublishCounts, *, snapshot: bool
) -> bool:
    """Save and publish the changes of a part; False if another process was faster."""
    observed, view = part.observed, part.view
    items = _included(participant, observed, view, part.items)
    if namespaces := _namespaces_to_list(view, before, items):
        observed = await participant.with_topics(observed, namespaces)
        view = participant.view(observed)
    touched = participant.touched
    valid = [item for item in without_deleted_topics(view, items) if item not in touched]
    versions = observed_versions(participant, observed, view, before, valid)
    if not participant.save(before, {item: entry for item, entry in versions.items() if entry != before.of(item)}):
        log.info("%s: another follower saved the same changes first", participant.own)
        return False
    due = {item: entry for item, entry in versions.items() if snapshot or not entry.published}
    counts.events += await _publish(participant, observed, view, due) if due else 0
    counts.provenance_written += await update_properties(participant, observed, versions)
    return True


def observed_versions(
    participant: Participant, observed: ClusterScan, view: View, before: StoredVersions, items: Iterable[Item]
) -> dict[Item, ResourceVersions]:
    """The versions of resources after a scan; before the first full scan a value may have any age."""
    first, versions = not before.covers(participant.scope()), {}
    for item in items:
        current, values = before.of(item), field_values(view, item)
        if current is None and not values:
            continue
        state = ObservedValues(
            values=values,
            now=int(observed.ended * 1000),
            times=write_times(observed, item),
            first=first,
            whole=participant.request.order.whole,
        )
        versions[item] = next_versions(current, state, participant.own)
    return versions


async def _publish(
    participant: Participant, observed: ClusterScan, view: View, versions: Mapping[Item, ResourceVersions]
) -> int:
    """Send the scanned resources, tenants first, then save them as published."""
    stored = participant.stored_versions(list(versions))
    current = {item: entry for item, entry in versions.items() if entry.fields and stored.of(item) == entry}
    if not current:
        return 0
    documents = {(Resource.NAMESPACE, state.name): made_with(state.policies) for state in observed.snapshot.namespaces}
    sent = await participant.topic.publish(
        MetadataChangeEvent.of(item, field_values(view, item), entry, documents.get(item, {}))
        for item, entry in current.items()
    )
    # A resource to which an event is applied in the meantime is published again after the next scan.
    busy = participant.being_applied
    done = {item: entry.as_published() for item, entry in current.items() if not entry.published and item not in busy}
    participant.save(stored, done)
    return sent


def _included(participant: Participant, observed: ClusterScan, view: View, items: Iterable[Item]) -> list[Item]:
    """The resources that may be published: not those in a migration, nor those that could not be read."""
    in_migration = participant.ledger.in_migration() | observed.migrated
    return [
        item
        for item in items
        if participant.request.includes(item)
        and view.has_read(item)
        and tenant_and_namespace(item)[1] not in in_migration
    ]


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
