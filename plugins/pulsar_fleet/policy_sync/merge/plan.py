"""The writes that bring one cluster to the merged values (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable, revoked_rights, translate
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind
from pulsar_fleet.cluster.policies.topic_policies import Scope, topic_comparable
from pulsar_fleet.planning.apply.outcome import left_without
from pulsar_fleet.planning.decisions import Planner
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.plan import Action, Change, LeftAlone, Plan
from pulsar_fleet.policy_sync.merge.compare import ComparedResource
from pulsar_fleet.policy_sync.merge.deletion_plan import Fate, deletion, deletion_batch
from pulsar_fleet.policy_sync.merge.fields import (
    CLUSTERS,
    PARTITIONS,
    PROPERTIES,
    ROLES,
    SCHEMAS,
    is_cluster_list,
    localised,
    policy_of,
    properties_of,
    topic_document,
    whole_value,
    with_policy,
)
from pulsar_fleet.policy_sync.merge.view import Item, topic_documents
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TopicPolicyState, TopicState

_UNDECIDED = (
    "it is missing, and nothing proves that this is the resource that had it: it may have been deleted and created "
    "again; choose a cluster for this conflict"
)
_FOR_ITSELF = (Kind.AT_CREATION, Kind.LOCAL, Kind.INTERNAL, Kind.MIRROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster for which a plan is made.

    :param topics: namespace → its topics, for the namespaces whose topics the plan needs.
    :param deletable: namespace → its current comparable document, for the namespaces that may be deleted.
    """

    snapshot: Snapshot
    topics: Mapping[str, Collection[str]] = field(default_factory=dict)
    deletable: Mapping[str, JsonObject] = field(default_factory=dict)


