"""Apply the events of other clusters: plan, write with all guards, read back, and only then acknowledge."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.ledger.reconciliation_store import RecordedConflict
from pulsar_fleet.planning.apply.outcome import Outcome, PlanResult
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.events.event_topic import Received
from pulsar_fleet.policy_sync.events.last_updated import update_properties
from pulsar_fleet.policy_sync.events.ordering.conflicts import record_conflicts, record_overwritten, unseen_edits
from pulsar_fleet.policy_sync.events.ordering.updates import Updates, accepted_updates, lost_edits, outstanding
from pulsar_fleet.policy_sync.events.participant import Participant
from pulsar_fleet.policy_sync.events.publish import observed_versions, without_deleted_topics
from pulsar_fleet.policy_sync.events.recreated import Withheld, withheld_fields
from pulsar_fleet.policy_sync.events.resolve import Resolution, reason_to_leave, resolve
from pulsar_fleet.policy_sync.events.results import Batch
from pulsar_fleet.policy_sync.events.versions import EXISTS, ResourceVersions, StoredVersions
from pulsar_fleet.policy_sync.guards import leave_incompatible_out
from pulsar_fleet.policy_sync.merge.compare import ComparedResource
from pulsar_fleet.policy_sync.merge.merge_resource import ClusterValues, Decision, MergedResource, Rule
from pulsar_fleet.policy_sync.merge.plan import Target, growths, plan_repair, revocations, topics_needed
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Item, View, tenant_and_namespace
from pulsar_fleet.policy_sync.recorded_apply import apply_recorded
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot

log = logging.getLogger(__name__)

PROCEDURE = "sync_metadata"
_INVALID_VALUE = (AttributeError, KeyError, TypeError, ValueError)
"""Errors caused by a value with another shape than its policy: an event may contain anything."""


async def apply_received(participant: Participant, received: Sequence[Received]) -> Batch:
    """Apply events, then acknowledge them; a second delivery has no effect.

    Several events of one resource cause one write with their newest fields. An event that cannot be applied is
    dead-lettered with its reason and does not stop the others; one that may succeed later is negatively acknowledged,
    and what it waits for is in `participant.waiting`.

    :raises Unavailable: the cluster does not answer; all events are delivered again.
    """
    batch = Batch.of(received, participant.request.includes, participant.ledger.in_migration())
    try:
        await _apply_stages(participant, batch)
        await participant.topic.dead_letter(batch.refused)
        for message in received:
            if message.ends_snapshot_for(participant.own):
                participant.members.receive_snapshot(participant.own, message.left_out)
        await participant.topic.acknowledge([*batch.dropped, *batch.applied, *batch.refused])
    except Unavailable:
        # The broker keeps what it delivered and has no answer for as long as this consumer is connected.
        await participant.topic.negatively_acknowledge(received)
        raise
    await participant.topic.negatively_acknowledge(batch.postponed)
    return batch


async def _apply_stages(participant: Participant, batch: Batch) -> None:
    participant.wait(batch)
    before = participant.stored_versions(list(batch.events))
    batch.drop([item for item in batch.events if not _updates(participant, batch, item, before.of(item))])
    for part in batch.stages():
        await _apply_each(participant, part)
        participant.wait(part)
        batch.add(part)
    participant.wait(batch)
    for message, reason in batch.refused.items():
        log.warning("%s: event %s is not applied: %s", participant.own, message.id, reason)


async def _apply_each(participant: Participant, batch: Batch) -> None:
    """Apply the whole batch; if a value is not valid, apply each resource separately, so that the others succeed."""
    try:
        with participant.applying(batch.events):
            await _apply(participant, batch)
    except (*_INVALID_VALUE, InvalidRequest, PreconditionFailed, NotFound) as error:
        items = list(batch.events)
        if len(items) == 1:
            is_invalid = isinstance(error, _INVALID_VALUE)
            cause = f"a value does not have the shape of its policy: {error}" if is_invalid else str(error)
            if why := _waits_for(participant, batch, items[0]):
                batch.postpone(items, why)
            else:
                batch.refuse(items[0], f"{items[0][0].value} {items[0][1]}: {cause}")
            return
        for item in items:
            part = batch.take([item])
            await _apply_each(participant, part)
            batch.add(part)


async def _apply(participant: Participant, batch: Batch) -> None:
    """Scan, save the expected values, write, scan again: after a crash no copy is treated as a new edit."""
    scan = await _scan(participant, batch)
    if not batch.events:
        return
    versions = _versions(participant, batch, scan)
    updates = {item: _updates(participant, batch, item, versions[item]) for item in batch.events}
    lost = _lost(participant, batch, updates, versions)
    resolutions = {
        item: _resolve(participant, batch, scan, item, requested, versions[item])
        if not (reason := reason_to_leave(scan.view, item, requested))
        else Resolution(refused=reason)
        for item, requested in updates.items()
    }
    expected = {item: versions[item].awaiting(resolution.versions) for item, resolution in resolutions.items()}
    expected = {
        item: replace(entry, deleted_elsewhere=resolutions[item].deleted or entry.deleted_elsewhere)
        for item, entry in expected.items()
    }
    if not participant.save(scan.stored, expected):
        batch.postpone(batch.events)
        return
    where = (participant.ledger, participant.fleet, f"{PROCEDURE}/{participant.own}")
    batch.conflicts += record_conflicts(
        *where,
        {item: scan.view.values(item) or {} for item in resolutions},
        updates,
        versions,
        resolutions,
    )
    plan = await _plan(participant, scan, resolutions, _source_snapshots(participant, batch))
    plan, undecided = await leave_incompatible_out(
        plan, participant.clusters, participant.behind, participant.redactor, scan.observed.snapshot
    )
    applied = await _apply_plan(participant, plan) if plan.changes else PlanResult(plan.id, plan.target, ())
    batch.written += applied.counts()[Outcome.APPLIED]
    before, scan = scan, await _scan(participant, batch)
    batch.conflicts += record_overwritten(*where, _unseen_edits(participant, before, scan, resolutions))
    scan = replace(scan, stored=scan.stored.confirming(_in_place(batch, plan, applied)))
    versions = {item: entry.awaiting({}) for item, entry in _versions(participant, batch, scan).items()}
    if not participant.save(scan.stored, versions):
        batch.postpone(batch.events)
    final = {item: versions[item] for item in batch.events}
    batch.provenance_written += await update_properties(participant, scan.observed, final)
    kinds = list(Resource)
    for item in sorted(batch.events, key=lambda item: kinds.index(item[0])):
        failed = outstanding(item, updates[item], versions[item], participant.request.order.of(item))
        if resolutions[item].deleted:
            failed.pop(EXISTS, None)
            batch.deletions += 1
        batch.lost += len(lost[item] - set(failed))
        reason = _reason(item, resolutions[item], plan, applied)
        if failed and (item[1] in undecided or _is_retryable(item, applied)):
            batch.postpone([item], reason)
        elif failed and (why := _waits_for(participant, batch, item)):
            batch.postpone([item], why)
        else:
            batch.finish(item, failed, reason)


def _resolve(
    participant: Participant,
    batch: Batch,
    scan: _Scan,
    item: Item,
    updates: Updates,
    current: ResourceVersions,
) -> Resolution:
    """Decide on the updates of a resource; a conflict is logged before anything is written."""
    order, present = participant.request.order.of(item), scan.view.values(item)
    resolution = resolve(item, updates, current, batch.of_item(item), order, present=present)
    if resolution.kept_edit:
        text = resolution.kept_edit.text(item)
        log.warning("%s: %s", participant.own, text)
        batch.kept_edits.append(text)
    return resolution


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan of some resources, with the versions that were stored before it."""

    stored: StoredVersions
    observed: ClusterScan
    view: View
    withheld: Withheld


