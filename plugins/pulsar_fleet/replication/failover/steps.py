"""The steps of a failover: forecast, prepare the other cluster, and the outcome; each records its result in a run."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.failover.forecast import Agreement, FailoverOutcome, Forecast
from pulsar_fleet.replication.failover.measure import forecast_target_alone, forecast_with_both
from pulsar_fleet.replication.failover.outcome_reader import read_outcome
from pulsar_fleet.replication.failover.prepare import Prepared, create_subscriptions
from pulsar_fleet.replication.failover.records import ANNOUNCED, FORECAST, OUTCOME, PREPARED, stored_forecast
from pulsar_fleet.replication.failover.report import waiting_text

REACH_SECONDS = 3.0
"""How long a cluster that applications leave may not answer before the forecast is made without it."""


async def forecast_failover(
    origin: ClusterConnection, target: ClusterConnection, selection: Selection, run: Run
) -> Forecast:
    """Forecast what is redelivered to each durable subscription on `target`, and what is lost, and record it.

    Changes nothing, and loads the topics. Six calls for a topic or partition, and its entries from the first one that
    a subscription has not read. Where `origin` does not answer, the forecast has what `target` alone can say. A second
    call replaces the recorded forecast.

    :param selection: without named namespaces, those that replicate to `target`.
    :raises Unavailable: `target` does not answer.
    :raises NotFound: a named tenant or namespace does not exist.
    :raises PreconditionFailed: a migration ended all selected namespaces on one of them.
    """
    try:
        async with AdminClient(origin, retry_seconds=REACH_SECONDS) as probe:
            await probe.cluster_name()
    except Unavailable as error:
        forecast = await forecast_target_alone(origin.cluster_name or origin.name, target, selection, str(error))
    else:
        forecast = await forecast_with_both(origin, target, selection)
    run.artefacts.write(run.id, FORECAST, forecast.to_bytes())
    return forecast


async def announce_failover(
    origin: ClusterConnection, target: ClusterConnection, selection: Selection, run: Run
) -> Forecast:
    """Forecast a failover that waits for approval. Changes nothing; see `forecast_failover`.

    The forecast is recorded under another name too: later ones do not replace which subscriptions had consumers.
    """
    forecast = await forecast_failover(origin, target, selection, run)
    run.artefacts.write(run.id, ANNOUNCED, forecast.to_bytes())
    return forecast


async def arrival(origin: ClusterConnection, target: ClusterConnection, run: Run) -> str:
    """Read the outcome and record it; which applications have not caught up on `target` yet, empty if all have.

    Those that had consumers when the failover was announced; all, if none had. Calls: see `record_outcome`.
    """
    outcome = await record_outcome(origin, target, run)
    announced = stored_forecast(run, ANNOUNCED)
    used = {(row.topic, row.subscription) for row in announced.rows() if row.consumers}
    waiting = [
        row
        for row in outcome.rows()
        if row.agreement is Agreement.UNFINISHED and (not used or (row.topic, row.subscription) in used)
    ]
    return waiting_text(outcome.target, waiting)


async def prepare_target(
    origin: ClusterConnection, target: ClusterConnection, selection: Selection, run: Run
) -> tuple[Prepared, Forecast]:
    """Create the replicated subscriptions that `target` lacks where they lose nothing, and forecast again.

    Each begins at the first message that it has not acknowledged on `origin`, and gets the flag of a replicated
    subscription by a call that survives an unload. An existing subscription is never moved. A second call creates
    nothing. Two calls for a created subscription, one for a flag, besides those of `forecast_failover`.
    """
    forecast = await forecast_failover(origin, target, selection, run)
    async with AdminClient(target) as admin:
        prepared = await create_subscriptions(admin, forecast)
    run.artefacts.write(run.id, PREPARED, prepared.to_bytes())
    if forecast.origin_unreachable:
        # Nothing is known to be missing, and applications wait: it is not asked once more.
        return prepared, forecast
    return prepared, await forecast_failover(origin, target, selection, run)


async def record_outcome(origin: ClusterConnection, target: ClusterConnection, run: Run) -> FailoverOutcome:
    """Compare what each subscription got on `target` with the recorded forecast of this run, and record the result.

    Changes nothing. Two calls for a topic on each cluster, and the entries that came to `target` since the forecast.
    `origin` may be unreachable. A second call reads again and replaces the result.

    :raises NotFound: the run has no forecast.
    """
    outcome = await read_outcome(origin, target, stored_forecast(run), reach_seconds=REACH_SECONDS)
    written = run.artefacts.write(run.id, OUTCOME, outcome.to_bytes())
    # Evidence that was made before says that the run has gone on since.
    run.ledger.record_fact(run.id, "outcome", {OUTCOME: written.sha256})
    return outcome
