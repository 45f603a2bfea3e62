"""Plan what every cluster needs for the desired replication, in the order in which it is safe (pure).

Three stages, each on all clusters before the next: contents (cluster data, tenants, namespaces, topics, schemas), lists
that start links, lists that end links. A list that starts and ends links is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import clusters_in_effect
from pulsar_fleet.cluster.policies.model import OWN_LIST, TOPIC_CLUSTERS
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls
from pulsar_fleet.planning.changes.clusters import cluster_path
from pulsar_fleet.planning.changes.namespaces import setting, tenant_path
from pulsar_fleet.planning.changes.topics import subscription_change
from pulsar_fleet.planning.decisions import Planner
from pulsar_fleet.planning.diff import cluster_value, diff
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.hazards import ValueChange, guard_call, with_risks
from pulsar_fleet.planning.plan import Action, Change, Hazard, LeftAlone, Plan
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.replication.replicated_namespaces import (
    document_of,
    list_in_effect,
    new_links,
    topic_list_of,
    topics_kept_local,
    topics_with_lists,
)
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.plan import ClusterPlan, ReplicationPlan
from pulsar_fleet.replication.topology import Topology
from pulsar_fleet.snapshot.model import NamespaceState, SchemaState, Snapshot, TopicPolicyState

_LIST, _ALLOWED = "replication_clusters", "allowed_clusters"


def plan_replication(
    snapshots: Mapping[str, Snapshot],
    topology: Topology,
    request: Request,
    cluster_data: Mapping[str, JsonObject],
    given: Collection[str],
) -> ReplicationPlan:
    """Plan all stages.

    :param snapshots: of every cluster that is read, by its own name.
    :param cluster_data: cluster → its data for the brokers of others, with fingerprints instead of secrets.
    :param given: these fingerprints.
    """
    members = [snapshots[name] for name in topology.members if name in snapshots]
    namespaces = sorted({state.name for member in members for state in member.namespaces})
    plans = {
        name: _ClusterPlanner(snapshot, topology, request, namespaces).plan(members, cluster_data, given)
        for name, snapshot in snapshots.items()
    }
    return ReplicationPlan(
        topology=topology,
        namespaces=tuple(namespaces),
        topics=tuple(sorted(map(str, request.topics))),
        new_links={name: tuple(new_links(name, snapshots, topology, request)) for name in namespaces},
        clusters=plans,
        kept_local={
            name: tuple(map(str, topics_kept_local(snapshots[name], namespaces, request)))
            for name in topology.members
            if name in snapshots
        },
    )


@dataclass(frozen=True, slots=True)
class _ClusterPlanner:
    """Plans the stages of one cluster."""

    snapshot: Snapshot
    topology: Topology
    request: Request
    namespaces: Sequence[str]

    @property
    def own(self) -> str:
        return self.snapshot.cluster

    def plan(
        self, members: Sequence[Snapshot], cluster_data: Mapping[str, JsonObject], given: Collection[str]
    ) -> ClusterPlan:
        contents, left_alone = ((), ()) if self._leaves else self._contents(members, cluster_data, given)
        stages = {"contents": contents, "starts": () if self._leaves else self._starts(), "ends": self._ends()}
        for changes in stages.values():
            for change in changes:
                for call in change.calls:
                    guard_call(call, self.own)
        plans = {
            stage: Plan(source="the desired replication", target=self.own, changes=tuple(changes))
            for stage, changes in stages.items()
        }
        return ClusterPlan(**{**plans, "contents": replace(plans["contents"], left_alone=left_alone)})

    def _contents(
        self, members: Sequence[Snapshot], cluster_data: Mapping[str, JsonObject], given: Collection[str]
    ) -> tuple[tuple[Change, ...], tuple[LeftAlone, ...]]:
        desired = desired_contents(members, self.snapshot, self.request)
        planner = Planner(desired, self.snapshot, given=given)
        needed = [name for name in self.topology.list_of(self.own) if name != self.own]
        for name in needed:
            if name not in self.snapshot.known_clusters:
                planner.add(Difference(Resource.CLUSTER, name, "", Side.MISSING, cluster_data[name], None))
        for difference in self._tenants(members, needed):
            planner.add(difference)
        for difference in self._missing(desired):
            planner.add(difference)
        changes = (*planner.ordered(), *self._settings(), *self._replicated_subscriptions())
        return changes, tuple(planner.left_alone)

    def _tenants(self, members: Sequence[Snapshot], needed: Collection[str]) -> Iterator[Difference]:
        present = {tenant.name: tenant for tenant in self.snapshot.tenants}
        for name in sorted({NamespaceName.parse(namespace).tenant for namespace in self.namespaces}):
            tenant = present.get(name)
            source = next((row for member in members for row in member.tenants if row.name == name), None)
            roles = tenant.admin_roles if tenant else source.admin_roles if source else ()
            before = _tenant_document(roles, tenant.allowed_clusters) if tenant else None
            after = _tenant_document(roles, {*(tenant.allowed_clusters if tenant else ()), self.own, *needed})
            if before != after:
                side = Side.DIFFERENT if tenant else Side.MISSING
                yield Difference(Resource.TENANT, name, "", side, after, before)

    def _missing(self, desired: Snapshot) -> Iterator[Difference]:
        """What this cluster lacks; what it has stays as it is."""
        topics = {row.name for row in self.snapshot.topics}
        namespaces = {row.name for row in self.snapshot.namespaces}
        for difference in diff(desired, self.snapshot):
            new_topic = difference.name not in topics
            namespace = difference.resource is Resource.NAMESPACE and difference.name not in namespaces
            inside = difference.resource in (Resource.TOPIC, Resource.TOPIC_POLICY) and new_topic
            schema = difference.resource is Resource.SCHEMA and difference.side is not Side.EXTRA
            if (namespace or inside or schema) and difference.side is not Side.EXTRA:
                yield difference

    def _settings(self) -> Iterator[Change]:
        for state in self.snapshot.namespaces:
            if state.name not in self.namespaces:
                continue
            desired = comparable({**state.policies, **settings_of(self.own, self.request)}, self.own)
            current = comparable(state.policies, self.own)
            for field in settings_of(self.own, self.request):
                if not same(current.get(field), desired.get(field)):
                    reason = "the run sets it on every cluster"
                    yield self._with_risks(
                        setting(BY_FIELD[field], state.name, current.get(field), desired.get(field), reason)
                    )

    def _replicated_subscriptions(self) -> Iterator[Change]:
        if not self.request.replicated_subscriptions or self.own not in self.topology.members:
            return
        flags: dict[tuple[str, str], bool] = {}
        for row in self.snapshot.subscriptions:
            if self.request.has_topic(TopicName.parse(row.topic)):
                flags[row.topic, row.name] = flags.get((row.topic, row.name), True) and row.replicated
        for (topic, name), replicated in sorted(flags.items()):
            values = [{"replicated": value, "properties": {}} for value in (True, replicated)]
            difference = Difference(Resource.SUBSCRIPTION, topic, name, Side.DIFFERENT, *values)
            change = subscription_change(difference, self.snapshot.oldest_version())
            if not replicated and isinstance(change, Change):
                yield self._with_risks(change)

    def _starts(self) -> Iterable[Change]:
        if self.request.topics:
            return [change for topic in sorted(self.request.topics) for change in self._topic_list(topic)]
        lists = [change for name in self.namespaces for change in self._growing_lists(name)]
        return [*lists, *self._growing_topic_lists()]

    def _growing_lists(self, namespace: str) -> Iterator[Change]:
        document = document_of(self.snapshot, namespace)
        current = sorted(document.get(_LIST) or [self.own])
        grown = self.topology.growing_list(self.own, current)
        allowed = sorted(document.get(_ALLOWED) or ())
        if allowed and not {*grown} <= {*allowed}:
            yield self._setting(namespace, _ALLOWED, allowed, sorted({*allowed, *grown}), "it must allow every cluster")
        if grown != current:
            yield self._setting(namespace, _LIST, current, grown, "starts replication")

    def _growing_topic_lists(self) -> Iterator[Change]:
        """Lists of topics themselves, which count instead of their namespaces'; a topic that is kept here stays."""
        kept = {*topics_kept_local(self.snapshot, self.namespaces, self.request)}
        for topic in topics_with_lists(self.snapshot, self.namespaces):
            if topic not in kept:
                yield from self._topic_list(topic)

    def _topic_list(self, topic: TopicName) -> Iterator[Change]:
        """The list in effect with what the run adds: a list of the topic's own ends that of its namespace for it."""
        current = list_in_effect(self.snapshot, topic)
        desired = self.topology.growing_list(self.own, current)
        if desired != current and self.own in self.topology.members:
            before = sorted(topic_list_of(self.snapshot, topic))
            yield self._topic_list_change(topic, before, desired, current, "starts replication")

    def _ends(self) -> Iterable[Change]:
        if self.request.topics:
            return []
        lists = [change for name in self.namespaces for change in self._shrinking_list(name)]
        topics = self._shrinking_topic_lists()
        return [*lists, *topics, *self._tenants_without(), *self._cluster_data_without()]

    def _shrinking_list(self, namespace: str) -> Iterator[Change]:
        document = document_of(self.snapshot, namespace)
        current = sorted(document.get(_LIST) or [self.own])
        before = current if self._leaves else self.topology.growing_list(self.own, current)
        after = self.topology.list_of(self.own)
        if document and self.topology.ends_links(self.own, before):
            yield self._setting(namespace, _LIST, before, after, "ends replication, after its backlog was sent")

    def _shrinking_topic_lists(self) -> Iterator[Change]:
        """Lists of topics themselves that name a cluster which leaves; one that the run extends first is extended.

        A topic whose list is its namespace's then has no list any more, as before a run that replicated it by itself.
        """
        gone, reason = self.topology.gone_from(self.own), "ends replication, after its backlog was sent"
        grown = {change.name: change.after for change in self._growing_topic_lists()} if not self._leaves else {}
        for topic in topics_with_lists(self.snapshot, self.namespaces):
            current = grown.get(str(topic)) or list_in_effect(self.snapshot, topic)
            if not gone & {*current}:
                continue
            before = grown.get(str(topic)) or sorted(topic_list_of(self.snapshot, topic))
            after = sorted({*current} - gone | {self.own})
            unset = before and after == self._list_without_own(topic)
            yield self._topic_list_change(topic, before, None if unset else after, current, reason, effective=after)

    def _list_without_own(self, topic: TopicName) -> list[str]:
        """The list that is in effect for a topic without its own one, at the end of the run."""
        policies = {row.scope: row.policies for row in self.snapshot.topic_policies if row.topic == str(topic)}
        listed = document_of(self.snapshot, str(topic.namespace)).get(_LIST) or [self.own]
        before = listed if self._leaves else self.topology.growing_list(self.own, listed)
        ends = self.topology.ends_links(self.own, before)
        after = self.topology.list_of(self.own) if ends else before
        return clusters_in_effect(
            local={}, shared=policies.get(Scope.GLOBAL, {}), namespace={_LIST: after}, own=self.own
        )

    @property
    def _leaves(self) -> bool:
        return self.own in self.topology.leaving

    def _topic_list_change(
        self,
        topic: TopicName,
        before: list[str],
        after: list[str] | None,
        current: list[str],
        reason: str,
        effective: list[str] | None = None,
    ) -> Change:
        """A change of a topic's own list.

        :param current: the list in effect before it, `effective` after it: they say whether a cluster is taken away.
        """
        policy = TOPIC_BY_FIELD[TOPIC_CLUSTERS]
        change = Change(
            resource=Resource.TOPIC_POLICY,
            name=str(topic),
            field=OWN_LIST,
            action=Action.SET if after else Action.UNSET,
            calls=topic_policy_calls(policy, topic, Scope.LOCAL, before or None, after),
            before=before or None,
            after=after,
            hazard=Hazard.REVERSIBLE,
            reason=reason,
        )
        return with_risks(change, self.own, (ValueChange(change.resource, _LIST, current, effective or after),))

    def _tenants_without(self) -> Iterator[Change]:
        """Tenants stop allowing what no list needs; the ones that the plan extends first are not shortened."""
        gone = self.topology.gone_from(self.own)
        for tenant in self.snapshot.tenants:
            after = sorted({*tenant.allowed_clusters} - gone | {self.own})
            before = _tenant_document(tenant.admin_roles, self._extended(tenant.name, tenant.allowed_clusters))
            document = _tenant_document(tenant.admin_roles, {*before["allowedClusters"]} - gone | {self.own})
            if self.topology.leaving and {*tenant.allowed_clusters} != {*after}:
                yield Change(
                    resource=Resource.TENANT,
                    name=tenant.name,
                    field="",
                    action=Action.SET,
                    calls=(with_body("POST", tenant_path(tenant.name), document),),
                    before=before,
                    after=document,
                    hazard=Hazard.REVERSIBLE,
                    reason="no namespace of it replicates there any more",
                )

    def _extended(self, tenant: str, allowed: Collection[str]) -> set[str]:
        """What the tenant allows after the first stage."""
        ours = any(NamespaceName.parse(name).tenant == tenant for name in self.namespaces)
        return {*allowed, *(self.topology.list_of(self.own) if ours and not self._leaves else ())}

    def _cluster_data_without(self) -> Iterator[Change]:
        if not self.request.delete_cluster_data:
            return
        for peer in self.snapshot.clusters:
            if peer.name in self.topology.gone_from(self.own):
                call: Call = bare("DELETE", cluster_path(peer.name))
                yield Change(
                    resource=Resource.CLUSTER,
                    name=peer.name,
                    field="",
                    action=Action.DELETE,
                    calls=(call,),
                    before=cluster_value(peer.data),
                    after=None,
                    hazard=Hazard.DESTRUCTIVE,
                    reason="nothing on this cluster refers to it any more",
                )

    def _setting(self, namespace: str, field: str, before: Json, after: Json, reason: str) -> Change:
        return self._with_risks(setting(BY_FIELD[field], namespace, before, after, reason))

    def _with_risks(self, change: Change) -> Change:
        return with_risks(change, self.own, (ValueChange(change.resource, change.field, change.before, change.after),))


