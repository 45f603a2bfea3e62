"""The state of a fleet as one scan shows it: what its clusters hold, what differs, what would have to be written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.guards import leave_incompatible_out, read_identity, refuse_shared_stores
from pulsar_fleet.policy_sync.merge.compare import CompareOptions, Comparison, DesiredState, compare, namespaces_to_list
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions, PropagateDeletes, pending
from pulsar_fleet.policy_sync.merge.identity import Suspect, suspects
from pulsar_fleet.policy_sync.merge.merge_resource import MergeOptions
from pulsar_fleet.policy_sync.merge.plan import Target, plan_deletions, plan_repair, topics_needed
from pulsar_fleet.policy_sync.merge.scan import ClusterScan, list_topics, scan_cluster
from pulsar_fleet.policy_sync.merge.view import Identity, Item, View, tenant_and_namespace
from pulsar_fleet.policy_sync.reconcile.desired_state_files import load
from pulsar_fleet.policy_sync.reconcile.history import History
from pulsar_fleet.policy_sync.reconcile.request import AuthorityKind, Request
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, summarise
from pulsar_fleet.policy_sync.recorded_apply import current_documents
from pulsar_fleet.snapshot.model import Snapshot


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
        if not request.includes(item) or tenant_and_namespace(item)[1] in in_migration:
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


log = logging.getLogger(__name__)

FindDivergent = Callable[[Mapping[str, Snapshot], Collection[str]], frozenset[Item] | None]
"""Finds the divergent resources by the snapshot of each cluster of a fleet; None: the merge compares everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The fleet as one scan shows it, and what would have to be written."""

    observed: Mapping[str, ClusterScan]
    history: History
    views: Sequence[View]
    divergent: frozenset[Item] | None
    comparison: Comparison
    plans: Mapping[str, Plan]
    deletions: Mapping[str, PendingDeletions]

    def summary(self, fleet: Fleet) -> DriftSummary:
        """In numbers, without references to documents."""
        summary = summarise(self.comparison, self.observed, self.history, fleet.behind, self.plans)
        return replace(summary, deletions=self.deletions)


async def read_state(
    fleet: Fleet,
    size: int,
    request: Request,
    run: Run,
    redactor: Redactor,
    find_divergent: FindDivergent | None = None,
) -> State:
    """Scan all clusters, merge, and plan the writes; no cluster is changed and nothing is recorded.

    :param size: the number of clusters of the fleet, including unreachable ones.
    :param find_divergent: compares the clusters in a job; it may take long.
    """
    observed = await _scan(fleet, request, redactor)
    await refuse_shared_stores(fleet.clusters, {name: scan.snapshot for name, scan in observed.items()})
    history = History.of(run.ledger, fleet, size, request.choose)
    views = [history.view(scan, request.skew_seconds) for scan in observed.values()]
    if namespaces := namespaces_to_list(views):
        observed = await _with_topics(fleet, observed, namespaces)
        views = [replace(view, topics=observed[view.cluster].topics) for view in views]
    if request.authority.kind is AuthorityKind.MERGE:
        views = await _identified(fleet, observed, history, views)
    divergent = await _divergent(find_divergent, request, observed, history)
    options = compare_options(request, history, observed, views, divergent)
    comparison = compare(views, history.merge_bases, options)
    plans, deletions = await _plans(fleet, observed, comparison, request, redactor)
    return State(
        observed=observed,
        history=history,
        views=views,
        divergent=divergent,
        comparison=comparison,
        plans=plans,
        deletions=deletions,
    )


async def _scan(fleet: Fleet, request: Request, redactor: Redactor) -> dict[str, ClusterScan]:
    """Scan all clusters in parallel; one that stops answering is removed from the fleet."""

    async def attempt(admin: AdminClient) -> ClusterScan | Unavailable:
        try:
            return await scan_cluster(
                admin,
                request.selection,
                redactor,
                topics=request.topics,
                partitioned=request.reads_partitioned_topics,
            )
        except Unavailable as error:
            return error

    names = sorted(fleet.clusters)
    results = dict(zip(names, await asyncio.gather(*(attempt(fleet.clusters[name]) for name in names)), strict=True))
    observed = {name: result for name, result in results.items() if isinstance(result, ClusterScan)}
    failed = {name: result for name, result in results.items() if isinstance(result, Unavailable)}
    fleet.remove({fleet.clusters[name].connection.name: str(error) for name, error in failed.items()})
    return observed


async def _divergent(
    find_divergent: FindDivergent | None, request: Request, observed: Mapping[str, ClusterScan], history: History
) -> frozenset[Item] | None:
    # The job reads snapshots only: a desired state in files is compared here.
    if find_divergent is None or request.authority.kind is AuthorityKind.FILE or len(observed) < 2:
        return None
    snapshots = {name: scan.snapshot for name, scan in observed.items()}
    return await asyncio.to_thread(find_divergent, snapshots, history.fleet)


async def _identified(
    fleet: Fleet, observed: Mapping[str, ClusterScan], history: History, views: Sequence[View]
) -> list[View]:
    """The views with what is known of the resources that lack values: calls only for these."""
    found = [one for one in suspects(views, history.merge_bases) if not _was_edited(one, observed[one.cluster])]
    identities = await asyncio.gather(
        *(read_identity(fleet.clusters[one.cluster], one.item, one.at, observed[one.cluster].clock) for one in found)
    )
    known = dict(zip(found, identities, strict=True))
    for suspect, identity in known.items():
        if identity is not Identity.SAME:
            log.info("%s %s on %s lacks values: %s", *suspect.item, suspect.cluster, identity)
    return [
        replace(view, identity={one.item: identity for one, identity in known.items() if one.cluster == view.cluster})
        for view in views
    ]


def _was_edited(suspect: Suspect, scan: ClusterScan) -> bool:
    kind, name = suspect.item
    events = scan.events.get(tenant_and_namespace(suspect.item)[1]) if kind is Resource.TOPIC_POLICY else None
    return events is not None and events.unsets(name, suspect.lacking)


async def _with_topics(
    fleet: Fleet, observed: Mapping[str, ClusterScan], namespaces: Mapping[str, Collection[str]]
) -> dict[str, ClusterScan]:
    async def with_topics(name: str) -> ClusterScan:
        return await list_topics(fleet.clusters[name], observed[name], namespaces.get(name, ()))

    return dict(zip(observed, await asyncio.gather(*map(with_topics, observed)), strict=True))


async def _plans(
    fleet: Fleet, observed: Mapping[str, ClusterScan], comparison: Comparison, request: Request, redactor: Redactor
) -> tuple[dict[str, Plan], dict[str, PendingDeletions]]:
    """The plan for each cluster, and the deletions that wait on it; the plan has them if they may be approved."""
    drift = comparison.drift()
    scans = await _with_topics(fleet, observed, {name: topics_needed(drift, name) for name in observed})
    authority_first = sorted(scans, key=lambda name: (name != request.authority.name, name))
    gone = sorted(resource.item[1] for resource in drift if resource.gone and resource.item[0] is Resource.NAMESPACE)
    names = [admin.connection.argument for admin in fleet.clusters.values()]
    command = command_line("reconcile", *names, *request.options)
    plans, waiting = {}, {}
    for name, scan in sorted(scans.items()):
        deletable = await current_documents(fleet.clusters[name], gone, name, redactor)
        target = Target(snapshot=scan.snapshot, topics=scan.topics, deletable=deletable)
        others = [scans[other].snapshot for other in authority_first if other != name]
        plan = plan_repair(drift, target, others, source=str(request.authority))
        plan, _ = await leave_incompatible_out(plan, fleet.clusters, fleet.behind, redactor, scan.snapshot)
        deletions = plan_deletions(drift, target)
        if request.propagate_deletes is PropagateDeletes.APPROVE:
            plan = replace(plan, changes=(*plan.changes, *deletions.changes))
        plans[name] = plan
        if batch := pending(deletions, command):
            waiting[name] = batch
    return plans, waiting
