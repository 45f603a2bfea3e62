"""The examination of replicators on schedule as a procedure; see docs/watch_replication.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import Ending, Procedure, Session, Skipped, Step
from pulsar_fleet.settings.replication import WATCH_REPLICATION

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.replication.doctor.request import Request

_EXAMINE = "examine_replicators"


def validate(conf: JsonObject) -> None:
    """Refuse invalid remedies and an invalid selection."""
    from pulsar_fleet.replication.doctor.request import Request

    Request.of(conf)


def _request(session: Session) -> Request:
    from pulsar_fleet.clients.store import returnable_groups
    from pulsar_fleet.replication.doctor.request import Request

    return replace(Request.of(session.conf), moved=returnable_groups(session.run.ledger))


async def examine_replicators(session: Session) -> str:
    """Diagnose every replicator, and emit an asset event for each cluster whose replicators changed their state."""
    from pulsar_fleet.replication.doctor.changes import record_states, store_examination
    from pulsar_fleet.replication.doctor.steps import examine
    from pulsar_fleet.replication.doctor.text import headline

    run, conf = session.run, session.conf
    examination = await examine(session.connections["clusters"], _request(session))
    store_examination(run, examination)
    changes = record_states(run, examination, conf["selection"])
    return "\n".join([headline(examination), *(change.text() for change in changes)])


async def send_remedies(session: Session) -> str | Skipped:
    """Send the calls of the remedies that the configuration names, and examine again; skipped without one."""
    from pulsar_fleet.replication.doctor.changes import last_examination
    from pulsar_fleet.replication.doctor.remedies import chosen_calls
    from pulsar_fleet.replication.doctor.steps import heal

    request, examined = _request(session), last_examination(session.run)
    assert examined is not None, "the step before has stored it"
    if not chosen_calls(examined[0], request.remedies):
        return Skipped("No diagnosis has a remedy that the configuration names.")
    result = await heal(session.connections["clusters"], examined[0], request, session.run)
    return result.text()


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """States and causes; the run fails if a replicator does not work and `fail_on_fault` is set."""
    from pulsar_fleet.procedures.runner import has_ended
    from pulsar_fleet.replication.doctor.changes import last_examination
    from pulsar_fleet.replication.doctor.text import examination_text
    from pulsar_fleet.report.failure import failed_report
    from pulsar_fleet.report.replication import examination_report

    # A run that is tried again may have an examination of its first try only.
    examined = last_examination(run) if has_ended(run, _EXAMINE) else None
    if examined is None:
        report = failed_report(failed, "Nothing was examined.")
        return Ending(report=report, text=report.markdown(), document={"failed": list(failed)})
    examination, changed = examined
    text = examination_text(examination, changed)
    return Ending(
        report=examination_report(examination, changed),
        text=text,
        document=examination.to_json(),
        problem=text if examination.has_fault and conf["fail_on_fault"] else "",
        metrics=examination.counts,
    )


REPLICATION_WATCH = Procedure(
    name="watch_replication",
    summary="Diagnose every replicator between clusters, and heal what can lose nothing.",
    clusters={"clusters": "At least two clusters: admin URLs or Airflow connection ids."},
    own_settings=WATCH_REPLICATION.declared,
    opening="read_request",
    validate=validate,
    idle=WATCH_REPLICATION.idle_without_clusters("No cluster is watched"),
    changes=lambda conf: bool(conf["remedies"]),
    metrics="replication",
    work=(Step(_EXAMINE, examine_replicators, reads=True, shows=True), Step("send_remedies", send_remedies)),
    end=end,
)
