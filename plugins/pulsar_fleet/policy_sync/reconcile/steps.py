"""The steps of reconciliation: find what drifted apart, repair it; each can be run again at any point."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Applied
from pulsar_fleet.planning.apply.secrets import read_secrets
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.merge.compare import Compared, Comparison, compare, unsure_topics
from pulsar_fleet.policy_sync.merge.plan import Target, plan_repair, topics_needed
from pulsar_fleet.policy_sync.merge.scan import Observed, look, look_for_topics
from pulsar_fleet.policy_sync.merge.view import Item
from pulsar_fleet.policy_sync.reconcile.agreement import written
from pulsar_fleet.policy_sync.reconcile.drift_document import drift_from_json, drift_to_json
from pulsar_fleet.policy_sync.reconcile.fleet import Fleet, open_fleet
from pulsar_fleet.policy_sync.reconcile.history import Memory
from pulsar_fleet.policy_sync.reconcile.merge_options import terms_of
from pulsar_fleet.policy_sync.reconcile.request import Mode, Request, Side
from pulsar_fleet.policy_sync.reconcile.summary import repaired_summary, summarise
from pulsar_fleet.snapshot.documents import read_namespace
from pulsar_fleet.snapshot.model import Snapshot

log = logging.getLogger(__name__)

DRIFT = "drift.json"
PROCEDURE = "reconcile_policies"

FindApart = Callable[[Mapping[str, Snapshot], Collection[str]], frozenset[Item] | None]
"""Finds the resources that are not alike, given what each cluster of a fleet holds; None leaves it to the merge."""


async def find_drift(
    connections: Sequence[ClusterConnection], request: Request, run: Run, find_apart: FindApart | None = None
) -> JsonObject:
    """Look at all clusters, merge, and plan what each would have to write; no cluster is changed.

    What is seen, what all hold alike and who lost is kept, except by a dry run, so that a crash after this loses
    nothing. Looking again keeps the times of what was seen first.

    :param find_apart: compares the clusters elsewhere, so that only what differs is merged here; it may take long.
    :returns: what `summarise` says, with `"plans"`: cluster → reference and numbers, `"drift"` as a reference, and in
        `"apart"` how many resources `find_apart` named, None where all was compared here.
    :raises Denied: a cluster does not let us in; nothing was kept.
    :raises Transient: fewer than two clusters, or not the authority, answer.
    """
    began, seal = time.monotonic(), open_seal()
    async with open_fleet(connections) as opened:
        fleet, observed = await _look(opened, request, seal)
        memory = Memory.of(run.ledger, fleet, len(connections), request.choose)
        views = [memory.view(one, request.skew_seconds) for one in observed.values()]
        if unsure := unsure_topics(views):
            observed = await _with_topics(fleet, observed, unsure)
            views = [replace(view, topics=observed[view.cluster].topics) for view in views]
        apart = await _apart(find_apart, request, observed, memory)
        comparison = compare(views, memory.agreed, terms_of(request, memory, observed, views, apart))
        plans = await _plans(fleet, observed, comparison, request, seal)
    if request.mode is not Mode.DRY_RUN:
        writing = comparison.drift() if request.mode is Mode.REPAIR else ()
        memory.keep_looks(views, observed, writing)
        memory.journal(run.id, comparison.compared)
        settled = [one for one in comparison.compared if not one.has_drift or request.mode is Mode.REPORT]
        memory.settle(settled, {})
    found = summarise(comparison, observed, memory, fleet.behind, plans)
    found["seconds"] = round(time.monotonic() - began, 2)
    log.info("%s It took %s s.", found["headline"], found["seconds"])
    return {
        **found,
        "apart": None if apart is None else len(apart),
        "plans": {cluster: _store_plan(run, plan) for cluster, plan in plans.items() if plan.changes},
        "drift": _store_drift(run, comparison),
    }


async def repair(connections: Sequence[ClusterConnection], found: JsonObject, request: Request, run: Run) -> JsonObject:
    """Write what `find_drift` planned, cluster by cluster side by side; each namespace's setters one after the other.

    A value that changed since is left for the next run. A second call writes only what is not in place yet. What a
    cluster's run changed can be undone by the run id `<run>/<cluster>`.

    :returns: what `repaired_summary` says.
    """
    seal = open_seal()
    drift = drift_from_json(run.artefacts.read_json(Reference.from_json(found["drift"])))
    plans = read_plans(found, run)
    async with open_fleet(connections) as fleet:
        memory = Memory.of(run.ledger, fleet, len(connections))
        reached = {cluster: plan for cluster, plan in plans.items() if cluster in fleet.clusters}
        applied = await asyncio.gather(*(_apply(fleet, plan, request, run, seal) for plan in reached.values()))
        calls = {name: admin.calls for name, admin in fleet.clusters.items()}
    done = {one.target: written(one) for one in applied}
    memory.settle(drift, done)
    result = repaired_summary(applied, [cluster for cluster in plans if cluster not in reached], calls)
    run.artefacts.write_json(run.id, "repaired.json", {**result, "changes": [one.to_json() for one in applied]})
    return result


async def _look(fleet: Fleet, request: Request, seal: Redactor) -> tuple[Fleet, dict[str, Observed]]:
    """Look at all clusters side by side; one that stops to answer meanwhile is left behind."""

    async def attempt(admin: AdminClient) -> Observed | Unavailable:
        try:
            return await look(admin, request.selection, seal, topics=request.topics)
        except Unavailable as error:
            return error

    names = sorted(fleet.clusters)
    found = dict(zip(names, await asyncio.gather(*(attempt(fleet.clusters[name]) for name in names)), strict=True))
    observed = {name: one for name, one in found.items() if isinstance(one, Observed)}
    lost = {
        fleet.clusters[name].connection.name: str(one) for name, one in found.items() if isinstance(one, Unavailable)
    }
    return fleet.without(lost), observed


async def _apart(
    find_apart: FindApart | None, request: Request, observed: Mapping[str, Observed], memory: Memory
) -> frozenset[Item] | None:
    # Files are no snapshot: what they say is compared here.
    if find_apart is None or request.authority.side is Side.FILE or len(observed) < 2:
        return None
    looks = {name: one.snapshot for name, one in observed.items()}
    return await asyncio.to_thread(find_apart, looks, memory.fleet)


async def _with_topics(
    fleet: Fleet, observed: Mapping[str, Observed], asked: Mapping[str, Collection[str]]
) -> dict[str, Observed]:
    async def with_topics(name: str) -> Observed:
        new = sorted(set(asked.get(name, ())) - set(observed[name].topics))
        return await look_for_topics(fleet.clusters[name], observed[name], new) if new else observed[name]

    return dict(zip(observed, await asyncio.gather(*map(with_topics, observed)), strict=True))


async def _plans(
    fleet: Fleet, observed: Mapping[str, Observed], comparison: Comparison, request: Request, seal: Redactor
) -> dict[str, Plan]:
    drift = comparison.drift()
    looked = await _with_topics(fleet, observed, {name: topics_needed(drift, name) for name in observed})
    plans = {}
    for name, one in sorted(looked.items()):
        whole = await _whole(fleet.clusters[name], drift, name, seal) if request.propagate_deletes else {}
        plans[name] = plan_repair(
            drift,
            Target(held=one.snapshot, topics=one.topics, whole=whole),
            [looked[other].snapshot for other in _first(looked, request.authority.name) if other != name],
            source=str(request.authority),
            delete=request.propagate_deletes,
        )
    return plans


def _first(names: Collection[str], authority: str) -> list[str]:
    return sorted(names, key=lambda name: (name != authority, name))


async def _whole(admin: AdminClient, drift: Sequence[Compared], own: str, seal: Redactor) -> dict[str, JsonObject]:
    """What may be deleted, as it is now: applying compares it with what it finds."""
    found: dict[str, JsonObject] = {}
    for one in drift:
        if one.gone and "/" in one.item[1] and "://" not in one.item[1]:
            document = await read_namespace(admin, NamespaceName.parse(one.item[1]), seal)
            found[one.item[1]] = comparable(document or {}, own)
    return found


async def _apply(fleet: Fleet, plan: Plan, request: Request, run: Run, seal: Redactor) -> Applied:
    run_id = f"{run.id}/{plan.target}"
    target = fleet.clusters[plan.target]
    run.ledger.start_run(run_id, PROCEDURE, {"target": target.connection.name, "plan": plan.id})
    secrets: dict[str, str] = {}
    for holder in fleet.clusters.values():
        secrets |= await read_secrets(plan, holder, seal)
    applied = await apply_plan(plan, target, run.ledger, run_id, seal=seal, allow=request.allow, secrets=secrets)
    run.ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
    return applied


def read_plans(found: JsonObject, run: Run) -> dict[str, Plan]:
    """The plans that `find_drift` stored, by cluster."""
    return {
        cluster: Plan.from_json(run.artefacts.read_json(Reference.from_json(one["plan"])))
        for cluster, one in found["plans"].items()
    }


def _store_plan(run: Run, plan: Plan) -> JsonObject:
    return {
        "plan": run.artefacts.write_json(run.id, f"plan-{plan.target}.json", plan.to_json()).to_json(),
        "changes": len(plan.changes),
        "needs_permission": len(plan.needing_permission()),
    }


def _store_drift(run: Run, comparison: Comparison) -> JsonObject | None:
    drift = comparison.drift()
    return run.artefacts.write_json(run.id, DRIFT, drift_to_json(drift)).to_json() if drift else None
