"""The steps of onboarding a cluster: snapshot, plan, apply; each can be repeated at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import measure_clock_skew
from pulsar_fleet.cluster.admin.partial_reads import unread_text
from pulsar_fleet.cluster.admin.permissions import Right, find_rights, rights_markdown
from pulsar_fleet.cluster.admin.probes import addresses, unreachable
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotAllowed, NotFound, Unavailable
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.artefacts import OWN_FOLDER, Artefacts
from pulsar_fleet.ledger.cluster_notes import NoteKind, write_note
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.onboarding.results import AppliedChanges, TakenSnapshot
from pulsar_fleet.planning.apply.apply import Progress, apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import Outcome, PlanResult
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import headline, plan_markdown
from pulsar_fleet.preflight.bookies import read_bookies
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.context import Measurements, Probes
from pulsar_fleet.preflight.findings import Planned
from pulsar_fleet.preflight.schema_probe import SchemaAnswer, probe_schemas
from pulsar_fleet.preflight.waivers import Waiver, accept
from pulsar_fleet.snapshot.cluster_reader import list_namespaces
from pulsar_fleet.snapshot.collect import collect_into
from pulsar_fleet.snapshot.model import SCALABLE_TOPIC, SYSTEM_TOPIC, Snapshot
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, load_snapshot
from pulsar_fleet.snapshot.store.writer import SnapshotWriter


async def measure(admin: AdminClient, snapshot: Snapshot, rights: tuple[Right, ...]) -> Measurements:
    """The clock skew, how many tenants, namespaces and bookies exist, which addresses of peers are reachable from here.

    :param rights: the answer of `find_rights`, which is called before anything is read.
    """
    try:
        tenants = len(await admin.tenants())
    except NotAllowed:
        tenants = None
    names = [state.name for state in snapshot.tenants]
    namespaces = await list_namespaces(admin, names, unknown=(NotFound, NotAllowed))
    peers = [url for state in snapshot.clusters if state.name != snapshot.cluster for url in addresses(state.data)]
    return Measurements(
        clock=await measure_clock_skew(admin),
        rights=rights,
        tenants=tenants,
        namespaces={name: len(listed) for name, listed in namespaces.items() if listed is not None},
        unreachable=await unreachable(peers),
        bookies=await read_bookies(admin),
    )


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
    subscriptions: bool = True,
) -> TakenSnapshot:
    """Read a cluster, store its snapshot, and measure what the checks need besides: rights, clock, counts, peers.

    :param name: of the snapshot in the run's folder, such as `source`; a second snapshot of this name replaces it.
    :param must_exist: raise `NotFound` for a selected tenant or namespace that does not exist; set it for the source.
    :param subscriptions: also read the properties of subscriptions, which loads the topics that have one.
    :raises PermissionDenied: bad credentials, missing rights, or brokers that cannot log in: the message says which.
    """
    with SnapshotWriter(artefacts, run_id, name=f"snapshot-{name}") as writer:
        async with AdminClient(connection) as admin:
            rights = await find_rights(admin, selection)
            head = await collect_into(
                writer,
                admin,
                selection,
                redactor=open_redactor(),
                must_exist=must_exist,
                load_topics=subscriptions,
            )
            reference = writer.finish(head)
            stored = StoredSnapshot.open(artefacts, reference)
            snapshot = stored.load_without_namespaces()
            measured = await measure(admin, snapshot, rights)
    _note_snapshot(artefacts, run_id, head.cluster, writer)
    return TakenSnapshot(
        reference=reference,
        measured=artefacts.write_json(run_id, f"measured-{name}.json", measured.to_json()),
        cluster=head.cluster,
        counts=writer.counts,
        complete=writer.complete,
        calls=head.calls,
        versions=tuple(writer.versions),
        rights=rights_markdown(head.cluster, rights),
        unread=unread_text(head.cluster, snapshot.unreadable) if snapshot.unreadable else "",
        not_copied=_not_copied(stored),
    )


def _not_copied(stored: StoredSnapshot) -> str:
    names = {kind: stored.inventory(kind) for kind in (SCALABLE_TOPIC, SYSTEM_TOPIC)}
    return "; ".join(f"{counted(len(topics), kind)}: {listed(topics)}" for kind, topics in names.items() if topics)


def _note_snapshot(artefacts: Artefacts, run_id: str, cluster: str, writer: SnapshotWriter) -> None:
    if run_id == OWN_FOLDER:
        # `--out` names a folder that is no store of a fleet.
        return
    figures = {"versions": writer.versions, "brokers": len(writer.brokers), "complete": writer.complete}
    write_note(artefacts, cluster, NoteKind.SNAPSHOT, run_id, figures)


async def probe_target_schemas(
    connection: ClusterConnection, source: TakenSnapshot, target: TakenSnapshot, artefacts: Artefacts
) -> tuple[SchemaAnswer, ...]:
    """Ask the target's broker about each schema that differs between two snapshots; nothing is changed.

    Our own rules cannot compare every type of schema, and a broker may run checkers of its own.
    """
    async with AdminClient(connection) as admin:
        return await probe_schemas(admin, *_load_snapshots(artefacts, source, target))


def plan_onboarding(
    source: TakenSnapshot,
    target: TakenSnapshot,
    artefacts: Artefacts,
    *,
    subscriptions: bool = True,
    lag_seconds: int = 0,
    answers: tuple[SchemaAnswer, ...] = (),
    waivers: Sequence[Waiver] = (),
) -> Planned[Plan]:
    """Compare two snapshots, and plan what the target lacks; nothing is changed.

    :param lag_seconds: how long messages may wait on the source before they are copied; 0 if none are copied.
    :param answers: the result of `probe_target_schemas`.
    :param waivers: of blockers whose risk a person accepts; each becomes a warning that names the person.
    :raises PreconditionFailed: the snapshots cannot be compared, see `plan_changes`; a blocker that is never waived.
    :raises InvalidRequest: a waiver that matches no blocker.
    """
    ours, theirs = _load_snapshots(artefacts, source, target)
    plan = plan_changes(ours, theirs, subscriptions=subscriptions)
    measured_source, measured_target = (
        Measurements.from_json(artefacts.read_json(result.measured)) for result in (source, target)
    )
    probes = Probes(source=measured_source, target=measured_target, schemas=answers, lag_seconds=lag_seconds)
    findings = accept(check_compatibility(ours, theirs, probes), waivers)
    return Planned(plan=plan, findings=findings, headline=headline(plan), text=plan_markdown(plan))


def batches_of(plan: Plan) -> range:
    """The numbers that `apply_onboarding` takes, at least one."""
    return range(max(1, ceil(len(plan.namespaces()) / NAMESPACES_PER_BATCH)))


async def apply_onboarding(
    source: ClusterConnection,
    target: ClusterConnection,
    plan: Plan,
    artefacts: Artefacts,
    ledger: Ledger,
    run_id: str,
    *,
    batch: int | None = None,
    allow: Collection[str] = frozenset(),
    progress: Progress | None = None,
) -> AppliedChanges:
    """Apply a plan; changes that are already in place are skipped.

    :param batch: one of `batches_of`, with the changes of the cluster as a whole; None for the whole plan.
    :param source: cluster that has the secrets which the plan names by fingerprint; it is only read.
    :param allow: ids of the irreversible and destructive changes that the operator allows.
    :raises FleetError: changes failed: `Unavailable` if a second run may succeed, else `InvalidRequest`.
    """
    part = _batch(plan, batch)
    redactor = open_redactor()
    async with AdminClient(source) as source_admin, AdminClient(target) as target_admin:
        secrets = await read_secrets(part, source_admin, redactor)
        applied = await apply_plan(
            part, target_admin, ledger, run_id, redactor=redactor, allow=allow, secrets=secrets, progress=progress
        )
        calls = target_admin.calls
    summary = AppliedChanges(
        plan=plan.id,
        target=plan.target,
        complete=applied.complete,
        counts=applied.counts(),
        problems=tuple(
            f"{result.change.label}: {result.outcome}: {result.detail}"
            for result in applied.not_in_place()[:_MOST_SHOWN]
        ),
        calls=calls,
    )
    document = {**applied.to_json(), "summary": summary.to_json()}
    artefacts.write_json(run_id, f"applied-{batch or 0}.json", document)
    _raise_failures(applied)
    return summary


def read_applied(artefacts: Artefacts, run_id: str, plan: Plan) -> AppliedChanges | None:
    """The summary of `apply_onboarding` over all batches of a run; None if no batch ran."""
    references = [artefacts.find(run_id, f"applied-{batch}.json") for batch in batches_of(plan)]
    documents = [artefacts.read_json(reference) for reference in references if reference]
    summaries = [AppliedChanges.from_json(document["summary"]) for document in documents if document]
    if not summaries:
        return None
    counts: Counter[str] = Counter()
    for summary in summaries:
        counts.update(summary.counts)
    return AppliedChanges(
        plan=plan.id,
        target=plan.target,
        complete=len(summaries) == len(references) and all(summary.complete for summary in summaries),
        counts=counts,
        problems=tuple(problem for summary in summaries for problem in summary.problems)[:_MOST_SHOWN],
        calls=sum(summary.calls for summary in summaries),
    )


def forget_applied(artefacts: Artefacts, run_id: str, plan: Plan) -> None:
    """Of a run that plans again: what an earlier plan has led to is no result of this one."""
    for batch in batches_of(plan):
        if artefacts.find(run_id, f"applied-{batch}.json"):
            artefacts.write_json(run_id, f"applied-{batch}.json", None)


def _batch(plan: Plan, batch: int | None) -> Plan:
    if batch is None:
        return plan
    names = plan.namespaces()[batch * NAMESPACES_PER_BATCH : (batch + 1) * NAMESPACES_PER_BATCH]
    return replace(plan, changes=(*plan.shared().changes, *plan.batch(names).changes))


def _load_snapshots(artefacts: Artefacts, source: TakenSnapshot, target: TakenSnapshot) -> tuple[Snapshot, Snapshot]:
    ours, theirs = (load_snapshot(artefacts, result.reference) for result in (source, target))
    return ours, theirs


def _raise_failures(applied: PlanResult) -> None:
    failed = [result for result in applied.results if result.outcome is Outcome.FAILED]
    if not failed:
        return
    kind: type[FleetError] = Unavailable if any(result.passing for result in failed) else InvalidRequest
    raise kind(
        f"{len(failed)} of {len(applied.results)} changes failed on {applied.target}, the others are recorded; first "
        f"{failed[0].change.label}: {failed[0].detail} Correct the cause and run this step again: changes that are in "
        "place are skipped.",
        cluster=applied.target,
    )
