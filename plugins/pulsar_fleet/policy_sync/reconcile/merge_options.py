"""On what terms the clusters are compared: who decides, what the operator chose, what takes part (client)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import Terms, Truth
from pulsar_fleet.policy_sync.merge.merge_resource import How
from pulsar_fleet.policy_sync.merge.scan import Observed
from pulsar_fleet.policy_sync.merge.view import Item, View, is_selected, place
from pulsar_fleet.policy_sync.reconcile.desired_state_files import load
from pulsar_fleet.policy_sync.reconcile.history import Memory
from pulsar_fleet.policy_sync.reconcile.request import Request, Side


def terms_of(
    request: Request,
    memory: Memory,
    observed: Mapping[str, Observed],
    views: Sequence[View],
    apart: Collection[Item] | None = None,
) -> Terms:
    """Read the desired state where there is one.

    :param apart: the resources that are not the same on all clusters, where that is known already.
    :raises Rejected: files that cannot be meant.
    :raises Transient: the cluster that is the authority does not answer.
    """
    truth = _truth(request, views)
    held = memory.held | {
        state.name for one in observed.values() for state in one.snapshot.namespaces if state.policies.get("migrated")
    }

    def meant(item: Item) -> bool:
        if not is_selected(item, request.selection) or place(item)[1] in held:
            return False
        if item[0] is Resource.TENANT and request.authority.side is Side.FILE:
            # A folder may speak of namespaces alone.
            return truth is not None and item in truth.items
        return request.topics or item[0] is not Resource.TOPIC_POLICY

    return Terms(
        how=How(tie_break=request.tie_break, granularity=request.granularity),
        truth=truth,
        choices=memory.choices,
        meant=meant,
        apart=apart,
    )


def _truth(request: Request, views: Sequence[View]) -> Truth | None:
    authority = request.authority
    if authority.side is Side.MERGE:
        return None
    all_items = {item for view in views for item in view.items}
    if authority.side is Side.FILE:
        items = load(Path(authority.name))
        # A file that says nothing about a topic says that it has no policy.
        silent = {item for item in all_items - set(items) if (Resource.NAMESPACE, place(item)[1]) in items}
        return Truth(source=str(authority), items={**{item: {} for item in silent}, **items})
    view = _view(authority.name, views)
    said = {item: view.values(item) for item in all_items}
    return Truth(source=str(authority), items={item: values for item, values in said.items() if values is not None})


def _view(cluster: str, views: Sequence[View]) -> View:
    for view in views:
        if view.cluster == cluster:
            return view
    raise Unavailable(
        f"The authority {cluster!r} is none of the clusters that answer ({', '.join(view.cluster for view in views)}): "
        "nothing was compared.",
        cluster=cluster,
    )
