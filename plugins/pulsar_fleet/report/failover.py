"""The report of a failover of applications, (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.replication.failover.forecast import Agreement
from pulsar_fleet.replication.failover.records import FailoverRecords
from pulsar_fleet.replication.failover.report import forecast_body, outcome_body, prepared_text, verdict
from pulsar_fleet.report.document import Outcome, Report, sections, texts
from pulsar_fleet.report.failure import failure_details, failure_line, failure_to_do
from pulsar_fleet.report.page import approval_text


def failover_report(
    records: FailoverRecords, approval: JsonObject | None, failed: Mapping[str, str], then: Sequence[str] = ()
) -> Report:
    """Who approved and the outcome of each subscription; the preparation and the forecasts as details.

    :param then: what to do later, of a run that has led clients.
    """
    announced, forecast = records.announced, records.forecast if records.prepared else None
    return Report(
        outcome=_outcome(records, failed),
        headline=_headline(records, failed),
        to_do=(*_to_do(records, failed), *then),
        body=texts(
            failure_details(failed).strip(),
            approval_text(approval),
            _fenced(outcome_body(records.outcome)) if records.outcome else "",
        ),
        details=sections(
            [
                ("Prepared", _fenced(prepared_text(records.prepared)) if records.prepared else ""),
                ("Last forecast", _fenced(forecast_body(forecast)) if forecast else ""),
                ("Forecast before the approval", _fenced(forecast_body(announced)) if announced else ""),
            ]
        ),
    )


def _outcome(records: FailoverRecords, failed: Mapping[str, str]) -> Outcome:
    if failed:
        return Outcome.FAILED
    differs = records.outcome and records.outcome.agreement is not Agreement.AS_PREDICTED
    return Outcome.ATTENTION if differs else Outcome.SUCCEEDED


def _headline(records: FailoverRecords, failed: Mapping[str, str]) -> str:
    if failed:
        return failure_line(failed)
    return verdict(records.outcome) if records.outcome else "Nothing has been changed."


def _to_do(records: FailoverRecords, failed: Mapping[str, str]) -> tuple[str, ...]:
    if failed:
        return failure_to_do(failed)
    if _outcome(records, failed) is Outcome.ATTENTION:
        return ("read below which subscriptions differ from the forecast, and tell their owners.",)
    return ()


def _fenced(text: str) -> str:
    return f"```\n{text}\n```"
