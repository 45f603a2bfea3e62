"""Take back what a run did: from the ledger to a plan in reverse order, which is applied like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, Kind, Unset
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent
from pulsar_fleet.planning.changes.clusters import cluster_path, domain_path, group_body, group_path, isolation_path
from pulsar_fleet.planning.changes.namespaces import TOPIC_GRANTS
from pulsar_fleet.planning.changes.subscriptions import setting_calls
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.hazards.effective_change import NOTHING_KNOWN
from pulsar_fleet.planning.hazards.guards import lint_calls, lint_settings
from pulsar_fleet.planning.hazards.model import Hazard, worst
from pulsar_fleet.planning.plan import Action, Change, LeftAlone, Plan


def reason_to_leave(resource: Resource, field: str, before: Json) -> str:
    """Why going back to `before` is not possible; empty when it is."""
    if resource is Resource.TOPIC and field == "partitions":
        return "partitions cannot be taken away again"
    if resource is Resource.SCHEMA and before is not None:
        return "single versions cannot be taken out of a schema history"
    if resource is Resource.POLICY and before is None:
        policy = BY_FIELD[field]
        if policy.unset is Unset.IMPOSSIBLE and policy.kind is not Kind.PROPERTIES:
            return "it was not set before, and cannot be unset"
    return ""


def undo_calls(resource: Resource, name: str, field: str, before: Json, after: Json, cluster: str) -> tuple[Call, ...]:
    """From `after`, which a run made, back to `before` (comparable values; None is not there, not set).

    :param cluster: the name of the cluster that is called.
    """
    if not resource.in_namespace:
        return (_shared_call(resource, name, before, after, cluster),)
    match resource:
        case Resource.NAMESPACE:
            return tuple(_namespace_calls(f"/namespaces/{NamespaceName.parse(name).path}", after, cluster))
        case Resource.POLICY:
            return policy_calls(BY_FIELD[field], NamespaceName.parse(name), after, before)
        case Resource.TOPIC_POLICY:
            scope, _, policy = field.partition("/")
            topic = TopicName.parse(name)
            return topic_policy_calls(TOPIC_BY_FIELD[policy], topic, Scope(scope), after, before)
        case _:
            return _topic_calls(resource, TopicName.parse(name), field, before, after)


def _shared_call(resource: Resource, name: str, before: Json, after: Json, cluster: str) -> Call:
    paths = {
        Resource.CLUSTER: cluster_path(name),
        Resource.RESOURCE_GROUP: group_path(name),
        Resource.FAILURE_DOMAIN: domain_path(cluster, name),
        Resource.ISOLATION: isolation_path(cluster, name),
        Resource.TENANT: f"/tenants/{quote(name, safe='')}",
    }
    if before is None:
        return bare("DELETE", paths[resource])
    if resource is Resource.RESOURCE_GROUP:
        return with_body("PUT", paths[resource], group_body(after, before))
    body = {**before, "unload_scope": "none"} if resource is Resource.ISOLATION else before
    return with_body("POST", paths[resource], body)


def _topic_calls(resource: Resource, topic: TopicName, field: str, before: Json, after: Json) -> tuple[Call, ...]:
    if resource is Resource.SCHEMA:
        path = f"/schemas/{topic.namespace.path}/{quote(topic.local, safe='')}/schema"
        return (bare("DELETE", path, force="true"),)
    if resource is Resource.SUBSCRIPTION:
        if before is None:
            return (bare("DELETE", topic.subscription_path(field)),)
        return setting_calls(topic, field, after, before)
    if field == "properties":
        return tuple(_property_calls(f"/{topic.path}/properties", before or {}, after or {}))
    return (bare("DELETE", f"/{topic.path}/partitions" if after["partitions"] else f"/{topic.path}"),)


def _property_calls(path: str, before: JsonObject, after: JsonObject) -> Iterator[Call]:
    """Setting merges, so what was added is deleted key by key."""
    for key in sorted(set(after) - set(before)):
        yield bare("DELETE", path, key=key)
    if any(after.get(key) != value for key, value in before.items()):
        yield with_body("PUT", path, before)


def _namespace_calls(path: str, document: JsonObject, cluster: str) -> Iterator[Call]:
    """The broker refuses to delete a namespace while a list of it names several clusters."""
    for field, setter in (("replication_clusters", "replication"), ("allowed_clusters", "allowedClusters")):
        if len(document.get(field) or ()) > 1:
            yield with_body("POST", f"{path}/{setter}", [cluster])
    yield bare("DELETE", path)


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
        raise NotFound(f"The ledger has no change of a run {run_id!r} that could be undone: check the run id.")
    if len(clusters) > 1:
        raise InvalidRequest(
            f"The run {run_id!r} wrote to {', '.join(clusters)}: only one cluster's changes can be undone."
        )
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
