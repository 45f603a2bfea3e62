"""From a difference in a tenant or a namespace to the change that removes it, or the reason not to (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import effective_of_namespace
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, Kind, Policy, Unset, known_at
from pulsar_fleet.cluster.policies.setters import creation_calls, policy_calls
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.hazards.model import Hazard
from pulsar_fleet.planning.plan import Action, Change, LeftAlone
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, Snapshot

_NEW_TOPICS = BY_FIELD["autoTopicCreationOverride"]


def namespace_creation_calls(
    namespace: NamespaceName, document: JsonObject, source: Snapshot, target: Snapshot
) -> tuple[Call, ...]:
    """Create the namespace with all its policies, and the topic where the target would make it differently.

    Where the target's brokers make new topics partitioned by their own default, a plain one is left to them.
    """
    topic = TopicName(namespace, POLICY_EVENTS)
    shapes = {one.name: int(one.detail["partitions"]) for one in source.inventory if one.kind == SYSTEM_TOPIC}
    wanted = shapes.get(str(topic))
    brokers = [broker.configuration for broker in target.brokers] or [{}]
    override = document.get(_NEW_TOPICS.field)
    if wanted is None or {_partitions(override, one) for one in brokers} == {wanted}:
        return creation_calls(namespace, document)
    if wanted:
        creation, *settings = creation_calls(namespace, document)
        return (creation, with_body("PUT", f"/{topic.path}/partitions", wanted, createLocalTopicOnly="true"), *settings)
    if any(_partitions(None, one) for one in brokers):
        return creation_calls(namespace, document)
    rest = {field: value for field, value in document.items() if field != _NEW_TOPICS.field}
    creation, *settings = creation_calls(namespace, rest)
    return (creation, bare("PUT", f"/{topic.path}"), *policy_calls(_NEW_TOPICS, namespace, None, override), *settings)


def _partitions(override: Json, configuration: Mapping[str, Json]) -> int:
    """Of a topic that a broker makes by itself; 0 is a plain one."""
    found = effective_of_namespace(_NEW_TOPICS, override, configuration) or {}
    return int(found.get("defaultNumPartitions") or 1) if found.get("topicType") == "partitioned" else 0


ONLY_ON_TARGET = "exists only on the target"
STRATEGY = "schema_compatibility_strategy"
OPEN_STRATEGY = "ALWAYS_COMPATIBLE"
TOPIC_GRANTS = "destination_auth"


def left_alone(difference: Difference, reason: str) -> LeftAlone:
    """The difference with the reason why nothing is done about it."""
    return LeftAlone(difference.resource, difference.name, difference.field, reason)


def tenant_change(found: Difference, *, exact: bool = False) -> Change | LeftAlone:
    """Create the tenant, or add the roles and clusters that it lacks; none are taken away unless `exact`."""
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    after = found.source
    if found.target is not None and not exact:
        after = {key: sorted({*found.source[key], *found.target[key]}) for key in found.source}
        if same(after, found.target):
            return left_alone(found, "the target has more roles or clusters")
    missing = found.target is None
    return Change(
        resource=Resource.TENANT,
        name=found.name,
        field="",
        action=Action.CREATE if missing else Action.SET,
        calls=(with_body("PUT" if missing else "POST", f"/tenants/{quote(found.name, safe='')}", after),),
        before=found.target,
        after=after,
        hazard=Hazard.NONE if missing else Hazard.REVERSIBLE,
        reason="the target lacks this tenant" if missing else f"roles or clusters {'differ' if exact else 'are added'}",
    )


def namespace_change(found: Difference, source: Snapshot, target: Snapshot) -> Change | LeftAlone:
    """Create the namespace with all its policies."""
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    return Change(
        resource=Resource.NAMESPACE,
        name=found.name,
        field="",
        action=Action.CREATE,
        calls=namespace_creation_calls(NamespaceName.parse(found.name), found.source, source, target),
        before=None,
        after=comparable(found.source, target.cluster),
        hazard=Hazard.NONE,
        reason="the target lacks this namespace",
    )


def policy_change(
    found: Difference, target_document: Mapping[str, Json], version: str, *, exact: bool = False
) -> Change | LeftAlone:
    """Set or unset one policy of a namespace that both have.

    :param target_document: the target's comparable document, for what a list must not lose.
    :param version: the lowest broker version of the target.
    :param exact: rights and properties that only the target has are taken away.
    """
    policy = BY_FIELD.get(found.field)
    reason = _reason_to_leave(policy, found, version, exact)
    if policy is None or reason:
        return left_alone(found, reason)
    grows = policy.kind is Kind.CLUSTER_LIST or not exact
    after = _merged(policy, found, target_document) if grows else found.source
    if same(after, found.target):
        return left_alone(found, "the target has more than the source, and nothing is taken away")
    return setting(policy, found.name, found.target, after)


def setting(policy: Policy, namespace: str, before: Json, after: Json, reason: str = "") -> Change:
    """Set (or, with `after` None, unset) a policy of a namespace that exists."""
    return Change(
        resource=Resource.POLICY,
        name=namespace,
        field=policy.field,
        action=Action.UNSET if after is None else Action.SET,
        calls=policy_calls(policy, NamespaceName.parse(namespace), before, after),
        before=before,
        after=after,
        hazard=Hazard.REVERSIBLE,
        reason=reason or ("not set on the source" if after is None else "differs from the source"),
    )


def strategy_changes(namespace: str, now: Json, final: Json) -> tuple[Change, Change]:
    """Open the schema strategy so that a history can be replayed, and set the final one after it.

    The versions of a history were accepted under other strategies than today's, so today's may refuse them.
    """
    policy = BY_FIELD[STRATEGY]
    opened = setting(policy, namespace, now, OPEN_STRATEGY, "lets the schema history in, version by version")
    restored = setting(policy, namespace, OPEN_STRATEGY, final, "the strategy of the source, after the history is in")
    return opened, restored


def _reason_to_leave(policy: Policy | None, found: Difference, version: str, exact: bool) -> str:
    if policy is None:
        return "this release does not know the field"
    if policy.kind is Kind.AT_CREATION:
        return "only taken when a namespace is created"
    if not known_at(policy.since, version):
        return f"needs Pulsar {policy.since} on the target, which runs {version}"
    if found.side is Side.EXTRA and policy.kind in (Kind.GRANTS, Kind.PROPERTIES) and not exact:
        return ONLY_ON_TARGET
    if found.side is Side.EXTRA and policy.unset is Unset.IMPOSSIBLE:
        return "set only on the target, and cannot be unset"
    return ""


def _merged(policy: Policy, found: Difference, target_document: Mapping[str, Json]) -> Json:
    """What the target should hold: the source's value, without taking away rights, properties or clusters."""
    if policy.kind is Kind.CLUSTER_LIST:
        serving = target_document.get("replication_clusters") or ()
        return sorted({*(found.source or ()), *(found.target or ()), *serving})
    if policy.kind is Kind.PROPERTIES:
        return {**(found.target or {}), **found.source}
    if policy.kind is Kind.GRANTS:
        return _merged_grants(found.source, found.target or {})
    return found.source


def _merged_grants(source: JsonObject, target: JsonObject) -> JsonObject:
    merged: JsonObject = {section: dict(entries) for section, entries in target.items()}
    for section, entries in source.items():
        held = merged.setdefault(section, {})
        for name, grant in entries.items():
            held[name] = {**held.get(name, {}), **grant} if isinstance(grant, dict) else grant
    return merged
