"""Create the event topic on every cluster, replicated between them (client)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.statistics import cursors_in_stats, replicator_cursor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.decisions import Planner
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.events.fleet import Members
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.guards import claim_store, refuse_claimed_store, refuse_shared_stores
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, ROLES
from pulsar_fleet.policy_sync.merge.scan import scan_cluster
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot

_RETENTION = {"retentionTimeInMinutes": 7 * 24 * 60, "retentionSizeInMB": 512}
"""One week, in which a topic can be read again from its beginning."""
_COMPACTED_FROM_BYTES = 1024 * 1024
_LINK_SECONDS = 30.0


async def prepare(
    clusters: Mapping[str, AdminClient], request: Request, run: Run, redactor: Redactor
) -> tuple[str, ...]:
    """Create missing parts of the event topic on each cluster; a second call changes nothing.

    Clusters that the topic is already replicated to stay; a cluster that is added to them joins the fleet.

    :returns: the names of all clusters that the event topic is replicated to.
    :raises InvalidRequest: only one cluster was named, and it has no event topic; two clusters share a store, of which
        one may have taken part earlier.
    :raises PreconditionFailed: a part could not be created; the message names it and the cluster.
    """
    selection = Selection(namespaces=frozenset({request.event_topic.namespace}))
    scans = {name: await scan_cluster(admin, selection, redactor, topics=False) for name, admin in clusters.items()}
    snapshots = {name: scan.snapshot for name, scan in scans.items()}
    await refuse_shared_stores(clusters, snapshots)
    for name, snapshot in snapshots.items():
        for state in snapshot.namespaces:
            refuse_claimed_store(name, request.event_topic.namespace, state.policies)
    before = _replicated(snapshots.values())
    fleet = tuple(sorted({*clusters, *before}))
    if len(fleet) < 2:
        raise InvalidRequest(
            f"There is no event topic {request.event_topic} on {fleet[0]} yet: "
            "name all clusters in one run, while they answer, to create it."
        )
    data = {name: admin.connection.cluster_data() for name, admin in clusters.items()}
    secrets = redactor.secrets(data)
    shown = {name: redactor.redact(document) for name, document in data.items()}
    plans = {name: _plan(snapshot, shown, fleet, request, secrets) for name, snapshot in snapshots.items()}
    Members(run.ledger, request.event_topic).begin(fleet, set(fleet) - before if len(before) > 1 else ())
    for name, plan in plans.items():
        await _apply(clusters[name], plan.shared(), run, redactor, secrets)
    for name, plan in plans.items():
        await _apply(clusters[name], plan.batch(plan.namespaces()), run, redactor, secrets)
        await claim_store(clusters[name], name, request.event_topic.namespace)
    for admin in clusters.values():
        for topic in (request.event_topic, request.dead_letters):
            with suppress(Conflict):
                await admin.create_topic(topic)
    for name, admin in clusters.items():
        await _wait_replicated(admin, request, set(clusters) - {name})
    return fleet


def _replicated(snapshots: Iterable[Snapshot]) -> set[str]:
    """The clusters that the event topic is already replicated to."""
    states = (state for snapshot in snapshots for state in snapshot.namespaces)
    return {name for state in states for name in state.policies["replication_clusters"]}


def _plan(
    snapshot: Snapshot, clusters: Mapping[str, Json], fleet: Sequence[str], request: Request, given: Collection[str]
) -> Plan:
    """The missing parts on one cluster.

    :param clusters: cluster → its data for the brokers of the others, with fingerprints instead of secrets.
    :param given: these fingerprints.
    """
    namespace, own = request.event_topic.namespace, snapshot.cluster
    document = {
        "replication_clusters": list(fleet),
        "retention_policies": _RETENTION,
        "compaction_threshold": _COMPACTED_FROM_BYTES,
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
        "is_allow_auto_update_schema": True,
    }
    planned = replace(snapshot, namespaces=(NamespaceState(str(namespace), document),))
    planner = Planner(planned, snapshot, given=given)
    for name, data in clusters.items():
        if name not in snapshot.known_clusters:
            planner.add(Difference(Resource.CLUSTER, name, "", Side.MISSING, data, None))
    tenant = next(iter(snapshot.tenants), None)
    roles = {ROLES: list(tenant.admin_roles), CLUSTERS: list(tenant.allowed_clusters)} if tenant else None
    allowed = sorted({*fleet, *(roles[CLUSTERS] if roles else ())})
    if roles is None or allowed != roles[CLUSTERS]:
        after = {ROLES: roles[ROLES] if roles else [], CLUSTERS: allowed}
        side = Side.DIFFERENT if roles else Side.MISSING
        planner.add(Difference(Resource.TENANT, namespace.tenant, "", side, after, roles))
    if not snapshot.namespaces:
        planner.add(Difference(Resource.NAMESPACE, str(namespace), "", Side.MISSING, document, None))
    elif (listed := snapshot.namespaces[0].policies["replication_clusters"]) != list(fleet):
        field = "replication_clusters"
        planner.add(Difference(Resource.POLICY, str(namespace), field, Side.DIFFERENT, list(fleet), sorted(listed)))
    return Plan(source="the event topic", target=own, changes=planner.ordered())


async def _wait_replicated(admin: AdminClient, request: Request, peers: Set[str]) -> None:
    """Wait for the replication cursors: replication never sends events from before their creation."""
    end = time.monotonic() + _LINK_SECONDS
    cursors = {replicator_cursor(name): name for name in peers}
    while missing := cursors.keys() - cursors_in_stats(await admin.internal_stats(request.event_topic)).keys():
        if time.monotonic() > end:
            raise Unavailable(
                f"{admin.connection.name}: the event topic {request.event_topic} is not replicated to "
                f"{', '.join(sorted(cursors[cursor] for cursor in missing))} yet.",
                cluster=admin.connection.name,
            )
        await asyncio.sleep(0.2)


async def _apply(admin: AdminClient, plan: Plan, run: Run, redactor: Redactor, secrets: Mapping[str, str]) -> None:
    if plan.empty:
        return
    applied = await apply_plan(plan, admin, run.ledger, f"{run.id}/{plan.target}", redactor=redactor, secrets=secrets)
    if failed := applied.not_in_place():
        raise PreconditionFailed(
            f"The event topic cannot be created on {plan.target}: {failed[0].change.label}: {failed[0].detail}",
            cluster=plan.target,
        )
