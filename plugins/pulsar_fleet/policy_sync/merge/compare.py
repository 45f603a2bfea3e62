"""Compare the clusters of a fleet with each other and with their merge base (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.deletion_plan import EXISTENCE, DeletionConflict, Fate, deletion_conflict
from pulsar_fleet.policy_sync.merge.fields import GROWING, PARTITIONS, Values, is_cluster_list, localised
from pulsar_fleet.policy_sync.merge.identity import keep_undecided
from pulsar_fleet.policy_sync.merge.merge_resource import (
    ClusterValues,
    FieldState,
    Granularity,
    MergedResource,
    MergeOptions,
    Rule,
    is_only_behind,
    merge_resource,
)
from pulsar_fleet.policy_sync.merge.view import Identity, Item, View, tenant_and_namespace

_CONFLICTS = (Rule.TIME, Rule.NAME, Rule.JOINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The values that every cluster should hold regardless of its own; messages name the `source`."""

    source: str
    items: Mapping[Item, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResource:
    """One resource on all clusters.

    :param sides: the clusters that have it.
    :param missing: the clusters on which it has to be created.
    :param gone: the clusters that had it and no longer have it; or all that have it if the authority does not.
    :param deletion: the conflict between its deletion and its edits.
    :param without_topic: policies of topics only: the clusters without the topic, on which nothing can be set.
    :param unpartitioned: partitioned topics only: the clusters that have the topic without partitions.
    """

    item: Item
    merged: MergedResource
    sides: tuple[ClusterValues, ...]
    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    without_topic: tuple[str, ...] = ()
    unpartitioned: tuple[str, ...] = ()
    base: MergeBase | None = None
    deletion: DeletionConflict | None = None

    @property
    def has_drift(self) -> bool:
        """Whether the clusters hold different values."""
        return bool(self.missing or self.gone or self.unpartitioned or self.drifting)

    @property
    def drifting(self) -> dict[str, tuple[str, ...]]:
        """Field → the clusters that hold another value than the decided one."""
        clusters_by_field = {
            name: tuple(side.cluster for side in self.sides if not _has_value(side, name, decision.value))
            for name, decision in self.merged.decisions.items()
        }
        return {name: clusters for name, clusters in clusters_by_field.items() if clusters}

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The fields with different edits, and `EXISTENCE` for a resource that was both deleted and edited.

        A topic that is partitioned on a part of the clusters only is a conflict in its partition count.

        A cluster that only holds a value replaced elsewhere is no conflict.
        """
        undecided = self.deletion is not None and self.deletion.fate is Fate.UNDECIDED
        partitioning = (PARTITIONS,) if self.unpartitioned else ()
        return (
            (EXISTENCE,) * undecided
            + partitioning
            + tuple(
                name
                for name, decision in self.merged.decisions.items()
                if decision.rule is Rule.UNDECIDED
                or (
                    decision.rule in _CONFLICTS
                    and not all(self._is_behind(name, loser, decision.value) for loser in decision.losers)
                )
            )
        )

    def undecided_on(self, cluster: str) -> tuple[str, ...]:
        """The fields that a cluster lacks, and nobody knows whether they were removed there."""
        rules = {name: decision.rule for name, decision in self.merged.decisions.items()}
        return tuple(
            name for name, clusters in self.drifting.items() if rules[name] is Rule.UNDECIDED and cluster in clusters
        )

    def _is_behind(self, name: str, loser: FieldState, value: Json) -> bool:
        holders = [side.state(name) for side in self.sides if same(side.values.get(name), value)]
        base = self.base.document.get(name) if self.base else None
        return is_only_behind(loser, holders, base)


@dataclass(frozen=True, slots=True)
class Drift(Document):
    """The drift, between the task that finds it and the task that repairs it."""

    SCHEMA_VERSION = 2
    OTHER_VERSION = "run the reconciliation again"

    compared: tuple[ComparedResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All compared resources; `unread` are the resources that a cluster could not read."""

    compared: tuple[ComparedResource, ...]
    unread: tuple[Item, ...] = ()

    def drift(self) -> tuple[ComparedResource, ...]:
        """The resources that are not identical on all clusters."""
        return tuple(resource for resource in self.compared if resource.has_drift)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """How clusters are compared.

    :param choices: the values that the operator chose, by resource and field.
    :param deletions: the open conflicts between deletions and edits, the newest first.
    :param includes: whether a resource takes part; other resources are not changed.
    :param divergent: the resources that are not identical on all clusters and in the desired state, if already known.
    """

    merge: MergeOptions = field(default_factory=MergeOptions)
    desired: DesiredState | None = None
    choices: Mapping[Item, Mapping[str, Json]] = field(default_factory=dict)
    deletions: Mapping[Item, Sequence[DeletionConflict]] = field(default_factory=dict)
    includes: Callable[[Item], bool] = lambda _: True
    divergent: Collection[Item] | None = None


def compare(views: Sequence[View], bases: Mapping[Item, MergeBase], options: CompareOptions) -> Comparison:
    """Merge every resource; the order of the clusters has no effect."""
    ordered = sorted(views, key=lambda view: view.cluster)
    items: set[Item] = {(Resource(kind), name) for kind, name in bases}
    items.update(item for view in ordered for item in view.items)
    items.update(options.desired.items if options.desired else ())
    compared: list[ComparedResource] = []
    unread: list[Item] = []
    for item in sorted(filter(options.includes, items)):
        if all(view.has_read(item) for view in ordered):
            compared.append(_compare(item, ordered, bases.get(item), options))
        else:
            unread.append(item)
    return Comparison(compared=tuple(compared), unread=tuple(unread))


def namespaces_to_list(views: Sequence[View]) -> dict[str, frozenset[str]]:
    """Cluster → the namespaces whose topics have to be listed.

    A topic without policies looks the same as a missing topic, and so does a topic without partitions where others have
    a partitioned one: only the list of topics distinguishes them.
    """
    namespaces: dict[str, set[str]] = {}
    kinds = (Resource.TOPIC, Resource.TOPIC_POLICY)
    topics = {item for view in views for item in view.items if item[0] in kinds}
    for item in topics:
        namespace = tenant_and_namespace(item)[1]
        for view in views:
            has_namespace = (Resource.NAMESPACE, namespace) in view.items
            if has_namespace and item not in view.items and view.has_read(item):
                namespaces.setdefault(view.cluster, set()).add(namespace)
    return {cluster: frozenset(names) for cluster, names in namespaces.items()}


def _compare(item: Item, views: Sequence[View], base: MergeBase | None, options: CompareOptions) -> ComparedResource:
    members = base.clusters if base else ()
    sides = tuple(
        ClusterValues(
            cluster=view.cluster,
            values=values,
            provenance=view.provenance.get(item, {}),
            joined=view.cluster in members and view.identity.get(item) is not Identity.RECREATED,
        )
        for view in views
        if (values := view.values(item)) is not None
    )
    absent = [view.cluster for view in views if view.values(item) is None]
    document = base.document if base else {}
    if base and not absent and _is_unchanged(item, sides, document, options):
        nothing = MergedResource(values=dict(document), decisions={})
        chosen = options.choices.get(item)
        merged = merge_resource(document, sides, replace(options.merge, chosen=chosen)) if chosen else nothing
        return ComparedResource(item=item, merged=merged, sides=sides, base=base)
    if not base:
        # Without a merge base no cluster has changed anything.
        sides = tuple(replace(side, joined=True) for side in sides)
    how = replace(options.merge, chosen=options.choices.get(item, {}))
    unpartitioned = tuple(view.cluster for view in views if view.is_unpartitioned(item)) if sides else ()
    if item[0] is Resource.TOPIC:
        absent = [cluster for cluster in absent if cluster not in unpartitioned]
        how = replace(how, growing=GROWING, granularity=Granularity.FIELD)
    if options.desired is not None:
        authority = replace(how, desired=options.desired.items.get(item))
        return replace(_with_desired(item, sides, absent, base, authority), unpartitioned=unpartitioned)
    merged = merge_resource(document, sides, how)
    unknown = [view.cluster for view in views if view.identity.get(item) is Identity.UNKNOWN]
    merged = keep_undecided(merged, document, sides, unknown) if unknown else merged
    if item[0] is Resource.TOPIC_POLICY:
        return ComparedResource(item=item, merged=merged, sides=sides, without_topic=tuple(absent), base=base)
    gone = _gone(absent, base) if sides else ()
    deletion = deletion_conflict(document, sides, gone, options.deletions.get(item, ())) if gone else None
    if deletion and deletion.fate is Fate.KEPT:
        gone = ()
    missing = tuple(cluster for cluster in absent if cluster not in gone) if sides else ()
    return ComparedResource(
        item=item,
        merged=merged,
        sides=sides,
        missing=missing,
        gone=gone,
        unpartitioned=unpartitioned,
        base=base,
        deletion=deletion,
    )


def _is_unchanged(item: Item, sides: Sequence[ClusterValues], base: Values, options: CompareOptions) -> bool:
    """Whether all clusters with a resource hold the merge base, and the desired state does not differ from it."""
    if not all(side.joined for side in sides):
        return False
    if options.divergent is None:
        return options.desired is None and all(same(side.values, base) for side in sides)
    return item not in options.divergent and same(sides[0].values, base)


def _with_desired(
    item: Item, sides: tuple[ClusterValues, ...], absent: Sequence[str], base: MergeBase | None, options: MergeOptions
) -> ComparedResource:
    if options.desired is None:
        # The desired state does not have the resource: only its existence is a difference, not its fields.
        nothing = MergedResource(values={}, decisions={})
        gone = tuple(side.cluster for side in sides) if item[0] is not Resource.TOPIC_POLICY else ()
        return ComparedResource(item=item, merged=nothing, sides=sides, gone=gone, base=base)
    merged = merge_resource(base.document if base else {}, sides, options)
    if item[0] is Resource.TOPIC_POLICY:
        return ComparedResource(item=item, merged=merged, sides=sides, without_topic=tuple(absent), base=base)
    return ComparedResource(item=item, merged=merged, sides=sides, missing=tuple(absent), base=base)


def _gone(absent: Collection[str], base: MergeBase | None) -> tuple[str, ...]:
    former = {*base.clusters, *base.gone} if base else set()
    return tuple(cluster for cluster in absent if cluster in former)


def _has_value(side: ClusterValues, name: str, value: Json) -> bool:
    """Whether a cluster holds a value; `$self` in a list of clusters equals the cluster's own name."""
    current = side.values.get(name)
    if is_cluster_list(name):
        return same(localised(current, side.cluster), localised(value, side.cluster))
    return same(current, value)
