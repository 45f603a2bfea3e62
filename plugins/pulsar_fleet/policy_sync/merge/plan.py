"""What has to be written on one cluster so that it holds what was merged (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import comparable, translate
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, Kind
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.planning.changes.subscriptions import StartAt
from pulsar_fleet.planning.decisions import Planner
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.hazards.model import Hazard
from pulsar_fleet.planning.plan import Action, Change, LeftAlone, Plan
from pulsar_fleet.policy_sync.merge.compare import Compared
from pulsar_fleet.policy_sync.merge.fields import (
    CLUSTERS,
    ROLES,
    is_cluster_list,
    localised,
    policy_of,
    whole_value,
    with_policy,
)
from pulsar_fleet.policy_sync.merge.view import Item, topic_documents
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TopicPolicyState, TopicState

_FOR_ITSELF = (Kind.AT_CREATION, Kind.LOCAL, Kind.INTERNAL, Kind.MIRROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that is planned for.

    :param topics: namespace → its topics, of the namespaces in which something about topics is written.
    :param whole: what may be deleted there, as it is: namespace → its comparable document.
    """

    held: Snapshot
    topics: Mapping[str, Collection[str]] = field(default_factory=dict)
    whole: Mapping[str, JsonObject] = field(default_factory=dict)


class _Holding:
    """What the target holds, by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cluster = snapshot.cluster
        self.known = frozenset(snapshot.known_clusters)
        self.tenants = {
            state.name: {ROLES: list(state.admin_roles), CLUSTERS: list(state.allowed_clusters)}
            for state in snapshot.tenants
        }
        self._namespaces = {state.name: state.policies for state in snapshot.namespaces}
        self._topics = topic_documents(snapshot)

    def policies(self, item: Item) -> Mapping[str, Json]:
        """The comparable policies of a namespace, or of a topic by `scope/policy`."""
        kind, name = item
        if kind is Resource.NAMESPACE:
            return comparable(self._namespaces[name], self.cluster)
        return {
            f"{scope}/{policy}": value
            for scope, document in self._topics.get(name, {}).items()
            for policy, value in topic_comparable(document).items()
        }


def plan_repair(
    compared: Iterable[Compared],
    target: Target,
    others: Sequence[Snapshot],
    *,
    source: str,
    delete: bool = False,
) -> Plan:
    """The changes that bring one cluster to what was merged, only of fields that differ.

    :param others: where a namespace that has to be made is taken from, first come first.
    :param source: who says what should be held, for people.
    :param delete: plan to delete what is gone elsewhere; each needs permission.
    """
    chosen = tuple(compared)
    held, own = target.held, target.held.cluster
    listed = tuple(TopicState(name, 0, {}) for names in target.topics.values() for name in sorted(names))
    wanted = _wanted(chosen, held, others)
    planner = Planner(replace(wanted, topics=listed), held, StartAt.EARLIEST, exact=True)
    holding, documents = _Holding(held), {state.name: state.policies for state in wanted.namespaces}
    left: list[LeftAlone] = []
    for one in chosen:
        for found in _differences(one, holding, documents):
            if reason := _reason(found, holding):
                left.append(LeftAlone(found.resource, found.name, found.field, reason))
            else:
                planner.take(found)
        left += _cannot_have(one, own)
    changes = (*planner.ordered(), *(_deletions(chosen, target) if delete else ()))
    return Plan(source=source, target=own, changes=changes, left_alone=(*planner.left, *left))


def topics_needed(compared: Iterable[Compared], cluster: str) -> frozenset[str]:
    """The namespaces whose topics have to be known before anything about them is written on a cluster."""
    return frozenset(
        one.item[1]
        for one in compared
        if one.item[0] is Resource.NAMESPACE
        and any(name.startswith("auth_policies/") for name in _drifting_on(one, cluster))
    )


def _differences(one: Compared, held: _Holding, documents: Mapping[str, JsonObject]) -> Iterator[Difference]:
    """What a plan has to remove.

    :param documents: the namespaces as the plan leaves them.
    """
    kind, name = one.item
    drifting = _drifting_on(one, held.cluster)
    if held.cluster in one.missing:
        whole = _tenant(one, held.cluster) if kind is Resource.TENANT else documents[name]
        yield Difference(kind, name, "", Side.MISSING, whole, None)
    elif drifting and kind is Resource.TENANT:
        yield Difference(kind, name, "", Side.DIFFERENT, _tenant(one, held.cluster), held.tenants[name])
    elif drifting:
        yield from _by_policy(one, drifting, held)


def _by_policy(one: Compared, drifting: Collection[str], held: _Holding) -> Iterator[Difference]:
    kind, name = one.item
    in_namespace = kind is Resource.NAMESPACE
    before = held.policies(one.item)
    for policy in sorted({policy_of(path) if in_namespace else path for path in drifting}):
        after, live = whole_value(policy, one.merged.values, held.cluster), before.get(policy)
        side = Side.EXTRA if after is None else Side.MISSING if live is None else Side.DIFFERENT
        yield Difference(Resource.POLICY if in_namespace else kind, name, policy, side, after, live)


def _tenant(one: Compared, own: str) -> JsonObject:
    values = one.merged.values
    return {ROLES: values.get(ROLES) or [], CLUSTERS: localised(values.get(CLUSTERS) or [], own)}


def _reason(found: Difference, held: _Holding) -> str:
    """Why a list of clusters is not written: what it could do is never worth it."""
    name = CLUSTERS if found.resource is Resource.TENANT else found.field
    listed = found.source[CLUSTERS] if found.resource is Resource.TENANT else found.source
    if not is_cluster_list(name) or listed is None:
        return ""
    if held.cluster not in listed:
        return f"the list {', '.join(listed)} leaves {held.cluster} out, which would delete its topics"
    unknown = sorted(set(listed) - held.known)
    return f"{held.cluster} does not know {', '.join(unknown)}" if unknown else ""


def _cannot_have(one: Compared, own: str) -> Iterator[LeftAlone]:
    kind, name = one.item
    if own in one.elsewhere and one.merged.values:
        yield LeftAlone(kind, name, "", f"{own} does not have the topic")
    if own in one.gone:
        yield LeftAlone(kind, name, "", f"gone on {own}; it is made again by hand only")


def _drifting_on(one: Compared, cluster: str) -> list[str]:
    return [name for name, clusters in one.drifting.items() if cluster in clusters]


def _wanted(compared: Sequence[Compared], held: Snapshot, others: Sequence[Snapshot]) -> Snapshot:
    """The cluster as the plan leaves it: what hazards are judged by, and what new namespaces are made from."""
    own = held.cluster
    documents = {state.name: state.policies for state in held.namespaces}
    topics = {(state.topic, state.scope): state for state in held.topic_policies}
    for one in compared:
        kind, name = one.item
        if kind is Resource.NAMESPACE and own in one.missing:
            documents[name] = _new_document(one, held, others)
        elif kind is Resource.NAMESPACE and name in documents:
            for policy in {policy_of(field) for field in _drifting_on(one, own)}:
                value = whole_value(policy, one.merged.values, own)
                documents[name] = with_policy(documents[name], policy, value, own)
        elif kind is Resource.TOPIC_POLICY:
            _set_topic(topics, name, {field: one.merged.values.get(field) for field in _drifting_on(one, own)})
    namespaces = tuple(NamespaceState(name, documents[name]) for name in sorted(documents))
    return replace(held, namespaces=namespaces, topic_policies=tuple(topics.values()))


def _set_topic(topics: dict[tuple[str, str], TopicPolicyState], name: str, values: Mapping[str, Json]) -> None:
    for path, value in values.items():
        scope, _, policy = path.partition("/")
        known = topics.get((name, scope), TopicPolicyState(name, scope, {}, 0))
        topics[name, scope] = replace(known, policies={**known.policies, policy: value})


def made_with(document: Mapping[str, Json]) -> JsonObject:
    """The part of a namespace's document that it is made with and that each cluster keeps for itself afterwards."""
    return {name: value for name, value in document.items() if name in BY_FIELD and BY_FIELD[name].kind in _FOR_ITSELF}


