"""Metadata over an event topic as a procedure, for its DAG; see docs/sync_metadata.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import Done, Ending, Procedure, Session, Step
from pulsar_fleet.settings.metadata import SYNC_METADATA

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.policy_sync.reconcile.results import DriftSummary

_SYNC, _FOUND = "sync_changes", "differences.json"
_SHARED = ("clusters_behind", "behind_seconds", "seconds")
"""The metrics of a synchronisation that a comparison has too, by the beginning of their names."""


def validate(conf: JsonObject) -> None:
    """Refuse invalid settings, such as a non-persistent event topic, and the comparison of one cluster."""
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.policy_sync.events.request import Request

    Request.of(conf)
    if not _writes(conf) and len(conf["clusters"]) == 1:
        raise InvalidRequest(
            f"Only {conf['clusters'][0]!r} is given: the mode 'report' compares at least two clusters. The mode 'sync' "
            "carries the changes of one."
        )


async def sync_changes(session: Session) -> Done | str:
    """Publish the changes of each cluster and apply those of the others; only compare, unless the mode is `sync`."""
    from pulsar_fleet.policy_sync.events import steps
    from pulsar_fleet.policy_sync.events.request import Request
    from pulsar_fleet.report.metadata import headline

    run, clusters = session.run, session.connections["clusters"]
    # What an earlier attempt found is no result of this one.
    run.artefacts.write_json(run.id, _FOUND, None)
    if not _writes(session.conf):
        return await _compare(session)
    result = await steps.synchronise(clusters, Request.of(session.conf), run)
    return Done(headline(result), result)


async def _compare(session: Session) -> str:
    """What differs between the clusters, as a reconciliation finds it; nothing is written or recorded."""
    from pulsar_fleet.cluster.names import TopicName
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.policy_sync.reconcile.request import Request
    from pulsar_fleet.settings.reconciliation import RECONCILE

    shared = {name: value for name, value in session.conf.items() if name in RECONCILE.declared}
    others = {name: setting.default for name, setting in RECONCILE.declared.items()}
    request = Request.of({**others, **shared, "mode": "dry_run", "allow_changes": []})
    request = replace(request, left_out=TopicName.parse(session.conf["event_topic"]).namespace)
    drift = await steps.find_drift(session.connections["clusters"], request, session.run)
    session.run.artefacts.write_json(session.run.id, _FOUND, drift.to_json())
    return _only_compared(drift)


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Events by cluster; fails if an event could not be applied or a cluster is behind. Or what differs."""
    from pulsar_fleet.policy_sync.events.results import SyncSummary
    from pulsar_fleet.policy_sync.reconcile.results import DriftSummary
    from pulsar_fleet.procedures.runner import result_of
    from pulsar_fleet.report.failure import failed_report
    from pulsar_fleet.report.metadata import failure, metadata_report, metrics

    if not failed and not _writes(conf) and (found := run.stored(_FOUND)):
        return _compared(run, DriftSummary.from_json(found))
    # What an earlier attempt has found is no result of one that failed.
    result = None if failed else result_of(run, _SYNC, SyncSummary)
    if result is None:
        carries = "The next run synchronises the other changes."
        report = failed_report(failed, carries if _writes(conf) else "Nothing was compared, nothing has been changed.")
        return Ending(report=report, text=report.markdown(), document={"failed": list(failed)})
    report, reason = metadata_report(result), failure(result)
    return Ending(
        report=report,
        text=report.markdown(),
        document=result.to_json(),
        # A run without events needs no page.
        stored=bool(reason) or any(tally.published or tally.applied for tally in result.clusters.values()),
        problem=reason,
        metrics=metrics(result),
    )


def _compared(run: Run, drift: DriftSummary) -> Ending:
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.report.reconciliation import failure, metrics, reconciliation_report

    report = reconciliation_report(drift, steps.read_plans(drift, run), None)
    to_do = [f"make {name} reachable; a later run compares it." for name in drift.behind]
    if drift.drifting or drift.conflicts or drift.deletions:
        to_do.append("settle what is listed below by a run of reconcile_policies, or accept it.")
    to_do.append(
        f"set `mode` to `sync`, in {SYNC_METADATA.variable} or in the form, where this DAG is to carry changes: in the "
        "mode `report` it carries none."
    )
    report = replace(report, headline=_only_compared(drift), to_do=tuple(to_do))
    return Ending(
        report=report,
        text=report.markdown(),
        document=drift.to_json(),
        stored=bool(drift.drift or drift.behind),
        problem=failure(drift, None, fail_on_drift=False),
        metrics={name: value for name, value in metrics(drift, None).items() if name.startswith(_SHARED)},
    )


def _only_compared(drift: DriftSummary) -> str:
    return f"Only compared, nothing was carried: {drift.headline}"


def written_by(run: Run) -> Sequence[str]:
    """The clusters that a run has written."""
    from pulsar_fleet.policy_sync.events.results import SyncSummary
    from pulsar_fleet.procedures.runner import result_of

    result = result_of(run, _SYNC, SyncSummary)
    return result.changed if result else ()


def _writes(conf: JsonObject) -> bool:
    return bool(conf["mode"] == "sync")


METADATA = Procedure(
    name="sync_metadata",
    summary="Publish the changes of each cluster and apply those of the others, over an event topic.",
    clusters={"clusters": "One cluster of each metadata store."},
    own_settings=SYNC_METADATA.declared,
    opening="read_request",
    validate=validate,
    idle=SYNC_METADATA.idle_without_clusters("No cluster is synchronised"),
    changes=_writes,
    metrics="metadata",
    work=(Step(_SYNC, sync_changes),),
    end=end,
)
