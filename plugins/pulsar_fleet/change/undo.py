"""Take back what a run did: from the ledger to a plan in reverse order, which is applied like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.change.difference import Resource, same
from pulsar_fleet.change.hazard import Hazard, worst
from pulsar_fleet.change.hazards import lint_calls, lint_settings
from pulsar_fleet.change.in_force import NOTHING_KNOWN
from pulsar_fleet.change.namespace_changes import TOPIC_GRANTS
from pulsar_fleet.change.plan import Action, Change, LeftAlone, Plan
from pulsar_fleet.change.undo_calls import reason_to_leave, undo_calls
from pulsar_fleet.cluster.errors import Missing, Rejected
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.records.ledger import Ledger
from pulsar_fleet.records.rows import Intent

# What lies in a topic goes with it.
_INSIDE_TOPIC = (Resource.SCHEMA, Resource.TOPIC_POLICY, Resource.SUBSCRIPTION)


def plan_undo(ledger: Ledger, run_id: str) -> Plan:
    """What brings the target back to where it was before the run, as far as the ledger knows; last change first.

    What the run created is deleted, which is destructive and needs each change's id; what cannot be unset is named in
    `left_alone`. A value that somebody changed since is a conflict when the plan is applied, and stays. Apply it under
    a run id of its own. A change that was only begun is taken back too, if it took effect.

    :raises Missing: the ledger has nothing of this run.
    :raises Rejected: the run wrote to several clusters.
    """
    intents = ledger.intents(run_id)
    clusters = sorted({intent.cluster for intent in intents})
    if not clusters:
        raise Missing(f"The ledger has no change of a run {run_id!r} that could be undone: check the run id.")
    if len(clusters) > 1:
        raise Rejected(f"The run {run_id!r} wrote to {', '.join(clusters)}: only one cluster's changes can be undone.")
    return _plan(clusters[0], _steps(intents))


@dataclass(slots=True)
class _Step:
    """All that a run did to one value: from what it was first to what it was last."""

    resource: Resource
    name: str
    field: str
    before: Json
    after: Json


def _steps(intents: Iterable[Intent]) -> list[_Step]:
    """One step per value, in the order in which each was last written."""
    found: dict[tuple[str, str, str], _Step] = {}
    for intent in intents:
        key = (intent.kind, intent.name, intent.field)
        earlier = found.pop(key, None)
        before = earlier.before if earlier else intent.before
        found[key] = _Step(Resource(intent.kind), intent.name, intent.field, before, intent.after)
    return list(found.values())


def _plan(cluster: str, steps: Sequence[_Step]) -> Plan:
    deleted = {step.name for step in steps if step.resource is Resource.TOPIC and _creates(step)}
    changes: list[Change] = []
    left: list[LeftAlone] = []
    for step in reversed(steps):
        if same(step.before, step.after) or (step.resource in _INSIDE_TOPIC and step.name in deleted):
            continue
        reason = reason_to_leave(step.resource, step.field, step.before)
        if reason:
            left.append(LeftAlone(step.resource, step.name, step.field, reason))
        else:
            changes.append(_marked(_change(step, cluster, deleted), cluster))
    return Plan(source=cluster, target=cluster, changes=tuple(_cluster_last(changes)), left_alone=tuple(left))


def _cluster_last(changes: Sequence[Change]) -> list[Change]:
    """What belongs to the cluster, such as a tenant, can only go when no namespace needs it any more."""
    return sorted(changes, key=lambda change: change.namespace is None)


def _creates(step: _Step) -> bool:
    whole = step.resource is Resource.SUBSCRIPTION or not step.field
    return step.before is None and whole


def _change(step: _Step, cluster: str, deleted: Collection[str]) -> Change:
    created = _creates(step)
    action = Action.DELETE if created else Action.UNSET if step.before is None else Action.SET
    return Change(
        resource=step.resource,
        name=step.name,
        field=step.field,
        action=action,
        calls=undo_calls(step.resource, step.name, step.field, step.before, step.after, cluster),
        before=_without_grants(step.after, deleted) if step.resource is Resource.NAMESPACE else step.after,
        after=step.before,
        hazard=Hazard.DESTRUCTIVE if created else Hazard.REVERSIBLE,
        reason="the run created it" if created else "the run changed it",
    )


def _without_grants(document: JsonObject, topics: Collection[str]) -> JsonObject:
    """A namespace as it is when `topics` are gone: the broker takes the rights on a topic away with it."""
    grants = document.get("auth_policies", {})
    kept = {topic: one for topic, one in grants.get(TOPIC_GRANTS, {}).items() if topic not in topics}
    sections = {**grants, TOPIC_GRANTS: kept}
    shown = {section: entries for section, entries in sections.items() if entries}
    rest = {field: value for field, value in document.items() if field != "auth_policies"}
    return {**rest, "auth_policies": shown} if shown else rest


def _marked(change: Change, cluster: str) -> Change:
    marks = lint_calls(change.calls, cluster)
    marks += lint_settings(NOTHING_KNOWN.settings(change))
    hazard = worst(change.hazard, *(mark.hazard for mark in marks))
    reasons = dict.fromkeys(mark.reason for mark in marks if mark.hazard is hazard)
    return replace(change, hazard=hazard, reason="; ".join([change.reason, *reasons]))
