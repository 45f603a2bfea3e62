"""The change that removes a difference in a tenant or a namespace, or the reason to leave it alone (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable, joined_grants
from pulsar_fleet.cluster.policies.effective import effective_of_namespace
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind, Policy, Unset, is_supported
from pulsar_fleet.cluster.policies.setters import creation_calls, policy_calls
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.plan import ONLY_ON_TARGET, Action, Change, Hazard, LeftAlone
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, Snapshot

_NEW_TOPICS = BY_FIELD["autoTopicCreationOverride"]


def namespace_creation_calls(
    namespace: NamespaceName, document: JsonObject, source: Snapshot, target: Snapshot
) -> tuple[Call, ...]:
    """Create the namespace with all its policies, and `__change_events` if the target would create it differently.

    A non-partitioned one is not created where the brokers' own default is partitioned.
    """
    topic = TopicName(namespace, POLICY_EVENTS)
    counts = {state.name: int(state.detail["partitions"]) for state in source.inventory if state.kind == SYSTEM_TOPIC}
    partitions = counts.get(str(topic))
    settings = [broker.configuration for broker in target.brokers] or [{}]
    override = document.get(_NEW_TOPICS.field)
    if partitions is None or {_partitions(override, configuration) for configuration in settings} == {partitions}:
        return creation_calls(namespace, document)
    if partitions:
        creation, *others = creation_calls(namespace, document)
        path = f"/{topic.path}/partitions"
        return (creation, with_body("PUT", path, partitions, createLocalTopicOnly="true"), *others)
    if any(_partitions(None, configuration) for configuration in settings):
        return creation_calls(namespace, document)
    rest = {field: value for field, value in document.items() if field != _NEW_TOPICS.field}
    creation, *others = creation_calls(namespace, rest)
    return (creation, bare("PUT", f"/{topic.path}"), *policy_calls(_NEW_TOPICS, namespace, None, override), *others)


def _partitions(override: Json, configuration: Mapping[str, Json]) -> int:
    """Partitions of a topic that a broker creates on first use; 0 is not partitioned."""
    creation = effective_of_namespace(_NEW_TOPICS, override, configuration) or {}
    return int(creation.get("defaultNumPartitions") or 1) if creation.get("topicType") == "partitioned" else 0


STRATEGY = "schema_compatibility_strategy"
OPEN_STRATEGY = "ALWAYS_COMPATIBLE"
TOPIC_GRANTS = "destination_auth"


def tenant_path(name: str) -> str:
    """The path of a tenant."""
    return f"/tenants/{quote(name, safe='')}"


def tenant_change(difference: Difference, *, exact: bool = False) -> Change | LeftAlone:
    """Create the tenant, or add the roles and clusters that it lacks; `exact` also removes the others."""
    after = difference.source
    if difference.target is not None and not exact:
        after = {key: sorted({*difference.source[key], *difference.target[key]}) for key in difference.source}
        if same(after, difference.target):
            return LeftAlone.of(difference, "the target has more roles or clusters")
    missing = difference.target is None
    call = with_body("PUT" if missing else "POST", tenant_path(difference.name), after)
    reason = "the target lacks this tenant" if missing else f"roles or clusters {'differ' if exact else 'are added'}"
    return Change.of(difference, (call,), after, reason)


def namespace_change(difference: Difference, source: Snapshot, target: Snapshot) -> Change:
    """Create the namespace with all its policies."""
    calls = namespace_creation_calls(NamespaceName.parse(difference.name), difference.source, source, target)
    return Change.of(
        difference, calls, comparable(difference.source, target.cluster), "the target lacks this namespace"
    )


def policy_change(
    difference: Difference,
    source_document: Mapping[str, Json],
    target_document: Mapping[str, Json],
    version: str,
    *,
    exact: bool = False,
) -> Change | LeftAlone:
    """Set or unset one policy of a namespace that both have.

    :param source_document: the comparable document that the target is to have.
    :param target_document: the target's comparable document; its clusters must stay in a cluster list.
    :param version: the oldest broker version of the target.
    :param exact: remove permissions and properties that only the target has.
    """
    policy = BY_FIELD.get(difference.field)
    reason = _reason_to_leave(policy, difference, version, exact)
    if policy is None or reason:
        return LeftAlone.of(difference, reason)
    if policy.in_query and source_document.get(policy.after[0]) is not False:
        return LeftAlone.of(difference, f"it has no effect while {policy.after[0]} is not false")
    grows = policy.kind is Kind.CLUSTER_LIST or not exact
    after = _merged(policy, difference, target_document) if grows else difference.source
    if same(after, difference.target):
        return LeftAlone.of(difference, "the target has more than the source, and nothing is removed")
    return setting(policy, difference.name, difference.target, after)


def setting(policy: Policy, namespace: str, before: Json, after: Json, reason: str = "") -> Change:
    """Set a policy of an existing namespace, or unset it (`after` is None)."""
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
    """Accept every schema while a history is registered, and set the final strategy afterwards.

    The versions were accepted under earlier strategies, so the current one may refuse them.
    """
    policy = BY_FIELD[STRATEGY]
    opened = setting(policy, namespace, now, OPEN_STRATEGY, "accepts the versions of the schema history")
    restored = setting(
        policy, namespace, OPEN_STRATEGY, final, "the source's strategy, set after the schema history is registered"
    )
    return opened, restored


def _reason_to_leave(policy: Policy | None, difference: Difference, version: str, exact: bool) -> str:
    if policy is None:
        return "this release does not know the field"
    if policy.kind is Kind.AT_CREATION:
        return "brokers accept it only when a namespace is created"
    if not is_supported(policy.since, version):
        return f"needs Pulsar {policy.since} on the target, which runs {version}"
    if difference.side is Side.EXTRA and policy.kind in (Kind.GRANTS, Kind.PROPERTIES) and not exact:
        return ONLY_ON_TARGET
    if difference.side is Side.EXTRA and policy.unset is Unset.IMPOSSIBLE:
        return "set only on the target, and cannot be unset"
    return ""


def _merged(policy: Policy, difference: Difference, target_document: Mapping[str, Json]) -> Json:
    """The desired value: the source's, without removing rights, properties or clusters of the target."""
    if policy.kind is Kind.CLUSTER_LIST:
        serving = target_document.get("replication_clusters") or ()
        return sorted({*(difference.source or ()), *(difference.target or ()), *serving})
    if policy.kind is Kind.PROPERTIES:
        return {**(difference.target or {}), **difference.source}
    if policy.kind is Kind.GRANTS:
        return joined_grants(difference.source, difference.target or {})
    return difference.source
