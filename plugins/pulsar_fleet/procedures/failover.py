"""The move of applications to another data centre as a procedure; see docs/fail_over_applications.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.procedures.procedure import Checked, Ending, NotYet, Procedure, Session, Step, Wait
from pulsar_fleet.settings.failover import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.ledger.run import Run


def validate(conf: JsonObject) -> None:
    """Refuse an invalid selection."""
    from pulsar_fleet.cluster.selection import Selection

    Selection.parse(conf["selection"])


async def require(session: Session) -> None:
    """Refuse one cluster twice."""
    from pulsar_fleet.cluster.connection import refuse_same_cluster
    from pulsar_fleet.replication.failover.measure import cluster_names

    names = await cluster_names(*_sides(session))
    refuse_same_cluster(session.conf["origin"], session.conf["target"], names)


async def forecast(session: Session) -> Checked:
    """Forecast what is redelivered and lost if the applications move; nothing is changed."""
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import forecast_body, headline, owner_steps

    announced = await steps.announce_failover(*_sides(session), _selection(session), session.run)
    rows, redelivered = announced.rows(), counted(announced.redelivered, "message")
    return Checked(
        headline=f"{headline(announced)}: {redelivered} redelivered, {announced.lost:,} lost.",
        changes=tuple(f"{row.topic} {row.subscription}" for row in rows),
        text=f"```\n{forecast_body(announced)}\n```\n\n{owner_steps(announced)}\n",
        warnings=sum(row.lost != 0 for row in rows),
    )


async def prepare_target(session: Session) -> str:
    """Create the replicated subscriptions that the target lacks, and forecast again; fail while consumers are left."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import forecast_body, not_ready, prepared_text

    prepared, ready = await steps.prepare_target(*_sides(session), _selection(session), session.run)
    if reason := not_ready(ready, accept_lost=session.conf["accept_lost"]):
        raise PreconditionFailed(reason)
    return f"{prepared_text(prepared)}\n{forecast_body(ready)}"


async def wait_arrived(session: Session) -> str | NotYet:
    """Wait until applications have acknowledged on the target what the forecast has.

    Those that had consumers when the failover was announced; all, if none had. It reads messages, and the cursors on
    the target, which loads the topics.
    """
    from pulsar_fleet.replication.failover import steps

    missing = await steps.arrival(*_sides(session), session.run)
    return NotYet(missing) if missing else "The applications have caught up."


def _missing_applications(run: Run) -> str:
    return (
        "When they have caught up, clear this task; what they got until now says: "
        f"{command_line('failover-outcome', run.id)}"
    )


async def read_outcome(session: Session) -> str:
    """Compare what each subscription got with the forecast."""
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import verdict

    return verdict(await steps.record_outcome(*_sides(session), session.run))


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """The outcome and the forecasts."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.replication.failover.records import read_records
    from pulsar_fleet.report.failover import failover_report

    report = failover_report(read_records(run), read_approval(run), failed)
    return Ending(report=report, text=report.markdown(), document={"report": report.markdown()})


def _sides(session: Session) -> tuple[ClusterConnection, ClusterConnection]:
    (origin,), (target,) = (session.connections[name] for name in ("origin", "target"))
    return origin, target


def _selection(session: Session) -> Selection:
    from pulsar_fleet.cluster.selection import Selection

    return Selection.parse(session.conf["selection"])


FAILOVER = Procedure(
    name="fail_over_applications",
    summary="Move applications with replicated subscriptions to another data centre.",
    clusters={"origin": "The cluster that applications leave.", "target": "The cluster that they connect to."},
    own_settings=SETTINGS,
    opening="read_request",
    checks="forecast",
    approves="approve_failover",
    validate=validate,
    require=require,
    check=forecast,
    work=(
        Step("prepare_target", prepare_target),
        Step("wait_arrived", wait_arrived, reads=True, wait=Wait("arrival_minutes", _missing_applications)),
        Step("read_outcome", read_outcome, reads=True),
    ),
    end=end,
)