def _tenant_document(roles: Iterable[str], clusters: Iterable[str]) -> JsonObject:
    return {"adminRoles": sorted(roles), "allowedClusters": sorted(clusters)}


DEDUPLICATION = "deduplicationEnabled"
RATE = "replicatorDispatchRate"


def selected(snapshot: Snapshot, request: Request) -> Snapshot:
    """Without the topics that are not replicated."""
    return replace(
        snapshot,
        topics=tuple(row for row in snapshot.topics if request.has_topic(TopicName.parse(row.name))),
        schemas=tuple(row for row in snapshot.schemas if request.has_topic(TopicName.parse(row.topic))),
        topic_policies=tuple(row for row in snapshot.topic_policies if request.has_topic(TopicName.parse(row.topic))),
    )


def desired_contents(members: Sequence[Snapshot], target: Snapshot, request: Request) -> Snapshot:
    """The namespaces, topics, schemas and topic policies of the members, as the target should have them.

    Where several members have a resource, the first that has it decides; of a schema history the longest decides.
    A new namespace replicates to nothing yet: its list is set when every cluster has it.
    """
    sources = [member for member in members if member.cluster != target.cluster]
    translated = [translate_snapshot(member, target)[0] for member in sources]
    namespaces = _first(translated, lambda one: one.namespaces, lambda row: row.name)
    topics = _first(translated, lambda one: one.topics, lambda row: row.name)
    return replace(
        target,
        namespaces=tuple(_alone(row, target.cluster, request) for row in namespaces),
        topics=tuple(topics),
        schemas=tuple(_longest_histories(translated)),
        topic_policies=tuple(
            _without_list(row)
            for row in _first(translated, lambda one: one.topic_policies, lambda row: (row.topic, row.scope))
        ),
        subscriptions=(),
        inventory=tuple(_first(translated, lambda one: one.inventory, lambda row: (row.kind, row.namespace, row.name))),
        notes=(),
    )


