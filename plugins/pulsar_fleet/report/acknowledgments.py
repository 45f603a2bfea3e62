"""The report and the metrics of a run that forwards acknowledgments (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.text import duration
from pulsar_fleet.read_only.forwarding.results import ForwardingResult
from pulsar_fleet.report.document import Outcome, Report, texts
from pulsar_fleet.report.failure import failed_report, failure_details, failure_line, failure_to_do

_MOST_ROWS = 200


def forwarding_report(result: ForwardingResult | None, failed: Mapping[str, str]) -> Report:
    """The outcome, what needs a person, and the positions and holes of both sides.

    :param failed: task that failed by itself → its reason.
    """
    if result is None:
        return failed_report(failed, "What was not forwarded is carried by the next run.")
    faults = tuple(result.faults())
    return Report(
        outcome=Outcome.FAILED if failed or faults else Outcome.SUCCEEDED,
        headline=failure_line(failed) if failed else result.headline(),
        to_do=(*faults, *(failure_to_do(failed) if failed else ())),
        body=texts(
            "\n".join(f"* {text}" for text in result.rest()),
            "\n".join(_table(result)),
            f"It took {duration(result.seconds)}: {result.passes:,} passes, {result.calls:,} admin calls.",
            failure_details(failed).strip(),
        ),
    )


def metrics(result: ForwardingResult) -> dict[str, float]:
    """Gauges of a run, in entries and subscriptions."""
    return {
        "forwarded": float(result.forwarded),
        "waiting": float(result.waiting),
        "subscriptions": float(len(result.subscriptions)),
        "identical": float(result.identical),
        "faults": float(len(result.faults())),
        "seconds": result.seconds,
    }


def _table(result: ForwardingResult) -> list[str]:
    columns = "forwarded | waiting | owner ahead | position | owner's position | holes | owner's holes"
    head = [f"| shadow topic | subscription | state | {columns} |", f"|{' --- |' * 10}"]
    rows = [
        f"| {row.topic} | {row.subscription} | {row.state.value} | {row.forwarded:,} | {row.waiting:,} | {row.ahead:,} "
        f"| {row.position} | {row.owner_position or 'none'} | {row.holes:,} | {row.owner_holes:,} |"
        for row in result.subscriptions[:_MOST_ROWS]
    ]
    more = len(result.subscriptions) - _MOST_ROWS
    return [*head, *rows, *(["", f"… and {more:,} more subscriptions."] if more > 0 else [])] if rows else []
