"""The options of a comparison: the authority, the operator's choices, the resources that take part (client)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import CompareOptions, DesiredState
from pulsar_fleet.policy_sync.merge.merge_resource import MergeOptions
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Item, View, is_selected, tenant_and_namespace
from pulsar_fleet.policy_sync.reconcile.desired_state_files import load
from pulsar_fleet.policy_sync.reconcile.history import History
from pulsar_fleet.policy_sync.reconcile.request import AuthorityKind, Request


def compare_options(
    request: Request,
    history: History,
    observed: Mapping[str, ClusterScan],
    views: Sequence[View],
    divergent: Collection[Item] | None = None,
) -> CompareOptions:
    """The options of a run; reads the desired state if there is one.

    :param divergent: the resources that are not identical on all clusters, if already known.
    :raises InvalidRequest: a file of the desired state is not valid.
    :raises Unavailable: the cluster that is the authority does not answer.
    """
    desired = _desired_state(request, views)
    shadows = frozenset[str]().union(*(scan.shadows for scan in observed.values()))
    in_migration = history.in_migration.union(*(scan.migrated for scan in observed.values()))

    def includes(item: Item) -> bool:
        if not is_selected(item, request.selection) or tenant_and_namespace(item)[1] in in_migration:
            return False
        if item[0] is Resource.TENANT and request.authority.kind is AuthorityKind.FILE:
            # A folder may describe namespaces without their tenants.
            return desired is not None and item in desired.items
        if item[0] is Resource.TOPIC:
            return request.reads_partitioned_topics and item[1] not in shadows
        return request.topics or item[0] is not Resource.TOPIC_POLICY

    return CompareOptions(
        merge=MergeOptions(tie_break=request.tie_break, granularity=request.granularity),
        desired=desired,
        choices=history.choices,
        deletions=history.deletions,
        includes=includes,
        divergent=divergent,
    )


def _desired_state(request: Request, views: Sequence[View]) -> DesiredState | None:
    authority = request.authority
    if authority.kind is AuthorityKind.MERGE:
        return None
    all_items = {item for view in views for item in view.items}
    if authority.kind is AuthorityKind.FILE:
        items = load(Path(authority.name))
        # A topic that the file of its namespace does not name has no policy.
        unnamed = {item for item in all_items - set(items) if _namespace(item) in items}
        return DesiredState(source=str(authority), items={**{item: {} for item in unnamed}, **items})
    view = _view(authority.name, views)
    values = {item: view.values(item) for item in all_items}
    return DesiredState(
        source=str(authority), items={item: fields for item, fields in values.items() if fields is not None}
    )


def _namespace(item: Item) -> Item:
    return Resource.NAMESPACE, tenant_and_namespace(item)[1]


def _view(cluster: str, views: Sequence[View]) -> View:
    for view in views:
        if view.cluster == cluster:
            return view
    raise Unavailable(
        f"The authority {cluster!r} is not among the clusters that answer ({', '.join(view.cluster for view in views)})"
        ": nothing was compared.",
        cluster=cluster,
    )
