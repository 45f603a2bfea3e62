"""The report and the metrics of a run that forwards acknowledgments (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.text import duration
from pulsar_fleet.read_only.forwarding.results import ForwardingResult
from pulsar_fleet.report.failure import failure_details, failure_line

_MOST_ROWS = 200


def forwarding_report(result: ForwardingResult | None, failed: Mapping[str, str]) -> str:
    """Outcome first, then what needs a person, and the positions and holes of both sides.

    :param failed: task that failed by itself → its reason.
    """
    if result is None:
        state = "What was not forwarded is carried by the next run."
        return f"# {failure_line(failed)}\n\n{state}{failure_details(failed)}\n"
    lines = [f"# {failure_line(failed)}" if failed else f"# {result.headline()}", ""]
    lines += [f"* **{text}**" for text in result.faults()]
    lines += [f"* {text}" for text in result.rest()]
    lines += ["", *_table(result), ""]
    lines.append(f"It took {duration(result.seconds)}: {result.passes:,} passes, {result.calls:,} admin calls.")
    return "\n".join([*lines, failure_details(failed), ""])


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