class _Current:
    """The current values of the target, by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cluster = snapshot.cluster
        self.known_clusters = frozenset(snapshot.known_clusters)
        self.tenants = {
            state.name: {ROLES: list(state.admin_roles), CLUSTERS: list(state.allowed_clusters)}
            for state in snapshot.tenants
        }
        self._namespaces = {state.name: state.policies for state in snapshot.namespaces}
        self._topics = topic_documents(snapshot)

    def policies(self, item: Item) -> Mapping[str, Json]:
        """The comparable policies of a namespace, or of a topic by the text of their `TopicPolicyField`."""
        kind, name = item
        if kind is Resource.NAMESPACE:
            return comparable(self._namespaces[name], self.cluster)
        return {
            str(TopicPolicyField(Scope(scope), policy)): value
            for scope, document in self._topics.get(name, {}).items()
            for policy, value in topic_comparable(document).items()
        }


def plan_repair(
    compared: Iterable[ComparedResource],
    target: Target,
    others: Sequence[Snapshot],
    *,
    source: str,
) -> Plan:
    """The changes that bring one cluster to the merged values, only for fields that differ.

    :param others: the clusters from which a new namespace is copied; the first that has it is used.
    :param source: where the merged values come from, for messages.
    """
    resources = tuple(compared)
    snapshot, own = target.snapshot, target.snapshot.cluster
    listed = tuple(TopicState(name, 0, {}) for names in target.topics.values() for name in sorted(names))
    created = tuple(
        TopicState(name, 0, {})
        for (kind, name), missing in ((resource.item, resource.missing) for resource in resources)
        if kind is Resource.TOPIC and own in missing
    )
    planned = _planned_snapshot(resources, snapshot, others)
    planner = Planner(replace(planned, topics=(*listed, *created)), snapshot, exact=True)
    current, documents = _Current(snapshot), {state.name: state.policies for state in planned.namespaces}
    skipped: list[LeftAlone] = []
    absent: dict[tuple[Resource, str], str] = {}
    for resource in resources:
        for difference in _differences(resource, current, documents):
            if isinstance(difference, LeftAlone):
                skipped.append(difference)
            elif reason := _reason_to_skip(difference, current, documents):
                skipped.append(LeftAlone.of(difference, reason))
                if own in resource.missing:
                    absent[resource.item] = reason
            else:
                planner.add(difference)
        skipped += _impossible(resource, own)
    ordered = planner.ordered()
    without = left_without(ordered, absent)
    skipped += [LeftAlone(one.resource, one.name, one.field, without[one.id]) for one in ordered if one.id in without]
    changes = tuple(change for change in ordered if change.id not in without)
    return Plan(source=source, target=own, changes=changes, left_alone=(*planner.left_alone, *skipped))


def revocations(plan: Plan) -> frozenset[str]:
    """The ids of the changes that only take rights away: who revoked them on another cluster has allowed these."""
    return frozenset(change.id for change in plan.changes if _only_revokes(change))


def _only_revokes(change: Change) -> bool:
    before, after = change.before, change.after
    if change.resource is Resource.TENANT and before is not None and after is not None:
        return bool(revoked_rights(before, after)) and set(before[CLUSTERS]) <= set(after[CLUSTERS])
    return change.resource is Resource.POLICY and change.field == "auth_policies"


def topics_needed(compared: Iterable[ComparedResource], cluster: str) -> frozenset[str]:
    """The namespaces whose topics must be listed before a cluster is planned for."""
    return frozenset(
        resource.item[1]
        for resource in compared
        if resource.item[0] is Resource.NAMESPACE
        and any(name.startswith("auth_policies/") for name in _drifting_on(resource, cluster))
    )


def _differences(
    resource: ComparedResource, current: _Current, documents: Mapping[str, JsonObject]
) -> Iterator[Difference | LeftAlone]:
    """The differences that a plan has to remove, and those that none can remove.

    :param documents: the namespaces after the plan.
    """
    kind, name = resource.item
    drifting = _drifting_on(resource, current.cluster)
    if kind is Resource.TOPIC and current.cluster in resource.missing:
        yield from topic_creation(resource)
    elif kind is Resource.TOPIC and drifting:
        yield from topic_differences(resource, current.cluster, drifting)
    elif current.cluster in resource.missing:
        whole = _tenant(resource, current.cluster) if kind is Resource.TENANT else documents[name]
        yield Difference(kind, name, "", Side.MISSING, whole, None)
    elif drifting and kind is Resource.TENANT:
        yield Difference(kind, name, "", Side.DIFFERENT, _tenant(resource, current.cluster), current.tenants[name])
    elif drifting:
        yield from _by_policy(resource, drifting, current)


def _by_policy(resource: ComparedResource, drifting: Collection[str], current: _Current) -> Iterator[Difference]:
    kind, name = resource.item
    in_namespace = kind is Resource.NAMESPACE
    before = current.policies(resource.item)
    for policy in sorted({policy_of(path) if in_namespace else path for path in drifting}):
        after, live = whole_value(policy, resource.merged.values, current.cluster), before.get(policy)
        side = Side.EXTRA if after is None else Side.MISSING if live is None else Side.DIFFERENT
        yield Difference(Resource.POLICY if in_namespace else kind, name, policy, side, after, live)


def _tenant(resource: ComparedResource, own: str) -> JsonObject:
    values = resource.merged.values
    return {ROLES: values.get(ROLES) or [], CLUSTERS: localised(values.get(CLUSTERS) or [], own)}


def _reason_to_skip(difference: Difference, current: _Current, documents: Mapping[str, JsonObject]) -> str:
    """Why a list of clusters is not written, empty if it is: a wrong list deletes topics.

    Nor is a topic created where its namespace is missing.
    """
    if difference.resource in (Resource.TOPIC, Resource.SCHEMA):
        namespace = str(TopicName.parse(difference.name).namespace)
        return "" if namespace in documents else f"{current.cluster} does not have the namespace {namespace}"
    is_tenant = difference.resource is Resource.TENANT
    name = CLUSTERS if is_tenant else difference.field
    listed = difference.source[CLUSTERS] if is_tenant else difference.source
    if not is_cluster_list(name) or listed is None:
        return ""
    if current.cluster not in listed:
        return f"the list {', '.join(listed)} leaves {current.cluster} out, which would delete its topics"
    unknown = sorted(set(listed) - current.known_clusters)
    return f"{current.cluster} does not know {', '.join(unknown)}" if unknown else ""


def _impossible(resource: ComparedResource, own: str) -> Iterator[LeftAlone]:
    kind, name = resource.item
    if own in resource.unpartitioned:
        yield LeftAlone(kind, name, "", unpartitioned_text(name, [side.cluster for side in resource.sides], own))
    if own in resource.without_topic and resource.merged.values:
        yield LeftAlone(kind, name, "", f"{own} does not have the topic")
    for field_name in resource.undecided_on(own):
        yield LeftAlone(kind, name, field_name, _UNDECIDED)
    if own in resource.gone and resource.deletion:
        yield LeftAlone(kind, name, "", f"{resource.deletion.text}; choose a cluster for this conflict")
    elif own in resource.gone:
        yield LeftAlone(kind, name, "", f"gone on {own}; recreate it by hand")


def _drifting_on(resource: ComparedResource, cluster: str) -> list[str]:
    """The fields that can be written: a policy is written whole, so none of its fields may be undecided."""
    undecided = {_written_with(resource, name) for name in resource.undecided_on(cluster)}
    return [
        name
        for name, clusters in resource.drifting.items()
        if cluster in clusters and _written_with(resource, name) not in undecided
    ]


def _written_with(resource: ComparedResource, name: str) -> str:
    return "" if resource.item[0] is Resource.TENANT else policy_of(name)


def _planned_snapshot(compared: Sequence[ComparedResource], snapshot: Snapshot, others: Sequence[Snapshot]) -> Snapshot:
    """The cluster after the plan: the input for hazards and the documents of new namespaces."""
    own = snapshot.cluster
    documents = {state.name: state.policies for state in snapshot.namespaces}
    topics = {(state.topic, state.scope): state for state in snapshot.topic_policies}
    for resource in compared:
        kind, name = resource.item
        if kind is Resource.NAMESPACE and own in resource.missing:
            documents[name] = _new_document(resource, snapshot, others)
        elif kind is Resource.NAMESPACE and name in documents:
            for policy in {policy_of(path) for path in _drifting_on(resource, own)}:
                value = whole_value(policy, resource.merged.values, own)
                documents[name] = with_policy(documents[name], policy, value, own)
        elif kind is Resource.TOPIC_POLICY:
            _set_topic(topics, name, {path: resource.merged.values.get(path) for path in _drifting_on(resource, own)})
    namespaces = tuple(NamespaceState(name, documents[name]) for name in sorted(documents))
    return replace(snapshot, namespaces=namespaces, topic_policies=tuple(topics.values()))


def _set_topic(topics: dict[tuple[str, str], TopicPolicyState], name: str, values: Mapping[str, Json]) -> None:
    for path, value in values.items():
        topic_field = TopicPolicyField.parse(path)
        scope = topic_field.scope.value
        state = topics.get((name, scope), TopicPolicyState(name, scope, {}, 0))
        topics[name, scope] = replace(state, policies={**state.policies, topic_field.policy: value})


def made_with(document: Mapping[str, Json]) -> JsonObject:
    """The part of a namespace's document that is used at its creation and is local to each cluster afterwards."""
    return {name: value for name, value in document.items() if name in BY_FIELD and BY_FIELD[name].kind in _FOR_ITSELF}


