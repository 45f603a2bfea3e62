"""The report of a failover of applications, as Markdown (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.replication.failover.records import FailoverRecords
from pulsar_fleet.replication.failover.report import forecast_body, outcome_body, prepared_text, verdict
from pulsar_fleet.report.failure import failure_details, failure_line
from pulsar_fleet.report.page import approval_text


def failover_report(records: FailoverRecords, approval: JsonObject | None, failed: Mapping[str, str]) -> str:
    """Outcome first, then who approved, then the outcome, the preparation and the forecasts of each subscription."""
    parts = [f"# {_first(records, failed)}", failure_details(failed).strip(), approval_text(approval)]
    if records.outcome:
        parts.append(_section("Outcome", outcome_body(records.outcome)))
    if records.prepared:
        parts.append(_section("Prepared", prepared_text(records.prepared)))
        if records.forecast:
            parts.append(_section("Last forecast", forecast_body(records.forecast)))
    if records.announced:
        parts.append(_section("Forecast before the approval", forecast_body(records.announced)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _first(records: FailoverRecords, failed: Mapping[str, str]) -> str:
    if failed:
        return failure_line(failed)
    return verdict(records.outcome) if records.outcome else "Nothing has been changed."


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```\n{text}\n```"
