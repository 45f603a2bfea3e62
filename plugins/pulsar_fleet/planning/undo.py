"""Plan the undo of a run: the changes of the ledger in reverse order, as a plan that is applied like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName, with_parent
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind, Unset
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_policy_calls
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent
from pulsar_fleet.planning.changes.clusters import cluster_path, domain_path, group_body, group_path, isolation_path
from pulsar_fleet.planning.changes.limits import in_accepted_order
from pulsar_fleet.planning.changes.namespaces import TOPIC_GRANTS, tenant_path
from pulsar_fleet.planning.changes.topics import property_calls, setting_calls
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.hazards import UNKNOWN_SETTINGS, EffectiveValues, with_risks
from pulsar_fleet.planning.plan import Action, Change, Hazard, LeftAlone, Plan


def reason_to_leave(resource: Resource, field: str, before: Json, after: Json) -> str:
    """Why `before` cannot be restored; empty when it can."""
    if resource in (Resource.TOPIC, Resource.NAMESPACE) and not field and after is None:
        return "it was deleted, and what it stored cannot be restored: recreate it by hand"
    if resource is Resource.TOPIC and field == "partitions":
        return "partitions cannot be removed"
    if resource is Resource.SCHEMA and before is not None:
        return "single versions of a schema history cannot be deleted"
    if resource is Resource.POLICY and before is None:
        policy = BY_FIELD[field]
        if policy.unset is Unset.IMPOSSIBLE and policy.kind is not Kind.PROPERTIES:
            return "it was not set before, and cannot be unset"
    return ""


def undo_calls(resource: Resource, name: str, field: str, before: Json, after: Json, cluster: str) -> tuple[Call, ...]:
    """Restore `before` from `after`, which a run wrote (comparable values; None is missing or not set).

    :param cluster: the name of the called cluster.
    """
    if not resource.in_namespace:
        return (_shared_call(resource, name, before, after, cluster),)
    match resource:
        case Resource.NAMESPACE:
            return tuple(_namespace_calls(f"/namespaces/{NamespaceName.parse(name).path}", after, cluster))
        case Resource.POLICY:
            return policy_calls(BY_FIELD[field], NamespaceName.parse(name), after, before)
        case Resource.TOPIC_POLICY:
            path = TopicPolicyField.parse(field)
            topic = TopicName.parse(name)
            return topic_policy_calls(TOPIC_BY_FIELD[path.policy], topic, path.scope, after, before)
        case _:
            return _topic_calls(resource, TopicName.parse(name), field, before, after)


def _shared_call(resource: Resource, name: str, before: Json, after: Json, cluster: str) -> Call:
    paths = {
        Resource.CLUSTER: cluster_path(name),
        Resource.RESOURCE_GROUP: group_path(name),
        Resource.FAILURE_DOMAIN: domain_path(cluster, name),
        Resource.ISOLATION: isolation_path(cluster, name),
        Resource.TENANT: tenant_path(name),
    }
    if before is None:
        return bare("DELETE", paths[resource])
    if after is None:
        return with_body("PUT", paths[resource], before)
    if resource is Resource.RESOURCE_GROUP:
        return with_body("PUT", paths[resource], group_body(after, before))
    body = {**before, "unload_scope": "none"} if resource is Resource.ISOLATION else before
    return with_body("POST", paths[resource], body)


def _topic_calls(resource: Resource, topic: TopicName, field: str, before: Json, after: Json) -> tuple[Call, ...]:
    if resource is Resource.SCHEMA:
        return (bare("DELETE", f"{topic.schema_path}/schema", force="true"),)
    if resource is Resource.SUBSCRIPTION:
        if before is None:
            return (bare("DELETE", topic.subscription_path(field)),)
        return setting_calls(topic, field, after, before)
    if field == "properties":
        return tuple(property_calls(topic, after or {}, before or {}))
    return (bare("DELETE", f"/{topic.path}/partitions" if after["partitions"] else f"/{topic.path}"),)


def _namespace_calls(path: str, document: JsonObject, cluster: str) -> Iterator[Call]:
    """The broker refuses to delete a namespace while one of its lists names several clusters."""
    for field, setter in (("replication_clusters", "replication"), ("allowed_clusters", "allowedClusters")):
        if len(document.get(field) or ()) > 1:
            yield with_body("POST", f"{path}/{setter}", [cluster])
    yield bare("DELETE", path)


# Deleting a topic deletes these too.
_INSIDE_TOPIC = (Resource.SCHEMA, Resource.TOPIC_POLICY, Resource.SUBSCRIPTION)


def plan_undo(ledger: Ledger, run_id: str, values: EffectiveValues = UNKNOWN_SETTINGS) -> Plan:
    """Restore the target's state from before the run, as recorded in the ledger; the last change comes first.

    Resources that the run created are deleted, which is destructive and needs the id of each change; values that
    cannot be unset are listed in `left_alone`. A value that changed after the run is a conflict when the plan is
    applied, and is not touched. Apply the plan under its own run id. A change that was begun and never confirmed is
    undone too, if it took effect.

    :param values: what is in effect on the cluster now; from it and from the value that is restored follows the hazard
        of each change. Where it is not known, a change is as dangerous as it could be.
    :raises NotFound: the ledger has no change of this run.
    :raises InvalidRequest: the run wrote to several clusters.
    """
    intents = ledger.intents(run_id)
    clusters = sorted({intent.cluster for intent in intents})
    if not clusters:
        raise NotFound(f"The ledger has no change of the run {run_id!r}: check the run id.")
    if len(clusters) > 1:
        raise InvalidRequest(
            f"The run {run_id!r} wrote to {', '.join(clusters)}: only a run on one cluster can be undone."
        )
    return _plan(clusters[0], _steps(intents), values)


@dataclass(slots=True)
class _Step:
    """The changes of a run to one value: the value before the first and after the last."""

    resource: Resource
    name: str
    field: str
    before: Json
    after: Json


def _steps(intents: Iterable[Intent]) -> list[_Step]:
    """One step per value, in the order of the last writes."""
    steps: dict[tuple[str, str, str], _Step] = {}
    for intent in intents:
        key = (intent.kind, intent.name, intent.field)
        earlier = steps.pop(key, None)
        before = earlier.before if earlier else intent.before
        steps[key] = _Step(Resource(intent.kind), intent.name, intent.field, before, intent.after)
    return list(steps.values())


def _plan(cluster: str, steps: Sequence[_Step], values: EffectiveValues) -> Plan:
    deleted = {step.name for step in steps if step.resource is Resource.TOPIC and _creates(step)}
    restored: list[Change] = []
    skipped: list[LeftAlone] = []
    for step in reversed(steps):
        inside = step.resource in _INSIDE_TOPIC or (step.resource is Resource.TOPIC and step.field)
        if same(step.before, step.after) or (inside and with_parent(step.name) & deleted):
            continue
        reason = reason_to_leave(step.resource, step.field, step.before, step.after)
        if reason:
            skipped.append(LeftAlone(step.resource, step.name, step.field, reason))
        else:
            restored.append(_change(step, cluster, deleted))
    ordered = in_accepted_order(
        restored, lambda change: values.namespaces.get(str(change.namespace), {}).get("retention_policies")
    )
    changes = [with_risks(change, cluster, values.changes(change)) for change in ordered]
    changes.sort(key=_stage)
    return Plan(source=cluster, target=cluster, changes=tuple(changes), left_alone=tuple(skipped))


def _stage(change: Change) -> int:
    """Cluster-wide resources are restored before namespaces need them, and taken away when no namespace needs them."""
    if change.namespace is not None:
        return 2
    if change.resource is Resource.TENANT:
        return 1 if _clusters(change.after) - _clusters(change.before) else 3
    return 0 if change.before is None else 4


def _clusters(tenant: Json) -> set[str]:
    return set((tenant or {}).get("allowedClusters") or ())


def _creates(step: _Step) -> bool:
    whole = step.resource is Resource.SUBSCRIPTION or not step.field
    return step.before is None and whole


def _change(step: _Step, cluster: str, deleted: Collection[str]) -> Change:
    created = _creates(step)
    recreated = step.after is None and not step.resource.in_namespace
    unset = Action.UNSET if step.before is None else Action.SET
    action = Action.DELETE if created else Action.CREATE if recreated else unset
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
    """The namespace after `topics` are deleted: the broker deletes the permissions on a topic with the topic."""
    grants = document.get("auth_policies", {})
    kept = {topic: grant for topic, grant in grants.get(TOPIC_GRANTS, {}).items() if topic not in topics}
    sections = {**grants, TOPIC_GRANTS: kept}
    shown = {section: entries for section, entries in sections.items() if entries}
    rest = {field: value for field, value in document.items() if field != "auth_policies"}
    return {**rest, "auth_policies": shown} if shown else rest
