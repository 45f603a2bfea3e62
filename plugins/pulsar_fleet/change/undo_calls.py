"""The calls that take a change back, and the changes that cannot be taken back (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from pulsar_fleet.change.cluster_changes import cluster_path, domain_path, group_body, group_path, isolation_path
from pulsar_fleet.change.difference import Resource
from pulsar_fleet.change.subscription_changes import setting_calls
from pulsar_fleet.cluster.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies import BY_FIELD, Kind, Unset
from pulsar_fleet.cluster.policy_calls import policy_calls
from pulsar_fleet.cluster.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls


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