def _new_document(resource: ComparedResource, snapshot: Snapshot, others: Sequence[Snapshot]) -> JsonObject:
    """The document of a new namespace: the merged values, and local settings as on another cluster."""
    own, values = snapshot.cluster, resource.merged.values
    document: JsonObject = {}
    for other in others:
        for state in other.namespaces:
            if state.name == resource.item[1] and not document:
                document = translate(state.policies, other.cluster, own, snapshot.known_clusters).document
    new = made_with(document)
    for policy in {policy_of(name) for name in values}:
        value = whole_value(policy, values, own)
        if is_cluster_list(policy):
            value = sorted({own, *(set(value or ()) & set(snapshot.known_clusters))})
        new = with_policy(new, policy, value, own)
    return {"replication_clusters": [own], **new}


def plan_deletions(compared: Iterable[ComparedResource], target: Target) -> Plan:
    """The deletions of resources that are gone elsewhere and unchanged since then."""
    own = target.snapshot.cluster
    tenants = _Current(target.snapshot).tenants
    changes: list[Change] = []
    for resource in compared:
        kind, name = resource.item
        values = next((side.values for side in resource.sides if side.cluster == own), None)
        if not resource.gone or kind is Resource.TOPIC_POLICY or values is None:
            continue
        if resource.deletion.fate is not Fate.DELETED if resource.deletion else _was_edited(resource, own):
            continue
        before = {Resource.TENANT: tenants, Resource.NAMESPACE: target.deletable}.get(kind, {}).get(name)
        gone_elsewhere = f"gone on {', '.join(resource.gone)}"
        reason = gone_elsewhere if own not in resource.gone else "the authority does not have it"
        changes.append(deletion(resource.item, topic_document(values) if kind is Resource.TOPIC else before, reason))
    return deletion_batch(own, changes)


