"""The steps of onboarding a cluster: snapshot, plan, apply, verify; each can be run again at any point."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from math import ceil
from typing import Any

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.permissions import find_rights, rights_markdown
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.onboarding.measurements import measure, measured_from_json, measured_to_json
from pulsar_fleet.planning.apply.apply import Progress, apply_plan
from pulsar_fleet.planning.apply.outcome import Applied, Outcome
from pulsar_fleet.planning.apply.secrets import read_secrets
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import headline, plan_markdown
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.context import Measured, Probes
from pulsar_fleet.preflight.findings import Finding, blockers, refusal_text
from pulsar_fleet.preflight.schema_probe import SchemaAnswer, ask_about_schemas
from pulsar_fleet.snapshot.collect import collect_into
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, load_snapshot
from pulsar_fleet.snapshot.store.writer import SnapshotWriter

NAMESPACES_PER_BATCH = 100
_MOST_SHOWN = 20


async def take_snapshot(
    connection: ClusterConnection,
    selection: Selection,
    artefacts: Artefacts,
    run_id: str,
    *,
    name: str,
    must_exist: bool = False,
    measured: bool = True,
) -> JsonObject:
    """Read a cluster and store what it holds.

    :param name: of the snapshot in the run's folder, such as `source`; the same name again replaces it.
    :param must_exist: a selected tenant or namespace that is not there is `NotFound`: say so for the source.
    :param measured: measure what the checks need beside it: our rights first of all, clock, counts, reachable peers.
    :returns: `{"reference", "cluster", "counts", "complete", "calls", "versions", "measured", "rights"}`; `rights`
        is a table for people, empty where our role may do everything.
    :raises Denied: bad credentials, missing rights, or brokers that cannot log in: the message says which.
    """
    with SnapshotWriter(artefacts, run_id, name=f"snapshot-{name}") as writer:
        async with AdminClient(connection) as admin:
            rights = await find_rights(admin, selection) if measured else ()
            head = await collect_into(writer, admin, selection, seal=open_seal(), must_exist=must_exist)
            reference = writer.finish(head)
            found = Measured()
            if measured:
                found = await measure(admin, StoredSnapshot.open(artefacts, reference).load_outside(), rights)
    return {
        "measured": _write_json(artefacts, run_id, f"measured-{name}.json", measured_to_json(found)),
        "reference": reference.to_json(),
        "cluster": head.cluster,
        "counts": writer.counts,
        "complete": writer.complete,
        "calls": head.calls,
        "versions": writer.versions,
        "rights": rights_markdown(head.cluster, rights),
    }


async def ask_target(
    connection: ClusterConnection, source: JsonObject, target: JsonObject, artefacts: Artefacts
) -> tuple[SchemaAnswer, ...]:
    """Ask the target's broker about each schema that differs between two snapshots; nothing is changed by it.

    The answers complete what our own rules decide: types that only a broker can compare, and its own checkers.
    """
    ours, theirs = (load_snapshot(artefacts, Reference.from_json(one["reference"])) for one in (source, target))
    async with AdminClient(connection) as admin:
        return await ask_about_schemas(admin, ours, theirs)


def plan_onboarding(
    source: JsonObject,
    target: JsonObject,
    artefacts: Artefacts,
    run_id: str,
    *,
    subscriptions: bool = True,
    lag_seconds: int = 0,
    answers: tuple[SchemaAnswer, ...] = (),
) -> JsonObject:
    """Compare two snapshots (what `take_snapshot` returned) and store the plan and the findings; nothing is changed.

    :param lag_seconds: for how long messages may wait on the source before they are carried, if they will be.
    :param answers: what the target's broker says about schemas that differ (`ask_target`).
    :returns: `{"plan", "findings", "text"}` as references, `{"id", "target", "headline", "changes", "calls", "seconds",
        "hazards", "needs_permission", "left_alone", "blockers", "warnings", "batches"}` as values; `batches` numbers
        the parts that `apply_onboarding` takes, at least one.
    :raises Refused: a snapshot is incomplete.
    """
    ours, theirs = (load_snapshot(artefacts, Reference.from_json(one["reference"])) for one in (source, target))
    plan = plan_changes(ours, theirs, subscriptions=subscriptions)
    findings = check_compatibility(
        ours, theirs, read_probes(source, target, artefacts, lag_seconds=lag_seconds, answers=answers)
    )
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
        "batches": list(range(max(1, ceil(len(plan.namespaces()) / NAMESPACES_PER_BATCH)))),
    }


async def apply_onboarding(
    source: ClusterConnection,
    target: ClusterConnection,
    planned: JsonObject,
    artefacts: Artefacts,
    ledger: Ledger,
    run_id: str,
    *,
    batch: int | None = None,
    allow: Collection[str] = frozenset(),
    progress: Progress | None = None,
) -> JsonObject:
    """Carry out the plan that `plan_onboarding` returned; what is in place already is left as it is.

    :param batch: one of its `batches`, with what belongs to the cluster as a whole; None for all of it.
    :param source: where the secrets come from that the plan names by fingerprint; nothing is changed there.
    :param allow: ids of the irreversible and destructive changes that the operator allows.
    :returns: `{"result"}` as a reference, `{"plan", "target", "complete", "counts", "problems", "calls"}` as values.
    :raises FleetError: changes failed, of the kind of the first; `Unavailable` if any may succeed on a second try.
    """
    whole = read_plan(artefacts, planned)
    plan = _part(whole, batch)
    seal = open_seal()
    async with AdminClient(source) as ours, AdminClient(target) as theirs:
        secrets = await read_secrets(plan, ours, seal)
        applied = await apply_plan(
            plan, theirs, ledger, run_id, seal=seal, allow=allow, secrets=secrets, progress=progress
        )
        calls = theirs.calls
    summary = {
        "plan": whole.id,
        "target": plan.target,
        "complete": applied.complete,
        "counts": applied.counts(),
        "problems": [f"{one.change.label}: {one.outcome}: {one.detail}" for one in applied.not_in_place()][
            :_MOST_SHOWN
        ],
        "calls": calls,
    }
    result = _write_json(artefacts, run_id, f"applied-{batch or 0}.json", {**applied.to_json(), "summary": summary})
    _raise_failures(applied)
    return {"result": result, **summary}


def read_applied(artefacts: Artefacts, run_id: str, planned: JsonObject) -> JsonObject | None:
    """What `apply_onboarding` did in all batches of a run, added up; None if it did nothing."""
    found = [artefacts.find(run_id, f"applied-{batch}.json") for batch in planned["batches"]]
    parts = [artefacts.read_json(one)["summary"] for one in found if one is not None]
    if not parts:
        return None
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part["counts"])
    return {
        "complete": len(parts) == len(found) and all(part["complete"] for part in parts),
        "counts": dict(counts),
        "problems": [problem for part in parts for problem in part["problems"]][:_MOST_SHOWN],
        "calls": sum(part["calls"] for part in parts),
    }


def _part(plan: Plan, batch: int | None) -> Plan:
    if batch is None:
        return plan
    names = plan.namespaces()[batch * NAMESPACES_PER_BATCH : (batch + 1) * NAMESPACES_PER_BATCH]
    return replace(plan, changes=(*plan.shared().changes, *plan.batch(names).changes))


def read_probes(
    source: JsonObject,
    target: JsonObject,
    artefacts: Artefacts,
    *,
    lag_seconds: int = 0,
    answers: tuple[SchemaAnswer, ...] = (),
) -> Probes:
    """What `take_snapshot` measured on both sides."""
    ours, theirs = (
        measured_from_json(json.loads(artefacts.read(Reference.from_json(one["measured"])))) for one in (source, target)
    )
    return Probes(source=ours, target=theirs, schemas=answers, lag_seconds=lag_seconds)


def read_plan(artefacts: Artefacts, planned: JsonObject) -> Plan:
    """The plan that `plan_onboarding` stored."""
    return Plan.from_json(json.loads(artefacts.read(Reference.from_json(planned["plan"]))))


def read_findings(artefacts: Artefacts, planned: JsonObject) -> tuple[Finding, ...]:
    """The findings that `plan_onboarding` stored, blockers first."""
    return tuple(Finding.from_json(one) for one in json.loads(artefacts.read(Reference.from_json(planned["findings"]))))


def stopping_text(artefacts: Artefacts, planned: JsonObject) -> str:
    """What stops the run, every blocker with its remedy."""
    return refusal_text(read_findings(artefacts, planned), "Nothing has been changed.")


def _write_json(artefacts: Artefacts, run_id: str, name: str, content: Any) -> JsonObject:
    return artefacts.write(run_id, name, json.dumps(content, indent=1, sort_keys=True).encode()).to_json()


def _raise_failures(applied: Applied) -> None:
    failed = [one for one in applied.results if one.outcome is Outcome.FAILED]
    if not failed:
        return
    kind: type[FleetError] = Unavailable if any(one.passing for one in failed) else InvalidRequest
    raise kind(
        f"{len(failed)} of {len(applied.results)} changes failed on {applied.target}, the others are recorded; first "
        f"{failed[0].change.label}: {failed[0].detail} Correct it and run this step again."
        " What is in place is left as it is.",
        cluster=applied.target,
    )