def _new_document(one: Compared, held: Snapshot, others: Sequence[Snapshot]) -> JsonObject:
    """What a namespace is made with: what was merged, and what only its maker can say, as another cluster has it."""
    own, values = held.cluster, one.merged.values
    document: JsonObject = {}
    for other in others:
        for state in other.namespaces:
            if state.name == one.item[1] and not document:
                document = translate(state.policies, other.cluster, own, held.known_clusters).document
    kept = made_with(document)
    for policy in {policy_of(name) for name in values}:
        value = whole_value(policy, values, own)
        if is_cluster_list(policy):
            value = sorted({own, *(set(value or ()) & set(held.known_clusters))})
        kept = with_policy(kept, policy, value, own)
    return {"replication_clusters": [own], **kept}


def _deletions(compared: Sequence[Compared], target: Target) -> Iterator[Change]:
    """Delete what others deleted, as long as nothing changed since: namespaces first, then tenants."""
    own = target.held.cluster
    tenants = _Holding(target.held).tenants
    for one in sorted(compared, key=lambda one: one.item[0] is Resource.TENANT):
        kind, name = one.item
        if not one.gone or kind is Resource.TOPIC_POLICY or own not in (side.cluster for side in one.sides):
            continue
        if _was_edited(one, own):
            continue
        path = NamespaceName.parse(name).path if kind is Resource.NAMESPACE else quote(name, safe="")
        before = target.whole.get(name) if kind is Resource.NAMESPACE else tenants[name]
        yield Change(
            resource=kind,
            name=name,
            field="",
            action=Action.DELETE,
            calls=(bare("DELETE", f"/{'namespaces' if kind is Resource.NAMESPACE else 'tenants'}/{path}"),),
            before=before,
            after=None,
            hazard=Hazard.DESTRUCTIVE,
            reason=f"gone on {', '.join(one.gone)}" if own not in one.gone else "the authority does not have it",
        )


def _was_edited(one: Compared, own: str) -> bool:
    base = one.agreed.document if one.agreed else None
    return base is not None and any(side.cluster == own and not same(dict(side.values), base) for side in one.sides)
