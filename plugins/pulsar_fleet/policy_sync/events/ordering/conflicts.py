"""Edits of one field on two clusters, neither of which had seen the other: one loses, and is put on record."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore, RecordedConflict
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.events.ordering.reference_clock import ReferenceClock
from pulsar_fleet.policy_sync.events.ordering.updates import Updates, grows
from pulsar_fleet.policy_sync.events.resolve import KeptEdit, Resolution
from pulsar_fleet.policy_sync.events.versions import (
    BEFORE_EVERYTHING,
    BEFORE_THE_FLEET,
    EXISTS,
    ResourceVersions,
    Version,
)
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict, listed
from pulsar_fleet.policy_sync.merge.deletion_plan import EDIT_WINS, EXISTENCE
from pulsar_fleet.policy_sync.merge.merge_resource import Rule
from pulsar_fleet.policy_sync.merge.provenance import UNBOUNDED, UNKNOWN, PolicyChanges, digest
from pulsar_fleet.policy_sync.merge.view import Item

log = logging.getLogger(__name__)


def conflicts_of(
    item: Item, updates: Updates, current: ResourceVersions, values: Mapping[str, Json]
) -> tuple[RecordedConflict, ...]:
    """The values of a cluster that updates overwrite although their writers had not seen them.

    The losing value is always overwritten where it was written, so each conflict is found there at the latest.

    :param values: the fields of the resource on the cluster.
    """
    conflicts = []
    for name, (value, version) in updates.items():
        entry = current.fields.get(name)
        if (
            name == EXISTS
            or grows(item, name)
            or entry is None
            or entry.digest == digest(value)
            or version.follows(entry.version)
        ):
            continue
        if not entry.digest and entry.version.update_time <= BEFORE_EVERYTHING:
            continue
        sides = {
            entry.version.source_cluster: _side(values.get(name), entry.version),
            version.source_cluster: _side(value, version),
        }
        conflicts.append(_conflict(item, name, _rule(version, entry.version), version, sides))
    return tuple(conflicts)


def unseen_edits(
    item: Item, changes: Iterable[PolicyChanges], resolution: Resolution, own: str, clock: ReferenceClock
) -> tuple[RecordedConflict, ...]:
    """The edits of a topic's policies that our write overwrote, because they came after its check of the live value.

    Pulsar's setters are not conditional, but the topic of policies keeps each event: an edit is there before ours.

    :param changes: the events since the scan before the write.
    :param own: the cluster that was written.
    """
    edits: dict[str, tuple[Json, Version]] = {}
    conflicts = []
    for change in changes:
        for name in change.values.keys() & resolution.values.keys():
            value = change.values[name]
            if not same(value, resolution.values[name]):
                at, bounds = clock.written(change.at / 1000, change.at / 1000)
                edits[name] = value, Version(at, own, bounds)
            elif name in edits and (winner := resolution.versions[name].version).source_cluster != own:
                sides = {own: _side(*edits.pop(name)), winner.source_cluster: _side(value, winner)}
                conflicts.append(_conflict(item, name, Rule.UNCERTAIN, winner, sides))
    return tuple(conflicts)


def _conflict(item: Item, name: str, rule: Rule, winner: Version, sides: JsonObject) -> RecordedConflict:
    source = winner.source_cluster
    return RecordedConflict(kind=item[0].value, name=item[1], field=name, rule=rule.value, winner=source, sides=sides)


def kept_edit_conflict(item: Item, kept: KeptEdit, values: Mapping[str, Json]) -> RecordedConflict:
    """The conflict about a resource that was deleted on one cluster and edited on another afterwards.

    A reconciliation closes it as soon as it finds the resource on all clusters.

    :param values: what the resource has.
    """
    edited = {name: value for name, value in values.items() if name != EXISTS}
    return RecordedConflict(
        kind=item[0].value,
        name=item[1],
        field=EXISTENCE,
        rule=EDIT_WINS,
        winner=kept.edit.source_cluster,
        sides={
            kept.deletion.source_cluster: _side(None, kept.deletion),
            kept.edit.source_cluster: _side(edited, kept.edit),
        },
    )


def _rule(winner: Version, loser: Version) -> Rule:
    if loser.update_time == BEFORE_THE_FLEET or loser.update_time == BEFORE_EVERYTHING < winner.update_time:
        return Rule.JOINED
    if winner.update_time == loser.update_time:
        return Rule.NAME
    return Rule.TIME if winner.certainly_after(loser) else Rule.UNCERTAIN


def _side(value: Json, version: Version) -> JsonObject:
    earliest, latest = version.bounds or (UNKNOWN, UNBOUNDED * 1000)
    return {"value": value, "not_before": earliest / 1000, "not_after": latest / 1000}


def record_conflicts(
    ledger: Ledger,
    fleet: Iterable[str],
    run_id: str,
    values: Mapping[Item, Mapping[str, Json]],
    updates: Mapping[Item, Updates],
    versions: Mapping[Item, ResourceVersions],
    resolutions: Mapping[Item, Resolution],
) -> tuple[ListedConflict, ...]:
    """Record values that are about to be overwritten by edits whose writers had not seen them, and kept edits.

    They are recorded where reconciliation has its own, so either may choose. A second call records none twice.

    :param fleet: the names of all clusters, by which reconciliation has its records too.
    :param values: what each resource has; empty if it does not exist.
    :returns: the overwritten values; edits that won against a deletion have a sentence of their own.
    """
    overwritten = [
        conflict
        for item, requested in updates.items()
        for conflict in conflicts_of(item, requested, versions[item], values[item])
    ]
    kept = [
        kept_edit_conflict(item, resolution.kept_edit, values[item] or resolution.values)
        for item, resolution in resolutions.items()
        if resolution.kept_edit and resolution.kept_edit.between_clusters
    ]
    if kept:
        ReconciliationStore(ledger, fleet).record_conflicts(run_id, kept)
    return record_overwritten(ledger, fleet, run_id, overwritten)


def record_overwritten(
    ledger: Ledger, fleet: Iterable[str], run_id: str, overwritten: Sequence[RecordedConflict]
) -> tuple[ListedConflict, ...]:
    """Record overwritten values and log each; a second call records none twice."""
    if not overwritten:
        return ()
    store = ReconciliationStore(ledger, fleet)
    store.record_conflicts(run_id, overwritten)
    listed_conflicts = tuple(listed(store.conflict_id(conflict), conflict) for conflict in overwritten)
    for conflict in listed_conflicts:
        log.warning(
            "%s: conflict %s in %s %s: %s", run_id, conflict.id, conflict.resource, conflict.field, conflict.rule
        )
    return listed_conflicts
