"""What a run of a failover records, as artefacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.failover.forecast import FailoverOutcome, Forecast
from pulsar_fleet.replication.failover.prepare import Prepared

FORECAST = "failover-forecast.json"
ANNOUNCED = "failover-announced.json"
PREPARED = "failover-prepared.json"
OUTCOME = "failover-outcome.json"

Stored = TypeVar("Stored", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRecords:
    """What a run recorded; None: it did not come so far.

    :param announced: the forecast that was approved; `forecast`: the last one.
    """

    announced: Forecast | None = None
    prepared: Prepared | None = None
    forecast: Forecast | None = None
    outcome: FailoverOutcome | None = None


def read_records(run: Run) -> FailoverRecords:
    """All that the run recorded until now."""
    return FailoverRecords(
        announced=_read(run, ANNOUNCED, Forecast),
        prepared=_read(run, PREPARED, Prepared),
        forecast=_read(run, FORECAST, Forecast),
        outcome=_read(run, OUTCOME, FailoverOutcome),
    )


def stored_forecast(run: Run, name: str = FORECAST) -> Forecast:
    """A forecast that a run recorded; `NotFound` if it recorded none."""
    forecast = _read(run, name, Forecast)
    if forecast is None:
        raise NotFound(f"Run {run.id!r} has no forecast of a failover; make one with: pulsar-fleet forecast-failover")
    return forecast


def _read(run: Run, name: str, form: type[Stored]) -> Stored | None:
    reference = run.artefacts.find(run.id, name)
    return form.from_bytes(run.artefacts.read(reference)) if reference else None