async def _scan(participant: Participant, batch: Batch) -> _Scan:
    """Load the versions before the scan, so that later versions of another process do not meet older values.

    Events of resources that cannot be read, or in whose namespace a run overrides policies, are postponed.
    """
    stored = participant.stored_versions(list(batch.events))
    observed = await participant.scan_items(list(batch.events))
    view = participant.view(observed)
    batch.postpone([item for item in batch.events if not view.has_read(item)], "its present values cannot be read")
    busy = [item for item in batch.events if tenant_and_namespace(item)[1] in observed.overridden]
    batch.postpone(busy, "a run overrides policies of its namespace")
    withheld = await withheld_fields(participant, observed, view, stored, batch.events)
    return _Scan(stored, observed, view, withheld)


def _updates(participant: Participant, batch: Batch, item: Item, current: ResourceVersions | None) -> Updates:
    return accepted_updates(batch.of_item(item), current or ResourceVersions(), participant.request.order.of(item))


def _lost(
    participant: Participant,
    batch: Batch,
    updates: Mapping[Item, Updates],
    versions: Mapping[Item, ResourceVersions],
) -> dict[Item, frozenset[str]]:
    """The edits that the updates revert, logged before the write."""
    order = participant.request.order
    lost = {
        item: lost_edits(requested, batch.of_item(item), versions[item], participant.own, order.of(item))
        for item, requested in updates.items()
    }
    for item, names in lost.items():
        if names:
            fields = ", ".join(sorted(names))
            log.warning("%s: edits of %s in %s lose to a newer document", participant.own, fields, item[1])
    return lost


def _versions(participant: Participant, batch: Batch, scan: _Scan) -> dict[Item, ResourceVersions]:
    """The versions after a scan; a topic that does not exist keeps its stored ones."""
    before = {item: scan.stored.of(item) or ResourceVersions() for item in batch.events}
    items = without_deleted_topics(scan.view, batch.events)
    return before | observed_versions(participant, scan.observed, scan.view, scan.stored, items, scan.withheld)