def _was_edited(resource: ComparedResource, own: str) -> bool:
    base = resource.base.document if resource.base else None
    return base is not None and any(
        side.cluster == own and not same(dict(side.values), base) for side in resource.sides
    )


def topic_creation(resource: ComparedResource) -> Iterator[Difference]:
    """Create the topic with its partitions and properties, then register its schemas."""
    name, values = resource.item[1], resource.merged.values
    yield Difference(Resource.TOPIC, name, "", Side.MISSING, topic_document(values), None)
    if SCHEMAS in values:
        yield Difference(Resource.SCHEMA, name, "", Side.MISSING, values[SCHEMAS], None)


def topic_differences(
    resource: ComparedResource, cluster: str, drifting: Collection[str]
) -> Iterator[Difference | LeftAlone]:
    """The differences of a topic that the cluster has; a schema history that was deleted stays deleted."""
    name, merged = resource.item[1], resource.merged.values
    live = next(side.values for side in resource.sides if side.cluster == cluster)
    if PARTITIONS in drifting:
        yield Difference(Resource.TOPIC, name, PARTITIONS, Side.DIFFERENT, merged[PARTITIONS], live[PARTITIONS])
    if any(field not in (PARTITIONS, SCHEMAS) for field in drifting):
        both = (properties_of(values) for values in (merged, live))
        yield Difference(Resource.TOPIC, name, PROPERTIES, Side.DIFFERENT, *both)
    if SCHEMAS in drifting:
        agreed = resource.base.document.get(SCHEMAS) if resource.base else None
        if merged.get(SCHEMAS) is None or (agreed and live.get(SCHEMAS) is None):
            reason = "its schemas were deleted on one side: delete them on the others by hand, or register them again"
            yield LeftAlone(Resource.SCHEMA, name, "", reason)
        else:
            side = Side.DIFFERENT if SCHEMAS in live else Side.MISSING
            yield Difference(Resource.SCHEMA, name, "", side, merged[SCHEMAS], live.get(SCHEMAS))


def unpartitioned_text(item_name: str, holders: Collection[str], cluster: str) -> str:
    """Why a partitioned topic is not created on a cluster that has it without partitions, and what to do."""
    return (
        f"{item_name} is partitioned on {', '.join(sorted(holders))} and has no partitions on {cluster}: consume what "
        f"is stored on {cluster}, delete the topic there, and it is created with its partitions"
    )


def growths(plan: Plan) -> frozenset[str]:
    """The ids of the changes that add partitions: who lets partitioned topics be synchronised has allowed these."""
    return frozenset(change.id for change in plan.changes if change.action is Action.GROW)