def settings_of(own: str, request: Request) -> JsonObject:
    """The policies that the run sets on every namespace of the cluster `own`, as in a policies document."""
    rate = request.rate()
    return {
        **({DEDUPLICATION: True} if request.deduplication else {}),
        **({RATE: {own: rate}} if rate else {}),
    }


def _alone(state: NamespaceState, own: str, request: Request) -> NamespaceState:
    kept = {field: value for field, value in state.policies.items() if field != "allowed_clusters"}
    return replace(state, policies={**kept, **settings_of(own, request), "replication_clusters": [own]})


def _without_list(state: TopicPolicyState) -> TopicPolicyState:
    return replace(state, policies={field: value for field, value in state.policies.items() if field != TOPIC_CLUSTERS})


def _first(
    snapshots: Iterable[Snapshot], rows: Callable[[Snapshot], Iterable[Any]], key: Callable[[Any], Any]
) -> list[Any]:
    chosen: dict[Any, Any] = {}
    for snapshot in snapshots:
        for row in rows(snapshot):
            chosen.setdefault(key(row), row)
    return [chosen[name] for name in sorted(chosen)]


def _longest_histories(snapshots: Iterable[Snapshot]) -> list[SchemaState]:
    histories: dict[str, list[SchemaState]] = {}
    for snapshot in snapshots:
        by_topic: dict[str, list[SchemaState]] = {}
        for row in snapshot.schemas:
            by_topic.setdefault(row.topic, []).append(row)
        for topic, history in by_topic.items():
            if len(history) > len(histories.get(topic, ())):
                histories[topic] = history
    return [row for topic in sorted(histories) for row in histories[topic]]
