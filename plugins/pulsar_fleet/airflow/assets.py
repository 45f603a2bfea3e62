"""Airflow assets: copied, verified and moved namespaces, changed policies and replicators; to schedule DAGs on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import Asset, AssetAlias, get_current_context

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.snapshot.store.reader import StoredSnapshot
    from pulsar_fleet.verification.messages.verdict import Verification
    from pulsar_fleet.verification.snapshots.compare import EqualityResult


MOST_CHANGES = 100
"""An event has so many of them as texts, and the number of all."""

MOST_NAMESPACES = 1_000
"""A run that copied more has one event for all of them: an event is a row of Airflow's database."""

COPIED = AssetAlias("pulsar-copied")
"""All namespaces that onboarding copied, without messages, in the same way as the next two."""
VERIFIED = AssetAlias("pulsar-verified")
"""All namespaces that were verified equal. A DAG can be scheduled on this alias, or on the asset of one namespace."""
MIGRATED = AssetAlias("pulsar-migrated")
"""All namespaces that a migration or a failback moved, in the same way."""
POLICIES_CHANGED = AssetAlias("pulsar-policies-changed")
"""All clusters whose policies a run wrote. A DAG can be scheduled on this alias, or on the asset of one cluster."""
REPLICATION_CHANGED = AssetAlias("pulsar-replication-changed")
"""All clusters whose replicators changed their state. A DAG can be scheduled on it, or on the asset of one cluster."""


def policies_of(cluster: str) -> Asset:
    """The asset for the policies of a cluster, by the cluster's own name."""
    return Asset(name=f"pulsar-policies/{cluster}", uri=f"x-pulsar-policies://{cluster}", group="pulsar-policies")


def _emit_policies_changed(clusters: Iterable[str], run: Run) -> None:
    for cluster in clusters:
        get_current_context()["outlet_events"][POLICIES_CHANGED].add(policies_of(cluster), extra={"run": run.id})


def announce_policies_changed(run: Run, _: JsonObject) -> None:
    """Emit an event for each cluster that a reconciliation has written."""
    from pulsar_fleet.procedures.reconciliation import changed_by

    if repaired := changed_by(run):
        _emit_policies_changed(repaired.changed, run)


def announce_synchronised(run: Run, _: JsonObject) -> None:
    """Emit an event for each cluster on which metadata events were applied."""
    from pulsar_fleet.procedures.metadata import written_by

    _emit_policies_changed(written_by(run), run)


def replication_of(cluster: str) -> Asset:
    """The asset for the replicators that send from a cluster, by the cluster's own name."""
    return Asset(
        name=f"pulsar-replication/{cluster}", uri=f"x-pulsar-replication://{cluster}", group="pulsar-replication"
    )


def announce_replication_changed(run: Run, _: JsonObject) -> None:
    """Emit an event for each source whose replicators have changed their state, with the changes as texts."""
    from pulsar_fleet.replication.doctor.changes import recorded_changes

    texts: dict[str, list[str]] = {}
    for change in recorded_changes(run) or ():
        texts.setdefault(change.source, []).append(change.text())
    for cluster, lines in texts.items():
        extra: JsonObject = {"run": run.id, "changes": lines[:MOST_CHANGES], "number": len(lines)}
        get_current_context()["outlet_events"][REPLICATION_CHANGED].add(replication_of(cluster), extra=extra)


def announce_copied(run: Run, _: JsonObject) -> None:
    """Emit an event for each namespace that an onboarding has copied and found equal."""
    from pulsar_fleet.procedures.onboarding import source_of, target_of, verified
    from pulsar_fleet.snapshot.store.reader import StoredSnapshot

    if result := verified(run):
        emit_copied(run, StoredSnapshot.open(run.artefacts, source_of(run).reference), target_of(run), result)


def emit_copied(run: Run, source: StoredSnapshot, target: str, result: EqualityResult) -> None:
    """Emit an asset event for each namespace of the source's snapshot, with its counts and the proof.

    The proof is the snapshot of the target that was found equal. The running task must have `COPIED` among its outlets.
    """
    rows = sum(result.compared.values())
    document: JsonObject = result.snapshot.to_json()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    proof: JsonObject = {"verdict": "equal", "number": rows, "at": at, "document": document}
    proofs: JsonObject = {"snapshot": {**proof, "unread": list(result.unread)}}
    tables = ("topics", "schemas", "subscriptions")
    names, sides = source.namespaces(), (source.head.cluster, target)
    if len(names) > MOST_NAMESPACES:
        totals: JsonObject = {"namespaces": len(names), **{table: source.counts.get(table, 0) for table in tables}}
        _add(COPIED, run, sides, {**totals, "proofs": proofs})
        return
    counts = {table: source.rows_by_namespace(table) for table in tables}
    for name in names:
        own: JsonObject = {table: by_namespace.get(name, 0) for table, by_namespace in counts.items()}
        _add(COPIED, run, (*sides, name), {"namespace": name, **own, "proofs": proofs})


def emit_verified(run: Run, compared: Verification) -> None:
    """Emit an asset event for each namespace that was verified equal, with the counts and the proofs.

    The running task must have `VERIFIED` among its outlets.
    """
    proofs = _proofs(run)
    for row in compared.namespaces:
        counts: JsonObject = {"partitions": len(row.names), "messages": row.proven, "restriction": compared.restriction}
        _emit(VERIFIED, run, (compared.source, compared.target, row.namespace), counts, proofs)


def announce_verified(run: Run, batch: JsonObject) -> None:
    """`emit_verified` for a batch of a verification."""
    from pulsar_fleet.procedures.verification import records_of, stored_verification

    if compared := stored_verification(run, batch):
        emit_verified(records_of(run, batch)[0], compared)


def announce_migrated(run: Run, _: JsonObject) -> None:
    """Emit an asset event for each namespace that was moved, with the counts and the proofs."""
    from pulsar_fleet.migration.waves.steps import recorded_moves

    proofs, moves = _proofs(run), recorded_moves(run)
    for move in moves.moves:
        name = str(move.namespace)
        messages = proofs.get(name, {}).get("messages", {}).get("number", 0)
        counts: JsonObject = {"partitions": len(move.partitions), "messages": messages, "strategy": move.strategy.value}
        _emit(MIGRATED, run, (moves.blue, moves.green, name), counts, proofs)


def _emit(
    alias: AssetAlias, run: Run, names: tuple[str, str, str], counts: JsonObject, proofs: dict[str, JsonObject]
) -> None:
    namespace = names[-1]
    _add(alias, run, names, {"namespace": namespace, **counts, "proofs": proofs.get(namespace, {})})


def _add(alias: AssetAlias, run: Run, names: Sequence[str], content: JsonObject) -> None:
    path = "/".join(names)
    asset = Asset(name=f"{alias.name}/{path}", uri=f"x-{alias.name}://{path}", group=alias.name)
    extra: JsonObject = {"run": run.id, "source": names[0], "target": names[1], **content}
    get_current_context()["outlet_events"][alias].add(asset, extra=extra)


def _proofs(run: Run) -> dict[str, JsonObject]:
    """Namespace → kind → what the ledger has: `messages`; `copy`, before a cut-over; `subscriptions`."""
    from pulsar_fleet.ledger.rows import utc

    proofs: dict[str, JsonObject] = {}
    for record in run.ledger.verdicts(run.id):
        kind, _, name = record.scope.rpartition(" of ")
        proofs.setdefault(name, {})[kind or "messages"] = {
            "verdict": record.verdict,
            "number": record.messages,
            "at": utc(record.at).isoformat(),
            "document": record.artefact,
        }
    return proofs
