"""Deletions on other clusters that wait on one cluster: plan, apply the allowed ones (client)."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Change, Plan
from pulsar_fleet.policy_sync.events.participant import Participant
from pulsar_fleet.policy_sync.events.publish import observed_versions
from pulsar_fleet.policy_sync.events.resolve import waiting_deletion
from pulsar_fleet.policy_sync.events.results import Tally
from pulsar_fleet.policy_sync.events.versions import FieldVersion, ResourceVersions, StoredVersions, Version
from pulsar_fleet.policy_sync.merge.deletion_plan import (
    PropagateDeletes,
    allowed_deletions,
    deletion,
    deletion_batch,
    pending,
)
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, ROLES, topic_document
from pulsar_fleet.policy_sync.merge.view import Item
from pulsar_fleet.policy_sync.recorded_apply import apply_recorded, current_documents

_PROCEDURE = "sync_metadata"


async def settle_deletions(participant: Participant, tally: Tally) -> None:
    """Apply the waiting deletions that are allowed, and list the others.

    What was deleted here has the version of the deletion elsewhere, so it is no new change. A resource that somebody
    uses or has changed stays, and keeps waiting.
    """
    plan = await _plan(participant)
    allow = allowed_deletions(plan, participant.request.allow)
    if participant.request.propagate_deletes is PropagateDeletes.APPROVE and allow:
        await _delete(participant, tally, plan, allow)
        plan = await _plan(participant)
    command = command_line("sync-metadata", participant.admin.connection.argument, *participant.request.options)
    tally.pending_deletions = pending(plan, command)


def _waiting(participant: Participant, stored: StoredVersions) -> dict[Item, Version]:
    order, waiting = participant.request.order, {}
    for item in sorted(stored.items()):
        versions = stored.of(item) or ResourceVersions()
        if participant.request.includes(item) and (version := waiting_deletion(versions, order)):
            waiting[item] = version
    return waiting


async def _plan(participant: Participant) -> Plan:
    """The deletions of what was deleted elsewhere and still exists here: a scan of these resources only."""
    waiting = _waiting(participant, participant.stored_versions())
    if not waiting:
        return deletion_batch(participant.own, ())
    observed = await participant.scan_items(list(waiting))
    view = participant.view(observed)
    existing = [item for item in waiting if view.has_read(item) and view.values(item) is not None]
    namespaces = [name for kind, name in existing if kind is Resource.NAMESPACE]
    documents = await current_documents(participant.admin, namespaces, participant.own, participant.redactor)
    tenants = {
        state.name: {ROLES: list(state.admin_roles), CLUSTERS: list(state.allowed_clusters)}
        for state in observed.snapshot.tenants
    }
    changes: list[Change] = []
    for item in existing:
        kind, name = item
        topic = topic_document(view.values(item) or {}) if kind is Resource.TOPIC else None
        before = {Resource.TENANT: tenants, Resource.NAMESPACE: documents}.get(kind, {}).get(name, topic)
        changes.append(deletion(item, before, f"deleted on {waiting[item].source_cluster}"))
    return deletion_batch(participant.own, changes)


async def _delete(participant: Participant, tally: Tally, plan: Plan, allow: frozenset[str]) -> None:
    chosen = deletion_batch(plan.target, (change for change in plan.changes if change.id in allow))
    items = [(change.resource, change.name) for change in chosen.changes]
    with participant.applying(items):
        stored = participant.stored_versions(items)
        waiting = _waiting(participant, stored)
        expected = {
            item: versions.awaiting({name: FieldVersion("", waiting[item]) for name in versions.fields})
            for item in items
            if item in waiting and (versions := stored.of(item))
        }
        if set(expected) != set(items) or not participant.save(stored, expected):
            tally.not_deleted.append("the resources were changed meanwhile; run it again")
            return
        run_id = f"{_PROCEDURE}/{participant.own}/{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        applied = await apply_recorded(
            chosen,
            participant.admin,
            participant.peers,
            participant.ledger,
            run_id,
            _PROCEDURE,
            redactor=participant.redactor,
            allow=allow,
        )
        stored = participant.stored_versions(items)
        observed = await participant.scan_items(items)
        after = observed_versions(participant, observed, participant.view(observed), stored, items, {})
        participant.save(stored, {item: entry.awaiting({}) for item, entry in after.items()})
    tally.deleted += applied.counts()[Outcome.APPLIED]
    tally.not_deleted += [f"{result.change.label}: {result.detail}" for result in applied.not_in_place()]
