"""The steps of onboarding a cluster: snapshot, plan, apply, verify; each can be run again at any point."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pulsar_fleet.change.apply import Progress, apply_plan
from pulsar_fleet.change.findings import Finding, blockers
from pulsar_fleet.change.outcome import Applied, Outcome
from pulsar_fleet.change.plan import Plan
from pulsar_fleet.change.planning import plan_changes
from pulsar_fleet.change.rendering import headline, plan_markdown
from pulsar_fleet.change.secrets_source import read_secrets
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, Rejected, Transient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.snapshot import collect
from pulsar_fleet.cluster.states import Selection
from pulsar_fleet.onboarding.compatibility import check_compatibility
from pulsar_fleet.records.artefacts import Artefacts, Reference
from pulsar_fleet.records.fingerprint_key import open_seal
from pulsar_fleet.records.ledger import Ledger
from pulsar_fleet.records.snapshots import load_snapshot, store_snapshot

_MOST_SHOWN = 20


async def take_snapshot(
    connection: ClusterConnection,
    selection: Selection,
    artefacts: Artefacts,
    run_id: str,
    *,
    name: str,
    must_exist: bool = False,
) -> JsonObject:
    """Read a cluster and store what it holds.

    :param name: of the snapshot in the run's folder, such as `source`; the same name again replaces it.
    :param must_exist: a selected tenant or namespace that is not there is `Missing`: say so for the source.
    :returns: `{"reference", "cluster", "counts", "complete", "calls", "versions"}`.
    """
    async with AdminClient(connection) as admin:
        snapshot = await collect(admin, selection, seal=open_seal(), must_exist=must_exist)
    return {
        "reference": store_snapshot(artefacts, run_id, snapshot, name=f"snapshot-{name}").to_json(),
        "cluster": snapshot.cluster,
        "counts": snapshot.counts(),
        "complete": snapshot.complete,
        "calls": snapshot.calls,
        "versions": sorted({broker.version for broker in snapshot.brokers}),
    }


def plan_onboarding(
    source: JsonObject,
    target: JsonObject,
    artefacts: Artefacts,
    run_id: str,
    *,
    subscriptions: bool = True,
) -> JsonObject:
    """Compare two snapshots (what `take_snapshot` returned) and store the plan and the findings; nothing is changed.

    :returns: `{"plan", "findings", "text"}` as references, `{"id", "target", "headline", "changes", "calls", "seconds",
        "hazards", "needs_permission", "left_alone", "blockers", "warnings"}` as values.
    :raises Refused: a snapshot is incomplete.
    """
    ours, theirs = (load_snapshot(artefacts, Reference.from_json(one["reference"])) for one in (source, target))
    plan = plan_changes(ours, theirs, subscriptions=subscriptions)
    findings = check_compatibility(ours, theirs)
    stopping = len(blockers(findings))
    return {
        "plan": _write_json(artefacts, run_id, "plan.json", plan.to_json()),
        "findings": _write_json(artefacts, run_id, "findings.json", [finding.to_json() for finding in findings]),
        "text": artefacts.write(run_id, "plan.md", plan_markdown(plan).encode()).to_json(),
        "id": plan.id,
        "source": plan.source,
        "target": plan.target,
        "headline": headline(plan),
        "changes": len(plan.changes),
        "calls": plan.calls,
        "seconds": round(plan.seconds, 1),
        "hazards": plan.hazards(),
        "needs_permission": [change.id for change in plan.needing_permission()][:_MOST_SHOWN],
        "left_alone": len(plan.left_alone),
        "blockers": stopping,
        "warnings": len(findings) - stopping,
    }


async def apply_onboarding(
    source: ClusterConnection,
    target: ClusterConnection,
    planned: JsonObject,
    artefacts: Artefacts,
    ledger: Ledger,
    run_id: str,
    *,
    allow: Collection[str] = frozenset(),
    progress: Progress | None = None,
) -> JsonObject:
    """Carry out the plan that `plan_onboarding` returned; what is in place already is left as it is.

    :param source: where the secrets come from that the plan names by fingerprint; nothing is changed there.
    :param allow: ids of the irreversible and destructive changes that the operator allows.
    :returns: `{"result"}` as a reference, `{"plan", "target", "complete", "counts", "problems", "calls"}` as values.
    :raises FleetError: changes failed, of the kind of the first; `Transient` if any may succeed on a second try.
    """
    plan = read_plan(artefacts, planned)
    seal = open_seal()
    async with AdminClient(source) as ours, AdminClient(target) as theirs:
        secrets = await read_secrets(plan, ours, seal)
        applied = await apply_plan(
            plan, theirs, ledger, run_id, seal=seal, allow=allow, secrets=secrets, progress=progress
        )
        calls = theirs.calls
    result = _write_json(artefacts, run_id, "applied.json", applied.to_json())
    _raise_failures(applied)
    return {
        "result": result,
        "plan": plan.id,
        "target": plan.target,
        "complete": applied.complete,
        "counts": applied.counts(),
        "problems": [f"{one.change.label}: {one.outcome}: {one.detail}" for one in applied.not_in_place()][
            :_MOST_SHOWN
        ],
        "calls": calls,
    }


async def verify_equal(
    source: JsonObject,
    target: ClusterConnection,
    selection: Selection,
    artefacts: Artefacts,
    run_id: str,
    *,
    subscriptions: bool = True,
) -> JsonObject:
    """Read the target afresh and compare it with the source's snapshot: equal when there is nothing left to plan.

    :returns: `{"snapshot", "remaining"}` as references, `{"equal", "compared", "differences", "left_alone",
        "headline"}` as values.
    """
    fresh = await take_snapshot(target, selection, artefacts, run_id, name="target-after")
    ours, theirs = (load_snapshot(artefacts, Reference.from_json(one["reference"])) for one in (source, fresh))
    plan = plan_changes(ours, theirs, subscriptions=subscriptions)
    return {
        "snapshot": fresh["reference"],
        "remaining": _write_json(artefacts, run_id, "remaining.json", plan.to_json()),
        "equal": plan.empty,
        "compared": {name: count for name, count in ours.counts().items() if name not in ("brokers", "notes")},
        "differences": len(plan.changes),
        "left_alone": len(plan.left_alone),
        "headline": headline(plan),
    }


def read_plan(artefacts: Artefacts, planned: JsonObject) -> Plan:
    """The plan that `plan_onboarding` stored."""
    return Plan.from_json(json.loads(artefacts.read(Reference.from_json(planned["plan"]))))


def read_findings(artefacts: Artefacts, planned: JsonObject) -> tuple[Finding, ...]:
    """The findings that `plan_onboarding` stored, blockers first."""
    return tuple(Finding.from_json(one) for one in json.loads(artefacts.read(Reference.from_json(planned["findings"]))))


def _write_json(artefacts: Artefacts, run_id: str, name: str, content: Any) -> JsonObject:
    return artefacts.write(run_id, name, json.dumps(content, indent=1, sort_keys=True).encode()).to_json()


def _raise_failures(applied: Applied) -> None:
    failed = [one for one in applied.results if one.outcome is Outcome.FAILED]
    if not failed:
        return
    kind: type[FleetError] = Transient if any(one.passing for one in failed) else Rejected
    raise kind(
        f"{len(failed)} of {len(applied.results)} changes failed on {applied.target}, the others are recorded; first "
        f"{failed[0].change.label}: {failed[0].detail} Correct it and run this step again."
        " What is in place is left as it is.",
        cluster=applied.target,
    )