def _unseen_edits(
    participant: Participant, before: _Scan, after: _Scan, resolutions: Mapping[Item, Resolution]
) -> list[RecordedConflict]:
    """The edits of topic policies that were made between our check of the live values and our write of them."""
    conflicts: list[RecordedConflict] = []
    for item, resolution in resolutions.items():
        namespace = tenant_and_namespace(item)[1]
        earlier, now = (scan.observed.events.get(namespace) for scan in (before, after))
        if item[0] is Resource.TOPIC_POLICY and earlier and now:
            changes = now.since(earlier, item[1])
            conflicts += unseen_edits(item, changes, resolution, participant.own, participant.clock)
    return conflicts


def _source_snapshots(participant: Participant, batch: Batch) -> tuple[Snapshot, ...]:
    """The namespaces with the creation settings of the clusters that published them last."""
    namespaces = [item for item in batch.events if item[0] is Resource.NAMESPACE]
    newest = [max(batch.of_item(item), key=lambda event: event.version) for item in namespaces]
    return tuple(
        Snapshot(
            cluster=event.source_cluster,
            began="",
            ended="",
            key_id=participant.redactor.key_id,
            namespaces=(NamespaceState(event.resource_name, event.made_with),),
        )
        for event in newest
    )


async def _plan(
    participant: Participant, scan: _Scan, resolutions: Mapping[Item, Resolution], sources: Sequence[Snapshot]
) -> Plan:
    """The writes, with their hazards on this cluster."""
    compared = [
        _compared(scan.view, item, resolution)
        for item, resolution in resolutions.items()
        if resolution.values or resolution.create
    ]
    observed = await participant.with_topics(scan.observed, topics_needed(compared, participant.own))
    target = Target(snapshot=observed.snapshot, topics=observed.topics)
    return plan_repair(compared, target, sources, source="events of metadata")


def _compared(view: View, item: Item, resolution: Resolution) -> ComparedResource:
    own, current = view.cluster, view.values(item)
    values = {**(current or {}), **resolution.values}
    decisions = {
        name: Decision(value=value, rule=Rule.CARRIED)
        for name, value in resolution.values.items()
        if not same((current or {}).get(name), value)
    }
    absent = (own,) if current is None else ()
    in_topic = item[0] is Resource.TOPIC_POLICY
    merged = {name: value for name, value in values.items() if value is not None}
    return ComparedResource(
        item=item,
        merged=MergedResource(values=merged, decisions=decisions),
        sides=() if current is None else (ClusterValues(cluster=own, values=current, provenance={}),),
        missing=() if in_topic else absent,
        without_topic=absent if in_topic else (),
    )


async def _apply_plan(participant: Participant, plan: Plan) -> PlanResult:
    run_id = f"{PROCEDURE}/{participant.own}/{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    admin, peers, ledger = participant.admin, participant.peers, participant.ledger
    return await apply_recorded(
        plan,
        admin,
        peers,
        ledger,
        run_id,
        PROCEDURE,
        redactor=participant.redactor,
        allow=growths(plan) | revocations(plan),
        behind=participant.behind,
    )


def _in_place(batch: Batch, plan: Plan, applied: PlanResult) -> list[Item]:
    """The resources of which every planned value was written and read back."""
    incomplete = {result.change.name for result in applied.not_in_place()} | {entry.name for entry in plan.left_alone}
    planned = {change.name for change in plan.changes} - incomplete
    return [item for item in batch.events if item[1] in planned]


def _is_retryable(item: Item, applied: PlanResult) -> bool:
    results = (result for result in applied.not_in_place() if result.change.name == item[1])
    return any(result.passing or result.outcome is Outcome.CONFLICT for result in results)


def _waits_for(participant: Participant, batch: Batch, item: Item) -> str:
    """What a resource needs that waits itself, as a sentence; empty if nothing does."""
    tenant, namespace = tenant_and_namespace(item)
    parents = [(Resource.TENANT, tenant), (Resource.NAMESPACE, namespace), (Resource.TOPIC, item[1])]
    waiting = {*participant.waiting, *batch.waiting} - {item}
    return next((f"{kind.value} {name} waits" for kind, name in parents if (kind, name) in waiting), "")


def _reason(item: Item, resolution: Resolution, plan: Plan, applied: PlanResult) -> str:
    kind, name = item
    failed = (
        f"{result.change.label}: {result.detail}" for result in applied.not_in_place() if result.change.name == name
    )
    skipped = (f"{entry.field or name}: {entry.reason}" for entry in plan.left_alone if entry.name == name)
    reasons = [reason for reason in (resolution.refused, *failed, *skipped) if reason]
    return "; ".join(reasons) or f"{kind.value} {name} does not have the written values."
